"""Our variables in a job that exists: which are recorded, and which an update left out.

`kubectl apply` sends a list of its author's as it was: where the schema does not key the list, or
the apply is client-side, our entries are gone from what would be stored. Nothing about the job has
changed, so they are put back as they were; docs/decisions/0001-kept-variables.md says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from app.trainjobs import labels
from app.trainjobs.adapter import Job, Keeps
from app.trainjobs.document import Path, texts_at, value_at
from app.trainjobs.patch import append_operations

ANNOTATIONS: Final = ("metadata", "annotations")
KEPT: Final = "written by an earlier plan of this job"
"""The recorded reason of a variable that no longer belongs: nothing is ever removed from a job."""
SHOWN: Final = 3


def recorded_variables(text: str) -> dict[str, str]:
    """Names and values in an environment annotation of ours; empty for any other text."""
    return {each["name"]: each["value"] for each in _recorded(text)}


def _recorded(text: str) -> list[Mapping[str, Any]]:
    if not text:
        return []
    try:
        listed = orjson.loads(text)
    except (ValueError, RecursionError):
        return []
    return [
        each
        for each in (listed if isinstance(listed, list) else [])
        if isinstance(each, Mapping)
        and isinstance(each.get("name"), str)
        and isinstance(each.get("value"), str)
    ]


def kept_variables(job: Job, old: Job, path: Path) -> Keeps | None:
    """What puts our variables back into the list at `path`, `None` if none was left out.

    A name the update gives itself is its author's. Whoever wants rid of ours removes our record,
    the annotation, from the job.
    """
    record = texts_at(old, *ANNOTATIONS).get(labels.ENVIRONMENT, "")
    if not record or texts_at(job, *ANNOTATIONS).get(labels.ENVIRONMENT) != record:
        return None
    present = {each["name"] for _, each in _entries(job, path)}
    ours = recorded_variables(record)
    missing = {
        each["name"]: each
        for _, each in _entries(old, path)
        if _is_ours(each, ours) and each["name"] not in present
    }
    operations = append_operations(job, path, list(missing.values()))
    if not operations:
        return None
    told = (
        f"kept {len(missing)} variables of ours that this update leaves out; "
        f"to drop them remove annotation {labels.ENVIRONMENT}"
    )
    return Keeps(operations=operations, warnings=(told,))


def our_entries(job: Job, path: Path) -> dict[str, int]:
    """Where in the list at `path` a variable stands that is ours to bring up to date, by name.

    Only the entry that counts, the last of its name, and only if it is what we recorded.
    """
    ours = recorded_variables(texts_at(job, *ANNOTATIONS).get(labels.ENVIRONMENT, ""))
    if not ours:
        return {}
    last = {each["name"]: (index, each) for index, each in _entries(job, path)}
    return {name: index for name, (index, each) in last.items() if _is_ours(each, ours)}


def leftover_warnings(job: Job, path: Path) -> tuple[str, ...]:
    """What to say of variables that came with a copied manifest and have no use here."""
    record = texts_at(job, *ANNOTATIONS).get(labels.ENVIRONMENT, "")
    if KEPT not in record:
        return ()
    listed = [each["name"] for each in _recorded(record) if each.get("reason") == KEPT]
    present = our_entries(job, path)
    names = [name for name in listed if name in present]
    if not names:
        return ()
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    shown = ", ".join(names[:SHOWN])
    return (f"{shown}{more} came from an earlier plan and are not part of this one; delete them",)


def _entries(job: Job, path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The named entries of the list at `path`, each with its place."""
    found = value_at(job, *path)
    for index, each in enumerate(found if isinstance(found, list) else ()):
        if isinstance(each, Mapping) and isinstance(each.get("name"), str):
            yield index, each


def _is_ours(entry: Mapping[str, Any], ours: Mapping[str, str]) -> bool:
    """Whether it is what we wrote, to the letter: a name, our value, and nothing else."""
    value = ours.get(entry["name"])
    return bool(value) and entry.keys() == {"name", "value"} and entry["value"] == value
