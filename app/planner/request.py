"""The planner's question and its answers: frozen values, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from app.planner.architecture import ModelArchitecture
from app.planner.efficiency import Efficiency
from app.planner.framework import FrameworkProfile, Offload, Optimizer, Task
from app.planner.hardware import Cluster, Precision
from app.planner.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What one optimizer step has to do. Lengths in tokens, batches in sequences."""

    sequence_length: int
    global_batch_size: int
    task: Task = "pretrain"
    lora_rank: int = 16
    optimizer: Optimizer = "adamw"
    offload: Offload = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """Layout fields the user fixed; `None` leaves a field to the search."""

    tp: int | None = None
    pp: int | None = None
    vpp: int | None = None
    cp: int | None = None
    ep: int | None = None
    dp: int | None = None
    dp_shard: int | None = None
    sharding: str | None = None
    sequence_parallel: bool | None = None
    microbatch_size: int | None = None
    recompute: str | None = None
    precision: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """A resolved question. Equal requests have equal plans, so it is the cache key.

    `allowed_precisions` is what the operator lets the search choose from, `pins` the user's.
    `assumptions` are sentences about facts that were not given; they travel into every answer.
    """

    model: ModelArchitecture
    cluster: Cluster
    framework: FrameworkProfile
    efficiency: Efficiency
    workload: Workload
    pins: Pins = field(default_factory=Pins)
    allowed_precisions: tuple[Precision, ...] = ("bf16", "fp16")
    assumptions: tuple[str, ...] = ()
    catalog_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A legality rule a layout breaks. `field` is the layout field at fault."""

    rule: str
    field: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBytes:
    """Bytes one GPU of the fullest pipeline stage holds, by what they are for.

    `buffers` are gathered parameters and gradient buckets, `communicators` what NCCL keeps per
    group, `reserve` the CUDA context and allocator fragmentation. `host` is per node.
    """

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    buffers: float
    communicators: float
    reserve: float
    host: float = 0.0
    stage: int = 0

    @property
    def total(self) -> float:
        """Bytes of device memory."""
        return (
            self.parameters
            + self.gradients
            + self.optimizer
            + self.activations
            + self.logits
            + self.buffers
            + self.communicators
            + self.reserve
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSeconds:
    """Seconds of one optimizer step that each cause adds; they sum to the step.

    Communication terms are the exposed part: what does not hide behind compute.
    """

    compute: float
    tp: float
    cp: float
    ep: float
    pp_bubble: float
    pp_p2p: float
    dp: float
    optimizer: float

    @property
    def total(self) -> float:
        """Seconds of the step."""
        return (
            self.compute
            + self.tp
            + self.cp
            + self.ep
            + self.pp_bubble
            + self.pp_p2p
            + self.dp
            + self.optimizer
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one layout would do. `limit_bytes` is what may be used of `gpu_memory_bytes`."""

    layout: Layout
    violations: tuple[Violation, ...]
    fits: bool
    gpu_memory_bytes: int
    limit_bytes: float
    memory: MemoryBytes
    time: TimeSeconds
    num_microbatches: int
    global_batch_size: int
    tokens_per_second_per_gpu: float
    model_flop_per_second_per_gpu: float
    mfu: float
    assumptions: tuple[str, ...] = ()

    @property
    def legal(self) -> bool:
        """Whether no rule is broken."""
        return not self.violations

    @property
    def step_time_seconds(self) -> float:
        """Seconds of one optimizer step."""
        return self.time.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A layout that lost, and why in one sentence."""

    layout: Layout
    estimate: Estimate
    why_not: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStats:
    """How the search went. `evaluated` full evaluations of `configurations` in the space.

    `legal` and `feasible` count what was looked at, not what was pruned unseen.
    """

    configurations: int
    evaluated: int
    legal: int
    feasible: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The best layout, with what it should do and why it was chosen.

    What its neighbours lose is asked for apart (`explain.alternatives`): only people read it.
    """

    layout: Layout
    estimate: Estimate
    search: SearchStats
    explanation: str
    request: PlanRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class NoFeasiblePlan:
    """Nothing legal fits. `nearest` is the closest miss, `short_by_bytes` what it lacks."""

    reasons: tuple[str, ...]
    nearest: Estimate | None
    short_by_bytes: float
    remedies: tuple[str, ...]
    search: SearchStats
    request: PlanRequest


Stop = Callable[[], bool]
"""Whether the caller no longer waits. The planner has no clock: who calls it may have one."""


def never() -> bool:
    """The `Stop` of a caller that waits for as long as it takes."""
    return False


class OutOfTime(Exception):  # noqa: N818 - it names what happened, which is nobody's error
    """The caller's `stop` was true before there was an answer."""


def keep_going(stop: Stop) -> None:
    """Raises `OutOfTime` when the caller no longer waits."""
    if stop():
        raise OutOfTime


class Planner(Protocol):
    """What admission and the advisor call to plan: the search itself, or a cache before it."""

    def __call__(self, request: PlanRequest, *, stop: Stop = never) -> Plan | NoFeasiblePlan:
        """The answer. Raises `OutOfTime` when `stop` was true before there was one."""
