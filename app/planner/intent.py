"""What a job or a person asks for, before any name is looked up.

Adapters and the API fill it from their own documents; the catalog resolves it to a `PlanRequest`.
A field that is `None` was not given. `paths` maps a field here to where it stood in the source
document, so that an error names the field its author wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One thing wrong with one field: where, what was found, and what would be right."""

    path: str
    value: Any
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainIntent:
    """A wish for a plan.

    Exactly one of `model`, `architecture`, `hf_config` names the model, except that `architecture`
    may come with `model` as its free-text name.

    `architecture` holds the keys of `ModelArchitecture` (plus nested `moe` and `latent`); a partial
    one is completed and the assumption is said. `gpu` is a catalog name or any node label value;
    without it `node_labels` are searched for a label that names the GPU or the instance type.
    `fabric` is a catalog name or `{"bytes_per_second_per_gpu": number}`.
    """

    model: str | None = None
    architecture: Mapping[str, Any] | None = None
    hf_config: Mapping[str, Any] | None = None
    gpu: str | None = None
    node_labels: Mapping[str, str] = field(default_factory=dict)
    nodes: int = 1
    gpus_per_node: int = 8
    fabric: str | Mapping[str, Any] | None = None
    instance_type: str | None = None
    framework: str | None = None
    sequence_length: int | None = None
    global_batch_size: int | None = None
    task: str = "pretrain"
    lora_rank: int | None = None
    optimizer: str = "adamw"
    offload: str = "none"
    pins: Mapping[str, Any] = field(default_factory=dict)
    paths: Mapping[str, str] = field(default_factory=dict)

    def path(self, name: str) -> str:
        """Where the author wrote field `name`."""
        return self.paths.get(name, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unresolved:
    """An intent whose names or numbers could not be resolved: every reason, none guessed."""

    errors: tuple[FieldError, ...]
