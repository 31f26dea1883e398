"""Wanted values -> the fewest RFC 6902 operations that bring them about.

Nothing is removed and nothing empty is written. A parent that is missing is created, one that has
another shape is left alone: the schema will tell its author.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from app.trainjobs.adapter import Job, Op, Operation
from app.trainjobs.document import Path, is_object, value_at

EMPTY: tuple[Any, ...] = (None, "", [], {})


class Edit(NamedTuple):
    """One value we want at one path."""

    path: Path
    value: Any


@lru_cache(maxsize=1024)
def pointer(path: tuple[str | int, ...]) -> str:
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
    *parents, key = edit.path
    here: Any = job
    for depth, name in enumerate(parents, start=1):
        if not is_object(here):
            return
        exists = name in here
        here = here.get(name)
        if here is None:
            _create(edit, depth, operations, op="replace" if exists else "add")
            return
    if not is_object(here):
        return
    present = here.get(key)
    exists = present is not None or key in here
    if not exists or not same(present, edit.value):
        op: Op = "replace" if exists else "add"
        operations[edit.path] = Operation(op=op, path=pointer(edit.path), value=edit.value)


def _create(edit: Edit, depth: int, operations: dict[Path, Operation], *, op: Op) -> None:
    """Write at the first `depth` keys of the path, an absent or null parent, with all below it."""
    anchor = edit.path[:depth]
    if anchor not in operations:
        operations[anchor] = Operation(op=op, path=pointer(anchor), value={})
    _put(operations[anchor].value, edit.path[depth:], edit.value)


def _put(tree: dict[str, Any], path: Path, value: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def append_operations(
    job: Job, path: Path, items: Sequence[Mapping[str, Any]]
) -> tuple[Operation, ...]:
    """The operations that append `items` to the list at `path`, creating it when it is absent."""
    parent = value_at(job, *path[:-1])
    if not items or not is_object(parent):
        return ()
    present = parent.get(path[-1])
    if isinstance(present, list):
        end = pointer(path) + "/-"
        return tuple(Operation(op="add", path=end, value=dict(item)) for item in items)
    if present is not None:
        return ()
    exists = path[-1] in parent
    whole = [dict(item) for item in items]
    return (Operation(op="replace" if exists else "add", path=pointer(path), value=whole),)


def as_json(operations: Iterable[Operation]) -> list[dict[str, Any]]:
    """The patch document."""
    return [{"op": each.op, "path": each.path, "value": each.value} for each in operations]
