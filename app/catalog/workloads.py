"""Sequence length, batch, task and pins of a question: checked, and completed where silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Any, Final

from app.catalog.reading import MAX_BATCH, Fields, quoted, shown, unknown_keys
from app.planner.framework import MAX_LORA_RANK, OFFLOADS, OPTIMIZERS, TASKS
from app.planner.hardware import PRECISIONS
from app.planner.intent import FieldError, TrainIntent
from app.planner.layout import RECOMPUTES, SHARDINGS
from app.planner.request import Pins, Workload

MAX_SEQUENCE_LENGTH: Final = 2**27
DEFAULT_LORA_RANK: Final = 16
MAX_DEGREE: Final = 2**27
FINE_TUNING: Final = frozenset({"sft", "lora", "qlora"})

DEGREES: Final = ("tp", "pp", "vpp", "cp", "ep", "dp", "dp_shard", "microbatch_size")
CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "sharding": SHARDINGS,
    "recompute": RECOMPUTES,
    "precision": PRECISIONS,
}
PIN_NAMES: Final = (*DEGREES, *CHOICES, "sequence_parallel")
NO_PINS: Final = Pins()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStep:
    """Tokens of one step that are usual for models of `min_params` and more."""

    min_params: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadDefaults:
    """What a silent workload is completed with. `batch` is sorted by `min_params`."""

    sequence_length: int
    finetune_batch_tokens: int
    batch: tuple[BatchStep, ...]

    def batch_tokens(self, params: int, task: str) -> int:
        """Tokens of one optimizer step that are usual for a model of this size."""
        if task in FINE_TUNING:
            return self.finetune_batch_tokens
        return next(step.tokens for step in reversed(self.batch) if params >= step.min_params)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What the defaults depend on: the model's size and usual length, and the GPUs."""

    params: int
    sequence_length: int
    max_sequence_length: int
    world_size: int


def read_workload(intent: TrainIntent, errors: list[FieldError]) -> tuple[int | None, int | None]:
    """The stated sequence length and batch; everything wrong with the workload goes to `errors`."""
    for name, known in (("task", TASKS), ("optimizer", OPTIMIZERS), ("offload", OFFLOADS)):
        value = getattr(intent, name)
        if value not in known:
            errors.append(_choice_error(name, value, known))
    stated = {
        "sequence_length": intent.sequence_length,
        "global_batch_size": intent.global_batch_size,
        "lora_rank": intent.lora_rank,
    }
    fields = Fields(stated, path="")
    length = fields.whole("sequence_length", high=MAX_SEQUENCE_LENGTH, default=0)
    batch = fields.whole("global_batch_size", high=MAX_BATCH, default=0)
    fields.whole("lora_rank", high=MAX_LORA_RANK, default=0)
    errors += fields.errors
    return length or None, batch or None


def _choice_error(name: str, value: Any, known: tuple[str, ...]) -> FieldError:
    message = f"`{name}` must be one of {quoted(known)}, not {shown(value)}"
    return FieldError(path=name, value=value, message=message)


def complete_workload(
    intent: TrainIntent,
    scale: Scale,
    *,
    stated: tuple[int | None, int | None],
    defaults: WorkloadDefaults,
    said: list[str],
) -> Workload:
    """The workload of a sound intent; what it does not state is assumed and told to `said`."""
    length, batch = stated
    if length is None:
        length = scale.sequence_length
        said.append(f"sequence length of {length} assumed")
    elif 0 < scale.max_sequence_length < length:
        said.append(
            f"sequence length {length} is beyond the {scale.max_sequence_length} positions "
            "of the model as published"
        )
    if batch is None:
        tokens = defaults.batch_tokens(scale.params, intent.task)
        most = defaults.batch[-1].tokens
        batch = default_batch(tokens, most_tokens=most, length=length, world_size=scale.world_size)
        said.append(
            f"global batch of {batch} sequences ({batch * length / 1e6:.1f} M tokens) assumed"
        )
    return Workload(
        sequence_length=length,
        global_batch_size=batch,
        task=intent.task,  # type: ignore[arg-type]  # checked against TASKS
        lora_rank=intent.lora_rank or DEFAULT_LORA_RANK,
        optimizer=intent.optimizer,  # type: ignore[arg-type]  # checked against OPTIMIZERS
        offload=intent.offload,  # type: ignore[arg-type]  # checked against OFFLOADS
    )


def default_batch(tokens: int, *, most_tokens: int, length: int, world_size: int) -> int:
    """Sequences near `tokens` that the data-parallel degrees of the cluster can share.

    A multiple of the GPUs, so that any `dp` divides it. Where one sequence for each GPU would be
    more than `tokens`, a divisor of the GPUs: the largest one of at most `most_tokens`, so that a
    small model may still use many replicas, else the smallest that reaches `tokens`.
    """
    wanted = max(1, round(tokens / length))
    if wanted >= world_size:
        return max(1, round(wanted / world_size)) * world_size
    small = (one for one in range(1, isqrt(world_size) + 1) if world_size % one == 0)
    shares = [share for one in small for share in (one, world_size // one) if share >= wanted]
    return max((s for s in shares if s * length <= most_tokens), default=min(shares))


def read_pins(pins: Any, errors: list[FieldError]) -> Pins:
    """The layout fields an intent fixes; everything wrong with them goes to `errors`."""
    if not pins and isinstance(pins, Mapping):
        return NO_PINS
    if not isinstance(pins, Mapping):
        message = f"`pins` must be an object, not {shown(pins)}"
        errors.append(FieldError(path="pins", value=pins, message=message))
        return NO_PINS
    fields = Fields(pins, path="pins")
    found: dict[str, Any] = {}
    fields.errors += unknown_keys(pins, PIN_NAMES, prefix="pins.")
    for name in PIN_NAMES:
        if name not in pins:
            continue
        value = pins[name]
        if name in DEGREES:
            found[name] = fields.whole(name, high=MAX_DEGREE, default=0) or None
        elif name in CHOICES:
            found[name] = _choice(fields, name, value)
        else:
            found[name] = None if value is None else fields.flag(name, default=False)
    errors += fields.errors
    return Pins(**found) if not fields.errors else NO_PINS


def _choice(fields: Fields, name: str, value: Any) -> Any:
    if value is not None and value not in CHOICES[name]:
        must = f"`{name}` must be one of {quoted(CHOICES[name])}, not {shown(value)}"
        fields.wrong(name, value, must)
    return value
