"""TrainJobs against the schema of each Trainer release, in closed mode: no unknown field passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

CRDS = Path(__file__).parents[1] / "data" / "kubeflow" / "crds"
RELEASES = ("2.0", "2.1", "2.2", "2.3")


def problems(stored: Mapping[str, Any], release: str) -> list[str]:
    """What the release's schema says against `stored`, metadata aside."""
    document = {key: value for key, value in stored.items() if key != "metadata"}
    found = [
        f"{'.'.join(map(str, each.absolute_path))}: {each.message}"
        for each in _validator(release).iter_errors(document)
    ]
    return [*found, *_duplicates(document, _schema(release), "")]


@cache
def _schema(release: str) -> dict[str, Any]:
    document = yaml.safe_load((CRDS / f"{release}.yaml").read_text())
    (version,) = document["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]


@cache
def _validator(release: str) -> Draft202012Validator:
    return Draft202012Validator(_closed(_schema(release)))


def _closed(schema: Any) -> Any:
    """The schema as JSON Schema: unknown fields refused, Kubernetes' own types spelled out."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    closed = {key: _closed_keyword(key, value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        closed.pop("type", None)
        closed["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        closed["additionalProperties"] = False
    return closed


def _closed_keyword(key: str, value: Any) -> Any:
    if key == "properties":
        return {name: _closed(each) for name, each in value.items()}
    return _closed(value) if key in {"items", "additionalProperties", "anyOf", "allOf"} else value


def _duplicates(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Items of a keyed list that share their key."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            inner = schema.get("properties", {}).get(name)
            if inner:
                yield from _duplicates(each, inner, f"{path}.{name}")
    elif isinstance(value, list):
        keys = schema.get("x-kubernetes-list-map-keys", [])
        seen = [tuple(each.get(key) for key in keys) for each in value] if keys else []
        yield from (f"{path}: duplicate {key}" for key in set(seen) if seen.count(key) > 1)
        for index, each in enumerate(value):
            yield from _duplicates(each, schema.get("items", {}), f"{path}[{index}]")


def without_zero_values(value: Any) -> Any:
    """`value` as a typed client with Go's `omitempty` writes it back.

    Kueue up to 0.19 does so when it unsuspends; whatever it drops breaks `self == oldSelf`
    (kubeflow/trainer#3888).
    """
    if isinstance(value, Mapping):
        kept = {key: without_zero_values(each) for key, each in value.items()}
        return {key: each for key, each in kept.items() if each not in ("", None, [], {})}
    return [without_zero_values(each) for each in value] if isinstance(value, list) else value
