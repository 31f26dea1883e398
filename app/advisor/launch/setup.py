"""What a launcher is given and what it makes: values that every launcher module shares."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from app.planner.architecture import ModelArchitecture
from app.planner.layout import Layout
from app.planner.legality import stage_layers
from app.planner.request import Estimate, PlanRequest, Workload

FSDP_PROFILES: Final = ("fsdp", "fsdp-2024")
MEGATRON_PROFILES: Final = ("megatron", "megatron-2025")
"""Profiles of the Megatron whose names we write; older programs have other ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A judged layout of a job. `node_label` finds its nodes, `None` where none is known."""

    request: PlanRequest
    estimate: Estimate
    node_label: tuple[str, str] | None = None

    @property
    def layout(self) -> Layout:
        """How the job is spread."""
        return self.estimate.layout

    @property
    def model(self) -> ModelArchitecture:
        """What is trained."""
        return self.request.model

    @property
    def workload(self) -> Workload:
        """The work of a step."""
        return self.request.workload

    @property
    def shards_weights(self) -> bool:
        """Whether layers are gathered for forward and again for backward."""
        return self.layout.sharding in {"zero3", "hsdp"}

    @property
    def shard_degree(self) -> int:
        """Data-parallel ranks that share one copy of the sharded state."""
        return 1 if self.layout.sharding == "none" else self.layout.dp_shard

    @property
    def replicate_degree(self) -> int:
        """Copies of what is sharded."""
        return self.layout.dp // self.shard_degree

    @property
    def stages(self) -> tuple[int, ...]:
        """Layers of each pipeline stage."""
        return stage_layers(self.request, self.layout)

    @property
    def title(self) -> str:
        """The model's name for a comment: in one line, without what could end the comment."""
        return re.sub(r"[^\w.:/+-]+", " ", self.model.name).strip()

    @property
    def name(self) -> str:
        """A Kubernetes name for the job."""
        plain = re.sub(r"[^a-z0-9]+", "-", self.model.name.lower()).strip("-")[:50].rstrip("-")
        return plain if plain[:1].isalpha() else f"job-{plain}".rstrip("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file to write. `language` is what an editor calls it."""

    name: str
    language: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Files, the command that starts the job with them, and what a person must still know."""

    files: tuple[File, ...]
    command: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """One program that starts jobs.

    `profiles` are the catalog's software profiles that describe it, the first the usual one.
    `allowed` holds the only values that it knows for some layout fields. `refuse` says what else
    of a setup it cannot start.
    """

    name: str
    release: str
    source: str
    profiles: tuple[str, ...]
    render: Callable[[Setup], Launch]
    allowed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    refuse: Callable[[Setup], tuple[str, ...]] = lambda _: ()


def torchrun(setup: Setup, *program: str) -> tuple[str, ...]:
    """The command line of one node; `MASTER_ADDR` is the first node's address."""
    cluster = setup.request.cluster
    return (
        "torchrun",
        f"--nnodes={cluster.nodes}",
        f"--nproc-per-node={cluster.gpus_per_node}",
        "--rdzv-backend=c10d",
        "--rdzv-id=job",
        "--rdzv-endpoint=${MASTER_ADDR:-localhost}:29500",
        *program,
    )


def only_adamw(setup: Setup, program: str) -> tuple[str, ...]:
    """Refusals of what pretraining programs have no switch for."""
    said = []
    if setup.workload.optimizer != "adamw":
        said.append(
            f"{program} has no switch for `optimizer` {setup.workload.optimizer}; it must be adamw"
        )
    if setup.workload.task in {"lora", "qlora"}:
        said.append(
            f"{program} has no adapters; `task` must be pretrain or sft, or take the launcher "
            "accelerate"
        )
    return tuple(said)
