"""Reading a JSON document that may hold anything anywhere: absent and misshapen look alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeGuard

Path = tuple[str, ...]
"""Keys from the root of the document, unescaped."""

NOTHING: Mapping[str, Any] = {}


def is_object(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether a JSON value is an object.

    It nearly always is a dict or nothing, and asking an abstract class takes ten times as long.
    """
    return type(value) is dict or (value is not None and isinstance(value, Mapping))


def value_at(document: Any, *path: str) -> Any:
    """What stands at `path`, `None` if nothing does."""
    here = document
    for key in path:
        # `is_object` spelled out, since this runs a hundred times in a review.
        if type(here) is not dict and (here is None or not isinstance(here, Mapping)):
            return None
        here = here.get(key)
    return here


def mapping_at(document: Any, *path: str) -> Mapping[str, Any]:
    """The object at `path`, an empty one if there is none."""
    found = value_at(document, *path)
    return found if type(found) is dict or is_object(found) else NOTHING


def texts_at(document: Any, *path: str) -> dict[str, str]:
    """The string entries of the map at `path`: labels, annotations, node selectors."""
    found = mapping_at(document, *path)
    return {key: value for key, value in found.items() if isinstance(value, str)}


def is_whole(value: Any) -> bool:
    """Whether a JSON value is an integer (`true` is none)."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def count_at(document: Any, *path: str) -> int | None:
    """The positive integer at `path`; `None` for anything else, 0 being an unset Go field."""
    found = value_at(document, *path)
    return found if is_whole(found) and found > 0 else None


def environment_at(document: Any, *path: str) -> dict[str, str]:
    """Names and values of the `env` list at `path`; the last of a duplicate wins, as in a pod."""
    found = value_at(document, *path)
    if not isinstance(found, list):
        return {}
    return {
        entry["name"]: entry["value"] if isinstance(entry.get("value"), str) else ""
        for entry in found
        if isinstance(entry, Mapping) and isinstance(entry.get("name"), str)
    }


def is_texts(value: Any) -> bool:
    """Whether a JSON value is a list of strings."""
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def words_at(document: Any, *path: str) -> list[str]:
    """The strings of the list at `path`; empty for anything else."""
    found = value_at(document, *path)
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []
