"""The rules of a `training.vsr.dev` TrainJob that need no planner: each a row or a function.

Where we differ from the operator's own validation, and why, is in docs/trainjob-vsr.md.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from app.planner.framework import MAX_LORA_RANK, OFFLOADS, OPTIMIZERS, TASKS
from app.planner.hardware import MAX_GPUS_PER_NODE, MAX_NODES, PRECISIONS
from app.planner.intent import FieldError
from app.planner.layout import RECOMPUTES, SHARDINGS
from app.planner.wording import counted
from app.trainjobs import labels
from app.trainjobs.adapter import Job
from app.trainjobs.document import (
    Path,
    count_at,
    environment_at,
    is_number,
    is_whole,
    mapping_at,
    value_at,
)
from app.trainjobs.misspelt import CHECKED_NAMES, NAME_CHARACTERS, meant, unread_annotations
from app.trainjobs.plan_json import PLAN_VARIABLES, read_plan_json, word
from app.trainjobs.vsr_fields import (
    annotation,
    asks_for_plan,
    is_count_text,
    json_annotation,
    pins,
    recorded_gpus,
    stated_environment,
    stated_model_spec,
    whole,
)

SPEC_FIELDS: Final = (
    "model",
    "image",
    "numNodes",
    "gpusPerNode",
    "tpDegree",
    "ppDegree",
    "cpDegree",
    "precision",
    "autoParallelism",
    "modelSpec",
    "nodeSelector",
    "checkpoint",
    "maxRuntime",
    "suspend",
)
"""Spec fields that are read here."""
LISTED_ENTRIES: Final = 16
"""Errors of one list that are told; whoever has more has one cause for them."""
MAX_COUNT: Final = 2**31 - 1
MAX_LENGTH: Final = 2**40
MAX_BILLIONS: Final = 1e6
WORK_CHOICES: Final = {labels.TASK: TASKS, labels.OPTIMIZER: OPTIMIZERS, labels.OFFLOAD: OFFLOADS}
"""Annotations that choose one of a few, and what of."""
GPUS_PER_NODE: Final = (1, 2, 4, 8)
LONG_RUN_SECONDS: Final = 3600
MANY_NODES: Final = 64
OPERATOR_VARIABLES: Final = frozenset(
    {
        "MASTER_ADDR",
        "MASTER_PORT",
        "WORLD_SIZE",
        "NNODES",
        "NPROC_PER_NODE",
        "POD_INDEX",
        "TP_DEGREE",
        "PP_DEGREE",
        "FSDP_DEGREE",
        "CP_DEGREE",
        "PRECISION",
        "CHECKPOINT_DIR",
    }
)
"""Variables the operator sets from the spec; `spec.env` comes after them and would win."""

UNIT_SECONDS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_DURATION: Final = re.compile(rf"[+-]?({_PART.pattern})+", re.ASCII)


def duration_seconds(text: Any) -> float | None:
    """Seconds of a Go duration such as `168h0m0s`, `None` if it is none."""
    if not isinstance(text, str) or len(text) > len("-2562047h47m16.854775807s"):
        return None
    if text in {"0", "+0", "-0"}:
        return 0.0
    if not _DURATION.fullmatch(text):
        return None
    total = sum(float(number) * UNIT_SECONDS[unit] for number, unit in _PART.findall(text))
    return -total if text.startswith("-") else total


@dataclass(frozen=True, slots=True)
class Shape:
    """What a field must be when it is there. `must` completes "must ..."."""

    must: str
    holds: Callable[[Any], bool]


def _range(low: int, high: int) -> Shape:
    words = f"be a whole number from {low} to {high}"
    return Shape(words, lambda value: is_whole(value) and low <= value <= high)


def _list_of(kind: type, words: str) -> Shape:
    return Shape(
        f"be a list of {words}",
        lambda value: isinstance(value, list) and all(isinstance(each, kind) for each in value),
    )


TEXT: Final = Shape("be a string", lambda value: isinstance(value, str))
FILLED: Final = Shape("be set", lambda value: isinstance(value, str) and bool(value.strip()))
FLAG: Final = Shape("be true or false", lambda value: isinstance(value, bool))
OBJECT: Final = Shape("be an object", lambda value: isinstance(value, Mapping))
TEXTS: Final = Shape(
    "be an object of strings",
    lambda value: (
        isinstance(value, Mapping) and all(isinstance(each, str) for each in value.values())
    ),
)
BILLIONS: Final = Shape(
    f"be a number from 0 to {MAX_BILLIONS:.0f}",
    lambda value: is_number(value) and 0 <= value <= MAX_BILLIONS,
)
PRECISION: Final = Shape(
    f"be one of {', '.join(PRECISIONS)}", lambda value: value in ("", *PRECISIONS)
)
DURATION: Final = Shape(
    "be a duration such as 36h or 90m",
    lambda value: (duration_seconds(value) or -1.0) > 0,
)

INTENT_SHAPES: Final[Mapping[Path, Shape]] = {
    ("model",): FILLED,
    ("numNodes",): _range(1, MAX_NODES),
    ("gpusPerNode",): _range(1, MAX_GPUS_PER_NODE),
    ("modelSpec",): OBJECT,
    ("modelSpec", "paramsBillions"): BILLIONS,
    ("modelSpec", "hiddenDim"): _range(0, MAX_COUNT),
    ("modelSpec", "numLayers"): _range(0, MAX_COUNT),
    ("modelSpec", "numHeads"): _range(0, MAX_COUNT),
    ("modelSpec", "numKVHeads"): _range(0, MAX_COUNT),
    ("modelSpec", "seqLen"): _range(0, MAX_LENGTH),
    ("nodeSelector",): TEXTS,
}
"""What a plan is made from."""

OTHER_SHAPES: Final[Mapping[Path, Shape]] = {
    ("image",): FILLED,
    ("tpDegree",): _range(0, MAX_COUNT),
    ("ppDegree",): _range(0, MAX_COUNT),
    ("cpDegree",): _range(0, MAX_COUNT),
    ("precision",): PRECISION,
    ("autoParallelism",): FLAG,
    ("modelSpec", "microBatchSize"): _range(0, MAX_COUNT),
    ("modelSpec", "activationCheckpointing"): FLAG,
    ("checkpoint",): OBJECT,
    ("checkpoint", "enabled"): FLAG,
    ("checkpoint", "intervalMinutes"): _range(0, MAX_COUNT),
    ("checkpoint", "storagePath"): TEXT,
    ("checkpoint", "retainCount"): _range(0, MAX_COUNT),
    ("checkpoint", "validateOnSave"): FLAG,
    ("maxRuntime",): DURATION,
    ("command",): _list_of(str, "strings"),
    ("args",): _list_of(str, "strings"),
    ("env",): _list_of(Mapping, "objects with `name` and `value`"),
    ("skipProlog",): FLAG,
    ("enableSidecar",): FLAG,
    ("suspend",): FLAG,
    ("metricsConfig",): OBJECT,
    ("evalConfig",): OBJECT,
}

REQUIRED_FOR_INTENT: Final = ("model", "numNodes", "gpusPerNode")
REQUIRED: Final = ("image",)

PIN_SHAPES: Final[Mapping[str, Shape]] = {
    **dict.fromkeys(
        ("tp", "pp", "vpp", "cp", "ep", "dp", "dp_shard", "microbatch_size"), _range(1, MAX_COUNT)
    ),
    "sequence_parallel": FLAG,
    "sharding": Shape(f"be one of {', '.join(SHARDINGS)}", lambda value: value in SHARDINGS),
    "recompute": Shape(f"be one of {', '.join(RECOMPUTES)}", lambda value: value in RECOMPUTES),
    "precision": Shape(f"be one of {', '.join(PRECISIONS)}", lambda value: value in PRECISIONS),
}

Found = Iterator[FieldError]


def _misshapen(job: Job, shapes: Mapping[Path, Shape], required: tuple[str, ...]) -> Found:
    spec = mapping_at(job, "spec")
    for path, shape in shapes.items():
        value = spec.get(path[0]) if len(path) == 1 else value_at(spec, *path)
        if value is None and path[-1] in required and len(path) == 1:
            yield FieldError(path=_dotted(path), value=None, message="must be set")
        elif value is not None and not shape.holds(value):
            yield FieldError(path=_dotted(path), value=value, message=f"must {shape.must}")


def _dotted(path: Path) -> str:
    return ".".join(("spec", *path))


def _annotation_path(name: str) -> str:
    return f"metadata.annotations[{name}]"


def _annotation_error(job: Job, name: str, message: str) -> FieldError:
    return FieldError(path=_annotation_path(name), value=annotation(job, name), message=message)


def _count_annotations(job: Job) -> Found:
    for name in (labels.SEQUENCE_LENGTH, labels.GLOBAL_BATCH_SIZE):
        text = annotation(job, name)
        if text is not None and not is_count_text(text):
            yield _annotation_error(job, name, "must be a whole number greater than 0")


def _work_annotations(job: Job) -> Found:
    for name, known in WORK_CHOICES.items():
        text = annotation(job, name)
        if text is not None and text not in known:
            yield _annotation_error(job, name, f"must be one of {', '.join(known)}")
    rank = annotation(job, labels.LORA_RANK)
    if rank is not None and not (is_count_text(rank) and int(rank) <= MAX_LORA_RANK):
        message = f"must be a whole number from 1 to {MAX_LORA_RANK}"
        yield _annotation_error(job, labels.LORA_RANK, message)


def _one_sequence_length(job: Job) -> Found:
    field = count_at(stated_model_spec(job), "seqLen")
    text = annotation(job, labels.SEQUENCE_LENGTH)
    if field is None or text is None or not is_count_text(text) or int(text) == field:
        return
    yield _annotation_error(
        job, labels.SEQUENCE_LENGTH, f"must equal `spec.modelSpec.seqLen` ({field}) or be left out"
    )


def _readable_fabric(job: Job) -> Found:
    text = annotation(job, labels.FABRIC)
    if text is None or not text.startswith("{"):
        return
    try:
        json_annotation(job, labels.FABRIC)
    except ValueError:
        yield _annotation_error(
            job, labels.FABRIC, 'must be a name or JSON {"bytes_per_second_per_gpu": number}'
        )


def _readable_pins(job: Job) -> Found:
    try:
        found = json_annotation(job, labels.PINS)
    except ValueError:
        found = ()
    if found is None:
        return
    if not isinstance(found, Mapping):
        yield _annotation_error(job, labels.PINS, 'must be a JSON object such as {"tp": 8}')
        return
    for name, value in found.items():
        shape = PIN_SHAPES.get(name)
        path = f"{_annotation_path(labels.PINS)}.{name}"
        if shape is None:
            known = ", ".join(PIN_SHAPES)
            yield FieldError(path=path, value=value, message=f"is no pin; pins are {known}")
        elif not shape.holds(value):
            yield FieldError(path=path, value=value, message=f"must {shape.must}")


def _gpus_per_node(job: Job) -> Found:
    gpus = count_at(job, "spec", "gpusPerNode")
    if gpus is not None and gpus not in GPUS_PER_NODE:
        message = f"must be one of {', '.join(map(str, GPUS_PER_NODE))}"
        yield FieldError(path="spec.gpusPerNode", value=gpus, message=message)


def _degrees_set(job: Job) -> Found:
    if asks_for_plan(job):
        return
    for name in ("tpDegree", "ppDegree"):
        value = value_at(job, "spec", name)
        if value is None or value == 0:
            message = "must be greater than 0, or set `autoParallelism: true` to have it planned"
            yield FieldError(path=f"spec.{name}", value=value, message=message)


def _degrees_divide(job: Job) -> Found:
    nodes, gpus = count_at(job, "spec", "numNodes"), count_at(job, "spec", "gpusPerNode")
    tp, pp = count_at(job, "spec", "tpDegree"), count_at(job, "spec", "ppDegree")
    cp = count_at(job, "spec", "cpDegree") or 1
    if nodes is None or gpus is None or tp is None or pp is None:
        return
    if nodes * gpus % (tp * pp * cp):
        yield FieldError(
            path="spec.tpDegree",
            value=tp,
            message=(
                f"tpDegree * ppDegree * cpDegree is {tp} * {pp} * {cp} = {tp * pp * cp} and must "
                f"divide the {counted(nodes * gpus, 'GPU')} of the job"
            ),
        )


def _planned_for_these_gpus(job: Job) -> Found:
    """The layout of a job that was planned is that of its GPUs, and a job is planned once."""
    nodes, gpus = count_at(job, "spec", "numNodes"), count_at(job, "spec", "gpusPerNode")
    planned = recorded_gpus(job)
    if not asks_for_plan(job) or not planned or nodes is None or gpus is None:
        return
    if nodes * gpus != planned:
        message = (
            f"the plan of this job is for {counted(planned, 'GPU')} and a plan is made at creation "
            f"only: to run on {nodes * gpus}, delete the job and create it anew"
        )
        yield FieldError(path="spec.numNodes", value=nodes, message=message)


def _storage_path(job: Job) -> Found:
    checkpoint = mapping_at(job, "spec", "checkpoint")
    path = checkpoint.get("storagePath")
    if checkpoint.get("enabled") is True and not path:
        message = "must be set when `spec.checkpoint.enabled` is true"
        yield FieldError(path="spec.checkpoint.storagePath", value=path, message=message)


def awaits_plan(job: Job) -> bool:
    """Whether the job asked for a plan and our mutating pass has not seen it."""
    degrees = (count_at(job, "spec", "tpDegree"), count_at(job, "spec", "ppDegree"))
    return asks_for_plan(job) and None in degrees


def _long_runs_checkpoint(job: Job) -> Found:
    seconds = duration_seconds(value_at(job, "spec", "maxRuntime"))
    if seconds is None or seconds <= LONG_RUN_SECONDS:
        return
    checkpoint = mapping_at(job, "spec", "checkpoint")
    if checkpoint.get("enabled") is not True:
        yield FieldError(
            path="spec.checkpoint.enabled",
            value=checkpoint.get("enabled"),
            message="must be true for a `spec.maxRuntime` longer than 1h",
        )
    elif awaits_plan(job) and checkpoint.get("intervalMinutes") is None:
        return  # the pass that plans the job gives it the default too
    elif not whole(job, "spec", "checkpoint", "intervalMinutes") > 0:
        yield FieldError(
            path="spec.checkpoint.intervalMinutes",
            value=checkpoint.get("intervalMinutes"),
            message="must be greater than 0 for a `spec.maxRuntime` longer than 1h",
        )


def _named_variables(job: Job) -> Found:
    return islice(_misnamed_variables(job), LISTED_ENTRIES)


def _misnamed_variables(job: Job) -> Found:
    entries = value_at(job, "spec", "env")
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        name = value_at(entry, "name")
        if isinstance(entry, Mapping) and not (isinstance(name, str) and name):
            path = f"spec.env[{index}].name"
            yield FieldError(path=path, value=name, message="must be a non-empty string")
        value = value_at(entry, "value")
        if value is not None and not isinstance(value, str):
            path = f"spec.env[{index}].value"
            yield FieldError(path=path, value=value, message="must be a string; quote numbers")


INTENT_CHECKS: Final[tuple[Callable[[Job], Found], ...]] = (
    _count_annotations,
    _work_annotations,
    _one_sequence_length,
    _readable_fabric,
    _readable_pins,
)
OTHER_CHECKS: Final[tuple[Callable[[Job], Found], ...]] = (
    _gpus_per_node,
    _degrees_set,
    _degrees_divide,
    _planned_for_these_gpus,
    _storage_path,
    _long_runs_checkpoint,
    _named_variables,
)


def intent_errors(job: Job) -> tuple[FieldError, ...]:
    """What stands in the way of reading the job's wish."""
    found = list(_misshapen(job, INTENT_SHAPES, REQUIRED_FOR_INTENT))
    for check in INTENT_CHECKS:
        found.extend(check(job))
    return tuple(found)


def job_errors(job: Job) -> tuple[FieldError, ...]:
    """Everything wrong with the job's own fields."""
    found = [*intent_errors(job), *_misshapen(job, OTHER_SHAPES, REQUIRED)]
    for check in OTHER_CHECKS:
        found.extend(check(job))
    return tuple(found)


FROZEN_WHILE_RUNNING: Final = ("tpDegree", "ppDegree", "cpDegree", "numNodes", "gpusPerNode")
RUNNING_PHASES: Final = ("Running", "Checkpointing")


def running(job: Job) -> bool:
    """Whether the job's workers are training."""
    return value_at(job, "status", "phase") in RUNNING_PHASES


def frozen_errors(job: Job, old: Job) -> tuple[FieldError, ...]:
    """Changes to the shape of a running job."""
    return tuple(
        FieldError(
            path=f"spec.{name}",
            value=value_at(job, "spec", name),
            message=(
                f"must stay {whole(old, 'spec', name)} while the job is running; "
                "make a new job for another layout"
            ),
        )
        for name in FROZEN_WHILE_RUNNING
        if whole(job, "spec", name) != whole(old, "spec", name)
    )


def job_warnings(job: Job) -> tuple[str, ...]:
    """What may well be meant, and should be known."""
    return tuple(
        sentence
        for check in (
            _unplanned,
            _fp32,
            _skipped_prolog,
            _repeated_variables,
            _overridden_variables,
            _idle_pins,
            _contradicted_plan,
            misspelt_names,
        )
        for sentence in check(job)
    )


def _unplanned(job: Job) -> Iterator[str]:
    if awaits_plan(job):
        yield "autoParallelism is set but the job has no plan: it has not passed /mutate"


def _fp32(job: Job) -> Iterator[str]:
    if value_at(job, "spec", "precision") == "fp32":
        yield "spec.precision fp32 takes twice the memory of bf16 and a fraction of its speed"


def _skipped_prolog(job: Job) -> Iterator[str]:
    nodes = whole(job, "spec", "numNodes")
    if value_at(job, "spec", "skipProlog") is True and nodes > MANY_NODES:
        yield f"spec.skipProlog on {nodes} nodes: one bad GPU stops them all, and none is checked"


def _repeated_variables(job: Job) -> Iterator[str]:
    entries = value_at(job, "spec", "env")
    names = Counter(
        entry["name"]
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, Mapping) and isinstance(entry.get("name"), str)
    )
    repeated = [name for name, count in names.items() if count > 1]
    if repeated:
        yield f"spec.env sets {', '.join(repeated)} more than once; the last one counts"


def _overridden_variables(job: Job) -> Iterator[str]:
    names = [name for name in environment_at(job, "spec", "env") if name in OPERATOR_VARIABLES]
    if names:
        yield f"spec.env overrides what the operator derives from the spec: {', '.join(names)}"


def _idle_pins(job: Job) -> Iterator[str]:
    try:
        pinned = pins(job)
    except ValueError:
        return
    if pinned and not asks_for_plan(job):
        yield f"{labels.PINS} has no effect without `autoParallelism: true`"


def _contradicted_plan(job: Job) -> Iterator[str]:
    """Variables of the author's that say otherwise than the plan we wrote into the job."""
    recorded = read_plan_json(annotation(job, labels.PLAN))
    stated = stated_environment(job) if recorded else {}
    other = [
        name
        for name, (part, key) in PLAN_VARIABLES.items()
        if name in stated and stated[name] != word(value_at(recorded, part, key))
    ]
    if other:
        yield f"spec.env says otherwise than the plan, and counts: {', '.join(other)}"


def misspelt_names(job: Job) -> Iterator[str]:
    """Names that nobody reads: of the spec nearly one we do, of annotations any of our prefix."""
    spec = mapping_at(job, "spec")
    for name in islice(spec, CHECKED_NAMES):
        if name in SPEC_FIELDS or len(name) > NAME_CHARACTERS:
            continue
        near = meant(name, SPEC_FIELDS)
        if near and near not in spec:
            yield f"spec: nothing reads `{name}`; did you mean `{near}`?"
    yield from unread_annotations(mapping_at(job, "metadata", "annotations"), labels.READ)
