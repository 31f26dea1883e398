"""What the author of a Kubeflow TrainJob should know, and may well have meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from app.planner.wording import counted
from app.trainjobs import labels
from app.trainjobs.adapter import Job, JobReview
from app.trainjobs.document import mapping_at
from app.trainjobs.kubeflow import names
from app.trainjobs.kubeflow.contract import possible_names
from app.trainjobs.kubeflow.inputs import READ
from app.trainjobs.kubeflow.question import (
    Question,
    labels_of,
    recorded_plan,
    sentence_list,
)
from app.trainjobs.kubeflow.reading import text
from app.trainjobs.kubeflow.shown import pods_of, trainer_of
from app.trainjobs.misspelt import unread_annotations

GpuName = Callable[[str], str]
"""A GPU's canonical name from any spelling; the spelling itself when it is unknown."""


def advice(job: Job, question: Question, gpu_name: GpuName) -> Iterator[str]:
    """Warnings for a new job, most important first."""
    yield from _empty_values(job, question)
    yield from _reserved_names(question)
    yield from _gpu_like_resources(question)
    yield from _processes(job, question)
    yield from _unreadable_values(question)
    yield from _two_gpus(question, gpu_name)
    yield from _accelerate_launch(question)
    yield from unread_annotations(question.annotations, READ)


def _empty_values(job: Job, question: Question) -> Iterator[str]:
    """Kueue up to 0.19 drops explicit empty values when it unsuspends (kubeflow/trainer#3888)."""
    empty = [each.name for each in question.theirs if each.value == ""]
    if empty and labels.KUEUE_QUEUE in labels_of(job):
        yield (
            f"env {sentence_list(empty)} has an empty value: Kueue up to 0.19 cannot unsuspend "
            "such a job; give it a value or leave it out"
        )


def _reserved_names(question: Question) -> Iterator[str]:
    reserved = [each.name for each in question.theirs if each.name in names.RESERVED_ENV]
    if reserved:
        yield (
            f"env {sentence_list(reserved)} is reserved: Trainer sets it, and refuses the job "
            "where its runtime policy owns the name"
        )


def _gpu_like_resources(question: Question) -> Iterator[str]:
    sharers = question.gpus.sharers
    if sharers:
        yield (
            f"resource {sentence_list(sharers)} does not count whole GPUs: numProcPerNode is left "
            "alone, and Trainer may count the wrong one"
        )


def _processes(job: Job, question: Question) -> Iterator[str]:
    stated, gpus = trainer_of(job).get("numProcPerNode"), question.gpus_per_node
    if isinstance(stated, int) and gpus is not None and stated != gpus:
        each = counted(gpus, "GPU")
        yield f"numProcPerNode is {stated} but a plan needs one process for each of {each}"
    if stated == "cpu":
        yield "numProcPerNode is `cpu`, but a plan needs one process per GPU"
    if stated is None and question.author_env.keys() & names.TORCH_RESERVED_ENV:
        yield "numProcPerNode is left unset, because the job sets a PET_ variable itself"


def _unreadable_values(question: Question) -> Iterator[str]:
    ours = possible_names(question.launcher, question.command)
    hidden = [each.name for each in question.theirs if each.value is None and each.name in ours]
    if hidden:
        yield f"env {sentence_list(hidden)} has valueFrom: it is kept, and the plan ignores it"


def _two_gpus(question: Question, gpu_name: GpuName) -> Iterator[str]:
    stated = text(question.inputs.values.get("gpu"))
    selected = names.gpu_of(question.pods.node_labels)
    if stated and selected and gpu_name(stated) != gpu_name(selected):
        yield f"annotation {names.GPU} says {stated}, node labels {selected}; the first counts"


def _accelerate_launch(question: Question) -> Iterator[str]:
    words = question.command
    starts = "accelerate launch" in words or "accelerate.commands.launch" in words
    if question.launcher.extra and starts and "parallelism_config" not in words:
        yield (
            "`accelerate launch` replaces PARALLELISM_CONFIG_*: pass "
            "--parallelism_config_tp_size=$(TP_DEGREE) and so on, or start with torchrun"
        )


def placement_warnings(review: JobReview, gpu_name: GpuName) -> tuple[str, ...]:
    """Whether an update puts a planned job on another GPU than it was planned for.

    Kueue chooses the flavor after creation, when the plan's variables can no longer change.
    """
    annotations = mapping_at(review.job, "metadata", "annotations")
    if labels.PLAN_RESULT not in annotations:
        return ()
    chosen = names.gpu_of(pods_of(review.job, None).node_labels)
    before = names.gpu_of(pods_of(review.old, None).node_labels) if review.old else ""
    if not chosen or chosen == before:
        return ()
    planned = text(recorded_plan(annotations).get("gpu")) or text(annotations.get(names.GPU))
    if not planned:
        return (f"now placed on {chosen}; the plan does not say for which GPU it was made",)
    if gpu_name(planned) == gpu_name(chosen):
        return ()
    return (f"planned for {planned}, now placed on {chosen}: create the job again to plan anew",)
