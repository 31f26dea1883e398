"""A `training.vsr.dev` TrainJob as far as any answer to it may depend on it.

Jobs differ in much that decides nothing: their image, where they checkpoint to, the variables of
their experiment. Those that show the same are answered alike, so one of them has to be decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from app.trainjobs import labels
from app.trainjobs.adapter import Job
from app.trainjobs.document import is_object, is_texts, mapping_at, texts_at, value_at, words_at
from app.trainjobs.plan_json import PLAN_VARIABLES

COMMAND_LINE: Final = ("command", "args")
SOME: Final = "-"
"""In the place of any text that is there."""


class Reads(Protocol):
    """What the environment's rules look at, so that all else may be left out."""

    @property
    def annotations(self) -> frozenset[str]:
        """Names of annotations."""

    @property
    def variables(self) -> frozenset[str]:
        """Names of variables."""

    def told_of(self, command: str) -> str:
        """All that they can tell of a command line."""


def shown(job: Job, rules: Reads) -> Job:
    """The job without what makes it another than the one before, and decides nothing.

    Of labels one counts, of the status the phase, of a command line what the rules can tell of it,
    where it is made of texts, of image and place of checkpoints that they are there, of annotations
    and variables that nobody reads the name. A list of variables that is none is shown whole, as
    the refusal of it holds it.
    """
    seen = dict(job)
    if is_object(job.get("spec")):
        seen["spec"] = shown_spec(job, rules)
    if is_object(job.get("metadata")):
        seen["metadata"] = shown_metadata(job, rules)
    if "status" in job:
        seen["status"] = {"phase": value_at(job, "status", "phase")}
    return seen


def shown_spec(job: Job, rules: Reads) -> dict[str, Any]:
    """The spec of `shown`."""
    spec = dict(job["spec"])
    present = [name for name in COMMAND_LINE if spec.get(name) is not None]
    if present and all(is_texts(spec[name]) for name in present):
        spec |= dict.fromkeys(present, (rules.told_of(command_line(job)),))
    image, storage = spec.get("image"), value_at(spec, "checkpoint", "storagePath")
    if isinstance(image, str) and image.strip():
        spec["image"] = SOME
    if isinstance(storage, str) and storage:
        spec["checkpoint"] = {**spec["checkpoint"], "storagePath": SOME}
    listed = spec.get("env")
    if isinstance(listed, list) and all(map(is_object, listed)) and not records_variables(job):
        spec["env"] = [shown_variable(each, rules) for each in listed]
    return spec


def shown_metadata(job: Job, rules: Reads) -> dict[str, Any]:
    """The metadata of `shown`."""
    metadata = dict(job["metadata"])
    if is_object(metadata.get("labels")):
        queue = texts_at(metadata, "labels").get(labels.KUEUE_QUEUE)
        metadata["labels"] = {labels.KUEUE_QUEUE: queue}
    annotations = metadata.get("annotations")
    if is_object(annotations):
        metadata["annotations"] = {
            name: text if name.startswith(labels.PREFIX) or name in rules.annotations else SOME
            for name, text in annotations.items()
        }
    return metadata


def records_variables(job: Job) -> bool:
    """Whether an annotation says which variables are ours: then their values are compared."""
    return labels.ENVIRONMENT in mapping_at(job, "metadata", "annotations")


def shown_variable(entry: Mapping[str, Any], rules: Reads) -> Mapping[str, Any]:
    """An entry of the environment; of one that nobody reads the name, which may be repeated."""
    if entry.keys() != {"name", "value"}:
        return entry
    name = entry["name"]
    if not isinstance(name, str) or not isinstance(entry["value"], str):
        return entry
    read = name in rules.variables or name in PLAN_VARIABLES
    return entry if read or not name else {"name": name}


def command_line(job: Mapping[str, Any]) -> str:
    """Command and arguments of the job's workers in one line."""
    return " ".join([word for name in COMMAND_LINE for word in words_at(job, "spec", name)])
