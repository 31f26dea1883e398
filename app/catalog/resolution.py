"""An intent becomes a `PlanRequest`, or every reason why it cannot. Pure: facts in, answer out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.catalog.architectures import ArchitectureDefaults, complete_architecture
from app.catalog.clusters import (
    LinkDefaults,
    Nodes,
    build_cluster,
    network,
)
from app.catalog.huggingface import architecture_from_config
from app.catalog.names import (
    INSTANCE_TYPE_KEY,
    SAME_KEYS,
    GpuIndex,
    NameIndex,
    ResolvedGpu,
    Unknown,
    share_of,
)
from app.catalog.profiles import Efficiencies
from app.catalog.reading import Fields, quoted, shown
from app.catalog.records import Fabric, GpuEntry, Instance, ModelEntry
from app.catalog.workloads import (
    Scale,
    WorkloadDefaults,
    complete_workload,
    read_pins,
    read_workload,
)
from app.planner.architecture import ModelArchitecture
from app.planner.framework import FrameworkProfile
from app.planner.hardware import MAX_GPUS_PER_NODE, MAX_NODES, Cluster, Precision
from app.planner.intent import FieldError, TrainIntent, Unresolved
from app.planner.request import PlanRequest

MAX_NAME: Final = 253
"""Characters of a model's name: what Kubernetes allows a name. Plans keep it, so it is bounded."""

DEFAULT_FRAMEWORK: Final = "fsdp"
SAME_COUNT: Final = 0.15
"""A stated parameter count this near to a catalog model's is a rounding of it (1.3 B for 1.24)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that resolving needs, by name and with its indexes."""

    version: str
    models: Mapping[str, ModelEntry]
    gpus: Mapping[str, GpuEntry]
    fabrics: Mapping[str, Fabric]
    instances: Mapping[str, Instance]
    frameworks: Mapping[str, FrameworkProfile]
    efficiencies: Efficiencies
    model_names: NameIndex
    fabric_names: NameIndex
    instance_names: NameIndex
    framework_names: NameIndex
    gpu_index: GpuIndex
    links: LinkDefaults
    workload: WorkloadDefaults
    architecture: ArchitectureDefaults


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedModel:
    """A model with its size and the sequence length it is usually trained at."""

    model: ModelArchitecture
    params: int
    sequence_length: int
    assumptions: tuple[str, ...] = ()


def resolve(
    facts: Facts, intent: TrainIntent, *, allowed_precisions: tuple[Precision, ...]
) -> PlanRequest | Unresolved:
    """The planner's question that `intent` asks, or all its errors at the paths of its author."""
    errors: list[FieldError] = []
    model = resolve_model(facts, intent, errors)
    placed = _cluster(facts, intent, errors)
    framework = _framework(facts, intent, errors)
    stated = read_workload(intent, errors)
    pins = read_pins(intent.pins, errors)
    if errors or model is None or placed is None or framework is None:
        return Unresolved(errors=tuple(_at_author(error, intent.paths) for error in errors))
    cluster, said, part = placed
    assumptions = [*model.assumptions, *said]
    scale = Scale(
        params=model.params,
        sequence_length=model.sequence_length,
        max_sequence_length=model.model.max_sequence_length,
        world_size=cluster.world_size,
    )
    workload = complete_workload(
        intent, scale, stated=stated, defaults=facts.workload, said=assumptions
    )
    return PlanRequest(
        model=model.model,
        cluster=cluster,
        framework=framework,
        efficiency=facts.efficiencies[framework.efficiency][part],
        workload=workload,
        pins=pins,
        allowed_precisions=allowed_precisions,
        assumptions=tuple(assumptions),
        catalog_version=facts.version,
    )


def _at_author(error: FieldError, paths: Mapping[str, str]) -> FieldError:
    """The error with the path its author wrote: the longest known one that leads to it."""
    known, rest = error.path, ""
    while known:
        if known in paths:
            return FieldError(path=paths[known] + rest, value=error.value, message=error.message)
        known, dot, last = known.rpartition(".")
        rest = f"{dot}{last}{rest}"
    return error


def resolve_model(
    facts: Facts, intent: TrainIntent, errors: list[FieldError]
) -> ResolvedModel | None:
    """The model of an intent: by name, by its own config, or by a mapping of sizes."""
    if intent.hf_config is not None and intent.architecture is not None:
        message = "only one of `architecture` and `hf_config` must be given"
        errors.append(FieldError(path="architecture", value=None, message=message))
        return None
    if intent.model is not None and not isinstance(intent.model, str):
        message = f"`model` must be a name, not {shown(intent.model)}"
        errors.append(FieldError(path="model", value=intent.model, message=message))
        return None
    if intent.model is not None and len(intent.model) > MAX_NAME:
        message = f"`model` must have at most {MAX_NAME} characters, not {len(intent.model)}"
        errors.append(FieldError(path="model", value=intent.model[:MAX_NAME], message=message))
        return None
    if intent.hf_config is not None:
        read = architecture_from_config(intent.hf_config, intent.model or "custom")
        if isinstance(read, ModelArchitecture):
            return _custom(facts, read, ())
        errors += read
        return None
    if intent.architecture is not None:
        return _described(facts, intent, errors)
    return _named_model(facts, intent.model, errors)


def _custom(facts: Facts, model: ModelArchitecture, said: tuple[str, ...]) -> ResolvedModel:
    """A model that is not in the catalog, at the default length or its own if that is shorter."""
    usual, most = facts.workload.sequence_length, model.max_sequence_length
    length = min(usual, most) if most else usual
    return ResolvedModel(model=model, params=model.params, sequence_length=length, assumptions=said)


def _entry(entry: ModelEntry, said: tuple[str, ...] = ()) -> ResolvedModel:
    return ResolvedModel(
        model=entry.model,
        params=entry.params,
        sequence_length=entry.sequence_length,
        assumptions=said,
    )


def _named_model(facts: Facts, name: str | None, errors: list[FieldError]) -> ResolvedModel | None:
    if not name or not name.strip():
        message = "`model` must be given: a catalog name, an `architecture` or an `hf_config`"
        errors.append(FieldError(path="model", value=name, message=message))
        return None
    found = facts.model_names.find(name)
    if found is not None:
        return _entry(facts.models[found])
    unknown = facts.model_names.unknown(name)
    message = f"`model` {unknown.message}; a model of your own needs its sizes"
    errors.append(FieldError(path="model", value=name, message=message))
    return None


def _described(facts: Facts, intent: TrainIntent, errors: list[FieldError]) -> ResolvedModel | None:
    """The stated sizes; where they are those of the catalog's model of that name, that model."""
    shape: Any = intent.architecture
    name = intent.model or (shape.get("name") if isinstance(shape, Mapping) else None)
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME:
        name = "custom"
    known = facts.model_names.find(name)
    if known is not None and isinstance(shape, Mapping) and _agrees(facts.models[known], shape):
        said = f"{known} of the catalog: the stated sizes are its own"
        return _entry(facts.models[known], (said,))
    completed = complete_architecture(shape, name=name, defaults=facts.architecture)
    if isinstance(completed, tuple):
        errors += completed
        return None
    return _custom(facts, completed.model, completed.assumptions)


def _agrees(entry: ModelEntry, shape: Mapping[str, Any]) -> bool:
    """Whether every stated size is the entry's, the parameter count up to rounding."""
    for key, value in shape.items():
        if value is None or key == "name":
            continue
        if key == "params":
            close = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not close or not abs(value - entry.params) <= SAME_COUNT * entry.params:
                return False
        elif key not in _PLAIN_SIZES or getattr(entry.model, key) != value:
            return False
    return True


_PLAIN_SIZES: Final = frozenset(
    {"hidden_size", "ffn_hidden_size", "num_layers", "num_heads", "num_kv_heads", "head_dim"}
    | {"vocab_size", "gated_mlp", "tied_embeddings", "max_sequence_length"}
)
"""Sizes that a description and an entry can be compared by."""


def _framework(
    facts: Facts, intent: TrainIntent, errors: list[FieldError]
) -> FrameworkProfile | None:
    name = DEFAULT_FRAMEWORK if intent.framework is None else intent.framework
    found = facts.framework_names.find(name) if isinstance(name, str) else None
    if found is not None:
        return facts.frameworks[found]
    message = f"`framework` must be one of {quoted(facts.frameworks)}, not {shown(name)}"
    errors.append(FieldError(path="framework", value=name, message=message))
    return None


Placed = tuple[Cluster, tuple[str, ...], str]
"""A cluster, what was assumed of it, and the name of the whole part its GPUs are."""


def _cluster(facts: Facts, intent: TrainIntent, errors: list[FieldError]) -> Placed | None:
    before = len(errors)
    stated = {"nodes": intent.nodes, "gpus_per_node": intent.gpus_per_node}
    fields = Fields(stated, path="")
    count = fields.whole("nodes", high=MAX_NODES)
    per_node = fields.whole("gpus_per_node", high=MAX_GPUS_PER_NODE)
    errors += fields.errors
    machine = _instance(facts, intent, errors)
    gpu = _gpu(facts, intent, machine, errors)
    if gpu is None:
        return None
    if machine is not None:
        gpu = _checked_machine(machine, gpu, per_node, errors)
    nodes = Nodes(nodes=count, gpus_per_node=per_node, instance=machine)
    outside = network(
        intent.fabric,
        nodes,
        gpu,
        fabrics=facts.fabrics,
        names=facts.fabric_names,
        defaults=facts.links,
    )
    if isinstance(outside, FieldError):
        errors.append(outside)
        return None
    if len(errors) > before:
        return None
    cluster, said = build_cluster(gpu, nodes, outside, facts.links)
    return cluster, said, gpu.entry.gpu.name


def _instance(facts: Facts, intent: TrainIntent, errors: list[FieldError]) -> Instance | None:
    """The machine type the intent names, or its node labels do if it is a known one."""
    name = intent.instance_type
    if name is not None:
        found = facts.instance_names.find(name) if isinstance(name, str) else None
        if found is not None:
            return facts.instances[found]
        why = facts.instance_names.unknown(name).message if isinstance(name, str) else "is no name"
        message = f"`instance_type` {why}"
        errors.append(FieldError(path="instance_type", value=name, message=message))
        return None
    for key, value in intent.node_labels.items():
        if SAME_KEYS.get(key, key) in _MACHINE_KEYS and value in facts.instances:
            return facts.instances[value]
    return None


_MACHINE_KEYS: Final = frozenset({INSTANCE_TYPE_KEY, "node.coreweave.cloud/type"})
"""Label keys whose values are machine types."""


def _gpu(
    facts: Facts, intent: TrainIntent, machine: Instance | None, errors: list[FieldError]
) -> ResolvedGpu | None:
    """The one GPU that name, labels and machine type agree on."""
    index = facts.gpu_index
    said: list[ResolvedGpu | Unknown] = []
    if intent.gpu is not None:
        named = index.find(intent.gpu) if isinstance(intent.gpu, str) else Unknown(name="gpu")
        if isinstance(named, Unknown) and not named.ambiguous:
            _no_gpu(named, intent.gpu, "gpu", errors)
            return None
        said.append(named)
    by_labels = index.of_labels(intent.node_labels) if intent.node_labels else None
    if by_labels is not None:
        said.append(by_labels)
    if machine is not None and intent.instance_type is not None:
        said.append(index.find(machine.gpu))
    path = "gpu" if intent.gpu is not None or by_labels is None else "node_labels"
    if not said:
        if intent.instance_type is None:
            message = "`gpu` must be given: a catalog name or a node label that names it"
            errors.append(FieldError(path="gpu", value=None, message=message))
        return None
    found = index.agreed(said) if len(said) > 1 else said[0]
    if isinstance(found, ResolvedGpu):
        return found
    _no_gpu(found, intent.gpu, path, errors)
    return None


def _no_gpu(unknown: Unknown, value: Any, path: str, errors: list[FieldError]) -> None:
    message = f"`gpu` {unknown.message}"
    errors.append(FieldError(path=path, value=value or unknown.name, message=message))


def _checked_machine(
    machine: Instance, gpu: ResolvedGpu, per_node: int, errors: list[FieldError]
) -> ResolvedGpu:
    """The GPU as the machine has it; asking for more GPUs than it has is an error."""
    most = max(1, int(machine.gpus_per_node))
    if per_node > most:
        message = f"`gpus_per_node` must be less than or equal to {most}, what {machine.name} has"
        errors.append(FieldError(path="gpus_per_node", value=per_node, message=message))
    if machine.gpus_per_node >= 1:
        return gpu
    share, whole = machine.gpus_per_node, gpu.entry.gpu
    part = share_of(
        whole,
        name=f"{whole.name}-share",
        compute=share,
        memory_bytes=int(whole.memory_bytes * share),
    )
    return ResolvedGpu(gpu=part, entry=gpu.entry, exclusive=False, note="a share of a GPU")
