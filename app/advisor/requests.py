"""A JSON document or a set of flags becomes a `TrainIntent`: strict, and with every error at once.

The tables below are the API: a key that is not in them is an error that names the known ones. What
a name stands for (a model, a GPU, a fabric) is the catalog's business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.catalog.reading import quoted, shown, unknown_keys
from app.planner.estimate import MAX_STAGES
from app.planner.framework import OFFLOADS, OPTIMIZERS, TASKS
from app.planner.hardware import MAX_GPUS_PER_NODE, MAX_NODES, PRECISIONS
from app.planner.intent import FieldError, TrainIntent
from app.planner.layout import RECOMPUTES, SHARDINGS

MAX_DEGREE = 1_000_000_000
MAX_TOKENS = 1_000_000_000
MAX_SEQUENCES = 1_000_000_000

Check = Callable[[Any], str | None]
"""What must hold of one value: `None` when it does, else the rest of a sentence "must be ..."."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateQuestion:
    """A wish, and the layout to judge instead of searching for one. Absent fields have defaults."""

    intent: TrainIntent
    layout: Mapping[str, Any] = field(default_factory=dict)


def whole_number(low: int, high: int) -> Check:
    """Checks for a whole number in a range."""

    def check(value: Any) -> str | None:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        return (
            None
            if is_number and low <= value <= high
            else (f"must be a whole number from {low} to {high}")
        )

    return check


def _one_of(known: tuple[str, ...]) -> Check:
    def check(value: Any) -> str | None:
        return None if value in known else f"must be one of {quoted(known)}"

    return check


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) and value.strip() else "must be a non-empty string"


def _truth(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def _object(value: Any) -> str | None:
    return None if isinstance(value, Mapping) else "must be an object"


def positive(value: Any) -> str | None:
    """Checks for a finite number above 0."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return None if is_number and 0 < value < math.inf else "must be a number greater than 0"


def _stage_layers(value: Any) -> str | None:
    layer = whole_number(0, MAX_DEGREE)
    fine = isinstance(value, (list, tuple)) and all(layer(item) is None for item in value)
    return None if fine else "must be a list of layer counts, one for each pipeline stage"


def _named_or_object(value: Any) -> str | None:
    fine = isinstance(value, Mapping) or _text(value) is None
    return None if fine else "must be a catalog name or an object"


_DEGREE = whole_number(1, MAX_DEGREE)

LAYOUT_FIELDS: Mapping[str, Check] = {
    "tp": _DEGREE,
    "pp": whole_number(1, MAX_STAGES),
    "vpp": _DEGREE,
    "cp": _DEGREE,
    "ep": _DEGREE,
    "dp": _DEGREE,
    "dp_shard": _DEGREE,
    "sharding": _one_of(SHARDINGS),
    "sequence_parallel": _truth,
    "microbatch_size": whole_number(1, MAX_SEQUENCES),
    "recompute": _one_of(RECOMPUTES),
    "precision": _one_of(PRECISIONS),
    "stage_layers": _stage_layers,
}
PIN_FIELDS: Mapping[str, Check] = {
    name: check for name, check in LAYOUT_FIELDS.items() if name != "stage_layers"
}
WORKLOAD_FIELDS: Mapping[str, Check] = {
    "sequence_length": whole_number(1, MAX_TOKENS),
    "global_batch_size": whole_number(1, MAX_SEQUENCES),
    "task": _one_of(TASKS),
    "lora_rank": whole_number(1, 65536),
    "optimizer": _one_of(OPTIMIZERS),
    "offload": _one_of(OFFLOADS),
}
MODEL_FIELDS: Mapping[str, Check] = {"name": _text, "architecture": _object, "hf_config": _object}
FABRIC_FIELDS: Mapping[str, Check] = {"bytes_per_second_per_gpu": positive}
PLAN_FIELDS: Mapping[str, Check] = {
    "model": _named_or_object,
    "gpu": _text,
    "nodes": whole_number(1, MAX_NODES),
    "gpus_per_node": whole_number(1, MAX_GPUS_PER_NODE),
    "fabric": _named_or_object,
    "instance_type": _text,
    "framework": _text,
    "workload": _object,
    "pins": _object,
}
ESTIMATE_FIELDS: Mapping[str, Check] = {**PLAN_FIELDS, "layout": _object}
NESTED_FIELDS: Mapping[str, Mapping[str, Check]] = {
    "model": MODEL_FIELDS,
    "fabric": FABRIC_FIELDS,
    "workload": WORKLOAD_FIELDS,
    "pins": PIN_FIELDS,
    "layout": LAYOUT_FIELDS,
}


def parse_plan_body(body: Any) -> TrainIntent | tuple[FieldError, ...]:
    """The wish a `POST /v1/plan` body states, or everything that is wrong with the body."""
    errors = _errors(body, PLAN_FIELDS)
    return errors or _intent(body)


def parse_estimate_body(body: Any) -> EstimateQuestion | tuple[FieldError, ...]:
    """The wish and the layout a `POST /v1/estimate` body states, or everything wrong with it."""
    errors = _errors(body, ESTIMATE_FIELDS)
    return errors or EstimateQuestion(intent=_intent(body), layout=_given(body.get("layout")))


def _errors(body: Any, table: Mapping[str, Check]) -> tuple[FieldError, ...]:
    if not isinstance(body, Mapping):
        message = f"the request must be a JSON object with the keys {quoted(table)}"
        return (FieldError(path="", value=body, message=message),)
    errors = list(_table_errors(body, table, prefix=""))
    for name, nested in NESTED_FIELDS.items():
        if name in table and isinstance(body.get(name), Mapping):
            errors += _table_errors(body[name], nested, prefix=f"{name}.")
    errors += _model_errors(body)
    if "gpu" not in body and "instance_type" not in body:
        message = "`gpu` must be given (or an `instance_type` that has it)"
        errors.append(FieldError(path="gpu", value=None, message=message))
    return tuple(errors)


def _table_errors(
    document: Mapping[str, Any], table: Mapping[str, Check], *, prefix: str
) -> list[FieldError]:
    errors = []
    for name, check in table.items():
        value = document.get(name)
        if value is not None and (must := check(value)):
            path = f"{prefix}{name}"
            message = f"`{path}` {must}, not {shown(value)}"
            errors.append(FieldError(path=path, value=value, message=message))
    return [*errors, *unknown_keys(document, table, prefix=prefix)]


def _model_errors(body: Mapping[str, Any]) -> list[FieldError]:
    model = body.get("model")
    if model is None:
        message = (
            '`model` must be given: a catalog name, {"architecture": {...}} or {"hf_config": {...}}'
        )
        return [FieldError(path="model", value=None, message=message)]
    if not isinstance(model, Mapping):
        return []
    given = [name for name in ("architecture", "hf_config") if model.get(name) is not None]
    if len(given) == 1:
        return []
    message = "`model` must have exactly one of `architecture` and `hf_config`"
    return [FieldError(path="model", value=model, message=message)]


def _intent(body: Mapping[str, Any]) -> TrainIntent:
    model = body["model"]
    described = model if isinstance(model, Mapping) else {"name": model}
    given = _given({name: body.get(name) for name in _SAME_NAME})
    return TrainIntent(
        model=described.get("name"),
        architecture=described.get("architecture"),
        hf_config=described.get("hf_config"),
        pins=_given(body.get("pins")),
        paths=_PATHS | ({"model": "model.name"} if isinstance(model, Mapping) else {}),
        **given,
        **_given(body.get("workload")),
    )


def _given(document: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields that say something: `null` is the same as absent."""
    return {name: value for name, value in (document or {}).items() if value is not None}


_SAME_NAME = ("gpu", "nodes", "gpus_per_node", "fabric", "instance_type", "framework")
_PATHS: dict[str, str] = {
    "architecture": "model.architecture",
    "hf_config": "model.hf_config",
    **{name: f"workload.{name}" for name in WORKLOAD_FIELDS},
}
