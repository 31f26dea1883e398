"""What a Kubeflow TrainJob shows of itself: nodes, GPUs, node labels, pods, environment.

Where a fact may stand depends on the Trainer release: node selectors in `podSpecOverrides` (2.0),
`podTemplateOverrides` (2.1) or `runtimePatches` (2.2 and later). All three are read, since only one
exists in any release. What only the runtime says is `None` unless the runtime was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.planner.intent import FieldError
from app.trainjobs.adapter import Job
from app.trainjobs.document import mapping_at, texts_at, words_at
from app.trainjobs.kubeflow import names
from app.trainjobs.kubeflow.reading import mappings, positive_integer, text
from app.trainjobs.kubeflow.runtimes import DEFAULT_TARGET, RuntimeFacts

REQUIRED_AFFINITY = (
    "affinity",
    "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
)
PATCHED_JOBS = ("trainingRuntimeSpec", "template", "spec")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One item of `spec.trainer.env`. `value` is `None` for a `valueFrom`."""

    index: int
    name: str
    value: str | None

    @property
    def path(self) -> str:
        """Where the value stands."""
        return f"spec.trainer.env[{self.index}].value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """The pods that train, as far as the job (and its runtime) says."""

    node_labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    claims: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCount:
    """GPUs of one node as `resources` count them: `None` if they do not.

    `sharers` are resources that look like GPUs and are not whole ones; with them a count is not
    certain. Trainer takes any name with "gpu" in it, in random order (pkg/runtime/runtime.go).
    """

    count: int | None = None
    sharers: tuple[str, ...] = ()
    errors: tuple[FieldError, ...] = ()


def trainer_of(job: Job) -> Mapping[str, Any]:
    """`spec.trainer`, empty if absent."""
    return mapping_at(job, "spec", "trainer")


def variables(job: Job) -> tuple[Variable, ...]:
    """The items of `spec.trainer.env` that have a name."""
    listed = trainer_of(job).get("env")
    items = enumerate(listed) if isinstance(listed, list) else ()
    return tuple(_variable(index, item) for index, item in items if _is_named(item))


def _is_named(item: Any) -> bool:
    return isinstance(item, Mapping) and isinstance(item.get("name"), str)


def _variable(index: int, item: Mapping[str, Any]) -> Variable:
    value = None if item.get("valueFrom") else text(item.get("value"))
    return Variable(index=index, name=item["name"], value=value)


def gpu_count(resources: Mapping[str, Any], path: str) -> GpuCount:
    """Whole GPUs in `resources`, a ResourceRequirements at `path`."""
    limits, requests = mapping_at(resources, "limits"), mapping_at(resources, "requests")
    keys = sorted({key for key in (*limits, *requests) if isinstance(key, str)})
    exact = [key for key in keys if key in names.TRAINER_GPU_RESOURCES]
    sharers = tuple(key for key in keys if key not in exact and _looks_like_gpu(key))
    counts: set[int] = set()
    errors: list[FieldError] = []
    for key in exact:
        for side, stated in (("limits", limits), ("requests", requests)):
            if key in stated:
                _count(stated[key], f"{path}.{side}[{key}]", counts, errors)
    if len(counts) > 1:
        errors.append(_disagreement(path, sorted(counts)))
    certain = len(counts) == 1 and not errors
    return GpuCount(
        count=next(iter(counts)) if certain else None, sharers=sharers, errors=tuple(errors)
    )


def _looks_like_gpu(key: str) -> bool:
    return "gpu" in key.lower() or key.startswith("nvidia.com/mig-")


def _count(value: Any, path: str, counts: set[int], errors: list[FieldError]) -> None:
    if value in (0, "0") and not isinstance(value, bool):
        return
    number = positive_integer(value)
    if number is None:
        message = "must be a whole number of GPUs"
        errors.append(FieldError(path=path, value=value, message=message))
    else:
        counts.add(number)


def _disagreement(path: str, counts: list[int]) -> FieldError:
    return FieldError(
        path=path,
        value=counts,
        message="must name one number of GPUs: limits and requests must be equal, of one vendor",
    )


def network_resources(*requirements: Mapping[str, Any]) -> dict[str, str]:
    """Extended resources and their counts, the last requirement first to speak."""
    merged: dict[str, str] = {}
    for each in requirements:
        for side in ("requests", "limits"):
            stated = mapping_at(each, side).items()
            merged.update(
                {
                    key: str(value)
                    for key, value in stated
                    if isinstance(key, str) and "/" in key and isinstance(value, str | int | float)
                }
            )
    return merged


def pods_of(job: Job, runtime: RuntimeFacts | None) -> Pods:
    """The pods that train. The runtime speaks first; the job's later entries win."""
    targets = runtime.targets if runtime else frozenset({DEFAULT_TARGET})
    templates = [runtime.pod_template] if runtime else []
    templates += _override_templates(mapping_at(job, "spec"), targets)
    specs = [mapping_at(template, "spec") for template in templates]
    annotations: dict[str, str] = {}
    for template in templates:
        annotations.update(texts_at(template, "metadata", "annotations"))
    return Pods(
        node_labels=_node_labels(specs),
        annotations=annotations,
        claims=tuple(dict.fromkeys(name for spec in specs for name in _claims(spec))),
        containers=tuple(dict.fromkeys(name for spec in specs for name in _containers(spec))),
    )


def _override_templates(
    spec: Mapping[str, Any], targets: frozenset[str]
) -> list[Mapping[str, Any]]:
    flat = [{"spec": entry} for entry in _targeted(spec.get("podSpecOverrides"), targets)]
    return [
        *flat,
        *_targeted(spec.get("podTemplateOverrides"), targets),
        *_patched(spec.get("runtimePatches"), targets),
    ]


def _targeted(entries: Any, targets: frozenset[str]) -> list[Mapping[str, Any]]:
    return [
        entry
        for entry in mappings(entries)
        if any(text(target.get("name")) in targets for target in mappings(entry.get("targetJobs")))
    ]


def _patched(entries: Any, targets: frozenset[str]) -> list[Mapping[str, Any]]:
    return [
        mapping_at(job, "template", "spec", "template")
        for entry in mappings(entries)
        for job in mappings(mapping_at(entry, *PATCHED_JOBS).get("replicatedJobs"))
        if text(job.get("name")) in targets
    ]


def _node_labels(specs: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Labels every candidate node must carry: selectors, and affinities with one possible value.

    Selectors merge by key; a list of affinity terms replaces the earlier one, as a strategic merge
    does.
    """
    selected: dict[str, str] = {}
    required: dict[str, str] = {}
    for spec in specs:
        selected.update(texts_at(spec, "nodeSelector"))
        terms = mapping_at(spec, *REQUIRED_AFFINITY).get("nodeSelectorTerms")
        if isinstance(terms, list):
            required = _single_values(mappings(terms))
    return {**required, **selected}


def _single_values(terms: list[Mapping[str, Any]]) -> dict[str, str]:
    """What all of the alternative `terms` agree on. Terms are alternatives, expressions add up."""
    alternatives = [_expressions(term) for term in terms]
    first, rest = (alternatives[0], alternatives[1:]) if alternatives else ({}, [])
    return {
        key: value for key, value in first.items() if all(term.get(key) == value for term in rest)
    }


def _expressions(term: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for expression in mappings(term.get("matchExpressions")):
        values = words_at(expression, "values")
        if expression.get("operator") == "In" and len(values) == 1:
            found[text(expression.get("key"))] = values[0]
    return found


def _claims(spec: Mapping[str, Any]) -> list[str]:
    claims = mappings(spec.get("resourceClaims"))
    keys = ("resourceClaimTemplateName", "resourceClaimName", "name")
    return [text(claim.get(key)) for claim in claims for key in keys if text(claim.get(key))]


def _containers(spec: Mapping[str, Any]) -> list[str]:
    listed = (*mappings(spec.get("containers")), *mappings(spec.get("initContainers")))
    found = (text(container.get("name")) for container in listed)
    return [name for name in found if name and name != DEFAULT_TARGET]
