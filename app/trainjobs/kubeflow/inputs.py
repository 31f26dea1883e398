"""Annotations of a Kubeflow TrainJob -> the facts of a `TrainIntent`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.planner.framework import MAX_LORA_RANK, OFFLOADS, OPTIMIZERS, TASKS
from app.planner.intent import FieldError
from app.trainjobs import labels
from app.trainjobs.kubeflow import names
from app.trainjobs.kubeflow.contract import DEFAULT_LAUNCHER, LAUNCHERS, Launcher
from app.trainjobs.kubeflow.reading import positive_integer

MODEL_KEYS = (names.MODEL, names.ARCHITECTURE, names.HF_CONFIG)
PIN_FIELDS = (
    "tp", "pp", "vpp", "cp", "ep", "dp", "dp_shard", "sharding", "sequence_parallel",
    "microbatch_size", "recompute", "precision",
)  # fmt: skip


class Wrong(ValueError):  # noqa: N818 - says what the annotation is
    """An annotation that cannot be read; the message says what would be right."""


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise Wrong("must be a string")
    return value


def _text(value: str) -> str:
    stripped = value.strip()
    if not stripped:
        raise Wrong("must not be empty")
    return stripped


def _positive(value: str) -> int:
    number = positive_integer(value.strip())
    if number is None:
        raise Wrong("must be a whole number of at least 1, in digits")
    return number


def _rank(value: str) -> int:
    number = positive_integer(value.strip())
    if number is None or number > MAX_LORA_RANK:
        raise Wrong(f"must be a whole number from 1 to {MAX_LORA_RANK}")
    return number


def _one_of(known: tuple[str, ...]) -> Callable[[str], str]:
    def read(value: str) -> str:
        text = _text(value)
        if text not in known:
            raise Wrong(f"must be one of {', '.join(known)}")
        return text

    return read


def _object(value: str) -> Mapping[str, Any]:
    try:
        document = orjson.loads(value)
    except (ValueError, RecursionError):
        raise Wrong("must be a JSON object") from None
    if not isinstance(document, dict):
        raise Wrong("must be a JSON object")
    return document


def _fabric(value: str) -> str | Mapping[str, Any]:
    return _object(value) if value.lstrip().startswith("{") else _text(value)


def _pins(value: str) -> Mapping[str, Any]:
    pins = _object(value)
    strange = sorted(set(pins) - set(PIN_FIELDS))
    if strange:
        raise Wrong(f"has no field {', '.join(strange)}; it can fix {', '.join(PIN_FIELDS)}")
    return pins


def _launcher(value: str) -> str:
    name = _text(value).lower()
    if name not in LAUNCHERS:
        raise Wrong(f"must be one of {', '.join(LAUNCHERS)}")
    return name


@dataclass(frozen=True, slots=True)
class Input:
    """One annotation: its key, the field of `TrainIntent` it fills, and how it is read."""

    key: str
    field: str
    read: Callable[[str], Any]


INPUTS: tuple[Input, ...] = (
    Input(names.MODEL, "model", _text),
    Input(names.ARCHITECTURE, "architecture", _object),
    Input(names.HF_CONFIG, "hf_config", _object),
    Input(names.GPU, "gpu", _text),
    Input(names.NODES, "nodes", _positive),
    Input(names.GPUS_PER_NODE, "gpus_per_node", _positive),
    Input(names.INSTANCE_TYPE, "instance_type", _text),
    Input(names.LAUNCHER, "launcher", _launcher),
    Input(labels.SEQUENCE_LENGTH, "sequence_length", _positive),
    Input(labels.GLOBAL_BATCH_SIZE, "global_batch_size", _positive),
    Input(labels.TASK, "task", _one_of(TASKS)),
    Input(labels.LORA_RANK, "lora_rank", _rank),
    Input(labels.OPTIMIZER, "optimizer", _one_of(OPTIMIZERS)),
    Input(labels.OFFLOAD, "offload", _one_of(OFFLOADS)),
    Input(labels.FRAMEWORK, "framework", _text),
    Input(labels.FABRIC, "fabric", _fabric),
    Input(labels.PINS, "pins", _pins),
)

READ: tuple[str, ...] = tuple(each.key for each in INPUTS)
"""Annotations a Kubeflow TrainJob is asked by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What the annotations say, field by field of `TrainIntent`, plus `launcher`."""

    values: Mapping[str, Any] = field(default_factory=dict)
    paths: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[FieldError, ...] = ()

    @property
    def launcher(self) -> Launcher:
        """The launcher that was named, else one that asks for nothing special."""
        return LAUNCHERS.get(self.values.get("launcher", ""), DEFAULT_LAUNCHER)


def read_inputs(annotations: Mapping[str, Any]) -> Inputs:
    """Our annotations, all of their errors collected."""
    values: dict[str, Any] = {}
    paths: dict[str, str] = {}
    errors: list[FieldError] = []
    for each in INPUTS:
        stated = annotations.get(each.key)
        if stated is None:
            continue
        path = names.annotation_path(each.key)
        try:
            values[each.field] = each.read(_string(stated))
        except Wrong as wrong:
            errors.append(FieldError(path=path, value=stated, message=str(wrong)))
        else:
            paths[each.field] = path
    errors.extend(_two_models(values, paths))
    return Inputs(values=values, paths=paths, errors=tuple(errors))


def _two_models(values: Mapping[str, Any], paths: Mapping[str, str]) -> list[FieldError]:
    """A model is named or described once; an architecture may carry a name beside it."""
    if "hf_config" not in values:
        return []
    second = [each for each in ("model", "architecture") if each in values]
    message = f"must stand alone; {names.HF_CONFIG} describes the model already"
    return [FieldError(path=paths[each], value=values[each], message=message) for each in second]
