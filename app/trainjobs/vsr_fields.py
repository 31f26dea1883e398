"""What a `training.vsr.dev` TrainJob says, read once: its wish, its layout, its environment.

What we filled in on an earlier pass (our annotations list it) is not what its author said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import orjson

from app.planner.estimate import field_problem
from app.planner.intent import TrainIntent
from app.trainjobs import labels
from app.trainjobs.adapter import Job
from app.trainjobs.document import (
    count_at,
    environment_at,
    is_number,
    is_whole,
    mapping_at,
    texts_at,
    value_at,
)
from app.trainjobs.kept import our_entries
from app.trainjobs.plan_json import read_plan_json

SHAPE: Final = {
    "paramsBillions": "params",
    "hiddenDim": "hidden_size",
    "numLayers": "num_layers",
    "numHeads": "num_heads",
    "numKVHeads": "num_kv_heads",
}
"""`modelSpec` fields that describe the model, and their names in an architecture."""

PARAMS_PER_UNIT: Final = {"paramsBillions": 10**9}
INSTANCE_TYPE_LABEL: Final = "node.kubernetes.io/instance-type"

INTENT_PATHS: Final = {
    "model": "spec.model",
    "architecture": "spec.modelSpec",
    **{f"architecture.{ours}": f"spec.modelSpec.{theirs}" for theirs, ours in SHAPE.items()},
    "nodes": "spec.numNodes",
    "gpus_per_node": "spec.gpusPerNode",
    "gpu": "spec.nodeSelector",
    "node_labels": "spec.nodeSelector",
    "instance_type": "spec.nodeSelector",
    "sequence_length": "spec.modelSpec.seqLen",
    "global_batch_size": f"metadata.annotations[{labels.GLOBAL_BATCH_SIZE}]",
    "task": f"metadata.annotations[{labels.TASK}]",
    "lora_rank": f"metadata.annotations[{labels.LORA_RANK}]",
    "optimizer": f"metadata.annotations[{labels.OPTIMIZER}]",
    "offload": f"metadata.annotations[{labels.OFFLOAD}]",
    "framework": f"metadata.annotations[{labels.FRAMEWORK}]",
    "fabric": f"metadata.annotations[{labels.FABRIC}]",
    "pins": f"metadata.annotations[{labels.PINS}]",
}

LAYOUT_PATHS: Final = {
    "tp": "spec.tpDegree",
    "pp": "spec.ppDegree",
    "cp": "spec.cpDegree",
    "precision": "spec.precision",
    "microbatch_size": "spec.modelSpec.microBatchSize",
    "recompute": "spec.modelSpec.activationCheckpointing",
}


def asks_for_plan(job: Job) -> bool:
    """Whether the job opted in."""
    return value_at(job, "spec", "autoParallelism") is True


def annotation(job: Job, name: str) -> str | None:
    """The annotation `name`, `None` when it is absent, blank or no string."""
    found = value_at(job, "metadata", "annotations", name)
    return found.strip() or None if isinstance(found, str) else None


def json_annotation(job: Job, name: str) -> Any:
    """The JSON value of the annotation `name`, `None` when absent; other text is a ValueError."""
    text = annotation(job, name)
    if text is None:
        return None
    try:
        return orjson.loads(text)
    except RecursionError as error:
        raise ValueError(name) from error


def count_annotation(job: Job, name: str) -> int | None:
    """The positive integer of the annotation `name`, else `None`."""
    text = annotation(job, name)
    return int(text) if text is not None and is_count_text(text) else None


def is_count_text(text: str) -> bool:
    """Whether `text` is a positive integer of a length that means something."""
    return text.isascii() and text.isdigit() and len(text) <= len("1000000000") and int(text) > 0


def filled_fields(job: Job) -> Mapping[str, Any]:
    """`modelSpec` fields whose value is the one we filled in, by name."""
    spec = mapping_at(job, "spec", "modelSpec")
    if not spec:
        return {}
    plan = read_plan_json(annotation(job, labels.PLAN))
    return {
        key: value
        for key, value in mapping_at(plan, "filled").items()
        if is_number(value) and key in spec and spec[key] == value
    }


def stated_model_spec(job: Job) -> Mapping[str, Any]:
    """The job's `modelSpec` as its author wrote it."""
    spec = mapping_at(job, "spec", "modelSpec")
    filled = filled_fields(job)
    if not filled:
        return spec
    return {key: value for key, value in spec.items() if key not in filled}


def stated_shape(job: Job) -> dict[str, Any] | None:
    """The architecture the author gives, or `None`: then `model` names a catalog entry.

    Zero is an unset field. Source for "no KV heads means as many as heads": the API's own
    description of `numKVHeads`.
    """
    spec = stated_model_spec(job)
    shape: dict[str, Any] = {
        ours: round(spec[theirs] * PARAMS_PER_UNIT.get(theirs, 1))
        for theirs, ours in SHAPE.items()
        if is_number(spec.get(theirs)) and spec[theirs] > 0
    }
    if not shape:
        return None
    if "num_heads" in shape:
        shape.setdefault("num_kv_heads", shape["num_heads"])
    return shape


def fabric(job: Job) -> str | Mapping[str, Any] | None:
    """The fabric annotation: a catalog name, or an object in JSON."""
    text = annotation(job, labels.FABRIC)
    if text is None or not text.startswith("{"):
        return text
    found = json_annotation(job, labels.FABRIC)
    return found if isinstance(found, Mapping) else text


def pins(job: Job) -> Mapping[str, Any]:
    """The layout fields the author pins."""
    found = json_annotation(job, labels.PINS)
    return found if isinstance(found, Mapping) else {}


def work(job: Job) -> dict[str, Any]:
    """What the job trains and how, where its author says: fields of a `TrainIntent`."""
    stated = (
        ("task", annotation(job, labels.TASK)),
        ("optimizer", annotation(job, labels.OPTIMIZER)),
        ("offload", annotation(job, labels.OFFLOAD)),
    )
    return {name: text for name, text in stated if text is not None}


def intent(job: Job) -> TrainIntent:
    """What the job asks to be planned. The job has no field errors."""
    return TrainIntent(
        model=value_at(job, "spec", "model"),
        architecture=stated_shape(job),
        node_labels=texts_at(job, "spec", "nodeSelector"),
        nodes=value_at(job, "spec", "numNodes"),
        gpus_per_node=value_at(job, "spec", "gpusPerNode"),
        fabric=fabric(job),
        framework=annotation(job, labels.FRAMEWORK),
        sequence_length=count_at(stated_model_spec(job), "seqLen")
        or count_annotation(job, labels.SEQUENCE_LENGTH),
        global_batch_size=count_annotation(job, labels.GLOBAL_BATCH_SIZE),
        lora_rank=count_annotation(job, labels.LORA_RANK),
        **work(job),
        pins=pins(job),
        paths=INTENT_PATHS,
    )


def stated_layout(job: Job) -> dict[str, Any]:
    """The layout fields the spec itself states."""
    spec, model_spec = mapping_at(job, "spec"), mapping_at(job, "spec", "modelSpec")
    layout: dict[str, Any] = {
        name: value
        for name, value in (
            ("tp", count_at(spec, "tpDegree")),
            ("pp", count_at(spec, "ppDegree")),
            ("cp", count_at(spec, "cpDegree")),
            ("microbatch_size", count_at(model_spec, "microBatchSize")),
            ("precision", spec.get("precision") or None),
        )
        if value is not None
    }
    checkpoints = model_spec.get("activationCheckpointing")
    if isinstance(checkpoints, bool):
        layout["recompute"] = "full" if checkpoints else "none"
    return layout


def recorded_gpus(job: Job) -> int:
    """GPUs that our plan of the job is for, 0 if it has none: the product of its degrees."""
    layout = mapping_at(read_plan_json(annotation(job, labels.PLAN)), "layout")
    return math.prod(count_at(layout, name) or 0 for name in ("tp", "pp", "cp", "dp"))


def planned_layout(job: Job) -> dict[str, Any]:
    """The whole layout of our plan, as far as the spec still says the same; else nothing."""
    layout = dict(mapping_at(read_plan_json(annotation(job, labels.PLAN)), "layout"))
    if not layout or any(field_problem(name, value) for name, value in layout.items()):
        return {}
    stated = stated_layout(job)
    gpus = whole(job, "spec", "numNodes") * whole(job, "spec", "gpusPerNode")
    if recorded_gpus(job) != gpus:
        return {}
    recomputes = stated.pop("recompute", "none") != "none"
    agrees = all(layout.get(name) == value for name, value in stated.items())
    return layout if agrees and recomputes == (layout.get("recompute") != "none") else {}


def added_variables(job: Job) -> Mapping[str, str]:
    """Variables of `spec.env` that we added earlier and that still have our value."""
    return {
        name: value_at(job, "spec", "env")[index]["value"]
        for name, index in our_entries(job, ("spec", "env")).items()
    }


def stated_environment(job: Job) -> dict[str, str]:
    """The environment its author set."""
    present = environment_at(job, "spec", "env")
    ours = added_variables(job) if present else {}
    return {name: value for name, value in present.items() if name not in ours}


def whole(job: Job, *path: str) -> int:
    """The integer at `path`, 0 for anything else."""
    found = value_at(job, *path)
    return found if is_whole(found) else 0
