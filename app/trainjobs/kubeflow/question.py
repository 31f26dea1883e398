"""A Kubeflow TrainJob read whole: what it asks, what it hides, what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.planner.intent import FieldError, TrainIntent
from app.planner.wording import counted
from app.trainjobs import labels
from app.trainjobs.adapter import Job
from app.trainjobs.document import mapping_at, texts_at, words_at
from app.trainjobs.kept import recorded_variables
from app.trainjobs.kubeflow import names
from app.trainjobs.kubeflow.contract import Launcher, Stated, mentions, stated_by
from app.trainjobs.kubeflow.inputs import MODEL_KEYS, PIN_FIELDS, Inputs, read_inputs
from app.trainjobs.kubeflow.reading import positive_integer, text
from app.trainjobs.kubeflow.runtimes import RuntimeFacts
from app.trainjobs.kubeflow.shown import (
    GpuCount,
    Pods,
    Variable,
    gpu_count,
    network_resources,
    pods_of,
    trainer_of,
    variables,
)
from app.trainjobs.plan_json import read_plan_json

NODES_PATH = "spec.trainer.numNodes"
ENV_PATH = "spec.trainer.env"
RESOURCES_PATH = "spec.trainer.resourcesPerNode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One opted-in job. Counts are `None` where neither the job nor its runtime says them.

    `theirs` are the variables its author set, `ours` those an earlier answer of ours put there and
    that still have our value. `stated` is what the author's variables fix.
    """

    annotations: Mapping[str, Any]
    inputs: Inputs
    nodes: int | None
    gpus_per_node: int | None
    gpus: GpuCount
    pods: Pods
    resources: Mapping[str, str]
    theirs: tuple[Variable, ...]
    ours: Mapping[str, Variable]
    stated: Stated
    command: str
    errors: tuple[FieldError, ...] = ()
    runtime: RuntimeFacts | None = field(default=None)

    @property
    def launcher(self) -> Launcher:
        """What starts the workers."""
        return self.inputs.launcher

    @property
    def author_env(self) -> dict[str, str]:
        """The author's variables; "" for a `valueFrom`."""
        return {each.name: each.value or "" for each in self.theirs}

    @property
    def certain_gpus(self) -> bool:
        """Whether the number of processes of a node follows from what is known."""
        return self.gpus_per_node is not None and not self.gpus.sharers


def is_opted_in(job: Job) -> bool:
    """Whether the job asks for a plan: by a label, since webhook selectors see labels only."""
    return labels_of(job).get(names.OPT_IN_LABEL) == names.OPTED_IN


def read_question(job: Job, runtime: RuntimeFacts | None) -> Question:
    """`job` read whole, all of its errors collected."""
    annotations = mapping_at(job, "metadata", "annotations")
    inputs = read_inputs(annotations)
    trainer = trainer_of(job)
    recorded = recorded_variables(text(annotations.get(labels.ENVIRONMENT)))
    listed = variables(job)
    valued = (each for each in listed if each.value)
    ours = {each.name: each for each in valued if recorded.get(each.name) == each.value}
    theirs = tuple(each for each in listed if ours.get(each.name) is not each)
    stated = stated_by(theirs, inputs.launcher)
    job_gpus = gpu_count(mapping_at(trainer, "resourcesPerNode"), RESOURCES_PATH)
    runtime_resources = runtime.resources if runtime else {}
    gpus = _with_runtime(job_gpus, gpu_count(runtime_resources, "runtime resources"))
    nodes, node_errors = _nodes(trainer, inputs, runtime)
    count, count_errors = _gpus_per_node(inputs, gpus)
    return Question(
        annotations=annotations,
        inputs=inputs,
        nodes=nodes,
        gpus_per_node=count,
        gpus=gpus,
        pods=pods_of(job, runtime),
        resources=network_resources(runtime_resources, mapping_at(trainer, "resourcesPerNode")),
        theirs=theirs,
        ours=ours,
        stated=stated,
        command=" ".join([*words_at(trainer, "command"), *words_at(trainer, "args")]),
        errors=(
            *inputs.errors,
            *node_errors,
            *gpus.errors,
            *count_errors,
            *stated.errors,
            *_contradictions(inputs, stated),
        ),
        runtime=runtime,
    )


def recorded_plan(annotations: Mapping[str, Any]) -> Mapping[str, Any]:
    """The plan an earlier answer of ours recorded; empty for anything else."""
    return read_plan_json(text(annotations.get(labels.PLAN_RESULT)))


def _with_runtime(job: GpuCount, runtime: GpuCount) -> GpuCount:
    """A pod has the runtime's resources and the job's over them: who counts GPUs last wins."""
    if job.count is not None or job.errors or job.sharers:
        return job
    return GpuCount(count=runtime.count, sharers=runtime.sharers)


def _nodes(
    trainer: Mapping[str, Any], inputs: Inputs, runtime: RuntimeFacts | None
) -> tuple[int | None, list[FieldError]]:
    stated, said = trainer.get("numNodes"), inputs.values.get("nodes")
    if stated is None:
        return said or (runtime.nodes if runtime else None), []
    nodes = positive_integer(stated)
    if nodes is None:
        message = "must be a whole number of at least 1"
        return None, [FieldError(path=NODES_PATH, value=stated, message=message)]
    if said is not None and said != nodes:
        message = f"must equal {NODES_PATH}, which says {nodes}"
        return nodes, [FieldError(path=inputs.paths["nodes"], value=said, message=message)]
    return nodes, []


def _gpus_per_node(inputs: Inputs, gpus: GpuCount) -> tuple[int | None, list[FieldError]]:
    said = inputs.values.get("gpus_per_node")
    if said is None:
        return gpus.count, []
    if gpus.count is not None and gpus.count != said:
        message = f"must equal the {counted(gpus.count, 'GPU')} that the job's resources ask for"
        path = inputs.paths["gpus_per_node"]
        return said, [FieldError(path=path, value=said, message=message)]
    return said, []


def _contradictions(inputs: Inputs, stated: Stated) -> Iterator[FieldError]:
    """What an annotation and a variable say differently: the workers would follow the variable."""
    pins = mapping_at(inputs.values, "pins")
    for name, value in stated.fields.items():
        if name in pins and pins[name] != value:
            where = f"{names.annotation_path(labels.PINS)}, which says {pins[name]}"
            yield _contradiction(stated.paths[name], value, where)
    for name, number in stated.workload.items():
        if inputs.values.get(name, number) != number:
            where = f"{inputs.paths[name]}, which says {inputs.values[name]}"
            yield _contradiction(stated.paths[name], number, where)


def _contradiction(path: str, value: Any, where: str) -> FieldError:
    return FieldError(path=path, value=value, message=f"disagrees with {where}")


def unknowns(question: Question) -> tuple[str, ...]:
    """What no one said and only the runtime may know: each with what would settle it."""
    values, pods = question.inputs.values, question.pods
    found = []
    if not any(key in question.annotations for key in MODEL_KEYS):
        found.append(f"no plan: the model is not named; set the annotation {names.MODEL}")
    if question.nodes is None:
        found.append(
            f"no plan: only the runtime knows the nodes; set {NODES_PATH} "
            f"or the annotation {names.NODES}"
        )
    if question.gpus_per_node is None:
        found.append(
            "no plan: only the runtime knows the GPUs per node; "
            f"set the annotation {names.GPUS_PER_NODE}"
        )
    stated = values.get("gpu") or values.get("instance_type")
    if not stated and not names.names_hardware(pods.node_labels):
        found.append(
            f"no plan: only the runtime knows the GPU type; set the annotation {names.GPU}"
        )
    return tuple(found)


def intent_of(question: Question, *, pins: Mapping[str, Any]) -> TrainIntent:
    """The question as a `TrainIntent`, for a job whose counts are known."""
    values = dict(question.inputs.values)
    for other in ("launcher", "pins", "nodes", "gpus_per_node"):
        values.pop(other, None)
    if question.launcher.framework:
        values.setdefault("framework", question.launcher.framework)
    values.update(question.stated.workload)
    where = dict(question.stated.paths)
    where.update({f"pins.{name}": path for name, path in question.stated.paths.items()})
    return TrainIntent(
        **values,
        node_labels=question.pods.node_labels,
        nodes=question.nodes or 1,
        gpus_per_node=question.gpus_per_node or 1,
        pins=pins,
        paths={**_default_paths(), **where, **question.inputs.paths},
    )


def _default_paths() -> dict[str, str]:
    return {
        "model": names.annotation_path(names.MODEL),
        "gpu": names.annotation_path(names.GPU),
        "task": names.annotation_path(labels.TASK),
        "lora_rank": names.annotation_path(labels.LORA_RANK),
        "optimizer": names.annotation_path(labels.OPTIMIZER),
        "offload": names.annotation_path(labels.OFFLOAD),
        "framework": names.annotation_path(labels.FRAMEWORK),
        "fabric": names.annotation_path(labels.FABRIC),
        "sequence_length": names.annotation_path(labels.SEQUENCE_LENGTH),
        "global_batch_size": names.annotation_path(labels.GLOBAL_BATCH_SIZE),
        "pins": names.annotation_path(labels.PINS),
        "node_labels": "node labels of the training pods",
        "nodes": NODES_PATH,
        "gpus_per_node": RESOURCES_PATH,
    }


def layout_paths(question: Question, stated: Stated) -> dict[str, str]:
    """Where each layout field stands: in its variable, in the pins, or where it could stand."""
    pins = dict.fromkeys(
        mapping_at(question.inputs.values, "pins"), names.annotation_path(labels.PINS)
    )
    return {**dict.fromkeys(PIN_FIELDS, ENV_PATH), **pins, **stated.paths}


def pins_of(question: Question) -> dict[str, Any]:
    """Layout fields that are fixed: by the author, or because the launcher cannot express more.

    Virtual stages reach the workers only through `VPP_DEGREE`, so a job that does not mention it
    gets none.
    """
    pins: dict[str, Any] = dict(question.launcher.pins)
    if not mentions(question.command, "VPP_DEGREE"):
        pins["vpp"] = 1
    pins.update(mapping_at(question.inputs.values, "pins"))
    pins.update(question.stated.fields)
    return pins


def labels_of(job: Job) -> dict[str, str]:
    """The job's labels."""
    return texts_at(job, "metadata", "labels")


def sentence_list(items: Iterable[str]) -> str:
    """`items` in one phrase, cut after a few."""
    listed = list(items)
    shown = ", ".join(listed[:SHOWN])
    return shown if len(listed) <= SHOWN else f"{shown} and {len(listed) - SHOWN} more"


SHOWN = 3
