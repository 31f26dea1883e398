"""Wanted values -> the fewest RFC 6902 operations that bring them about.

Nothing is removed and nothing empty is written. A parent that is missing is created, one that has
another shape is left alone: the schema will tell its author.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.trainjobs.adapter import Job, Operation
from app.trainjobs.document import Path, value_at

EMPTY: tuple[Any, ...] = (None, "", [], {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One value we want at one path."""

    path: Path
    value: Any


def pointer(path: Iterable[str | int]) -> str:
    """The JSON pointer of `path`. Source: RFC 6901, section 3 (`~` is ~0 and `/` is ~1)."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in path)


def same(left: Any, right: Any) -> bool:
    """JSON equality of scalars: `true` is not 1."""
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def set_operations(job: Job, edits: Iterable[Edit]) -> tuple[Operation, ...]:
    """The operations that make every edit true of `job`; none for those that are already."""
    operations: dict[Path, Operation] = {}
    for edit in edits:
        if edit.value in EMPTY:
            msg = f"an empty value must not be written to {pointer(edit.path)}"
            raise ValueError(msg)
        _add(job, edit, operations)
    return tuple(operations.values())


def _add(job: Job, edit: Edit, operations: dict[Path, Operation]) -> None:
    anchor = _first_missing(job, edit.path)
    if anchor is None:
        return
    pending = operations.get(anchor)
    if pending is not None and len(anchor) < len(edit.path):
        _put(pending.value, edit.path[len(anchor) :], edit.value)
        return
    present = value_at(job, *anchor)
    exists = anchor[-1] in (value_at(job, *anchor[:-1]) or {})
    if len(anchor) == len(edit.path) and exists and same(present, edit.value):
        return
    value: Any = edit.value
    if len(anchor) < len(edit.path):
        value = {}
        _put(value, edit.path[len(anchor) :], edit.value)
    operations[anchor] = Operation(
        op="replace" if exists else "add", path=pointer(anchor), value=value
    )


def _first_missing(job: Job, path: Path) -> Path | None:
    """The part of `path` to write at: up to its first absent or null parent, else all of it.

    `None` when a parent is something other than an object.
    """
    here: Any = job
    for depth, key in enumerate(path[:-1]):
        if not isinstance(here, Mapping):
            return None
        here = here.get(key)
        if here is None:
            return path[: depth + 1]
    return path if isinstance(here, Mapping) else None


def _put(tree: dict[str, Any], path: Path, value: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def append_operations(
    job: Job, path: Path, items: Sequence[Mapping[str, Any]]
) -> tuple[Operation, ...]:
    """The operations that append `items` to the list at `path`, creating it when it is absent."""
    if not items or _first_missing(job, path) != path:
        return ()
    present = value_at(job, *path)
    if isinstance(present, list):
        end = pointer(path) + "/-"
        return tuple(Operation(op="add", path=end, value=dict(item)) for item in items)
    if present is not None:
        return ()
    exists = path[-1] in (value_at(job, *path[:-1]) or {})
    whole = [dict(item) for item in items]
    return (Operation(op="replace" if exists else "add", path=pointer(path), value=whole),)


def as_json(operations: Iterable[Operation]) -> list[dict[str, Any]]:
    """The patch document."""
    return [{"op": each.op, "path": each.path, "value": each.value} for each in operations]
