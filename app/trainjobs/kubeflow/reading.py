"""Reading lists and scalars of a document nobody has validated. These functions never raise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_DIGITS = 9


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """The items of `value` that are mappings, if it is a list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def text(value: Any) -> str:
    """`value` if it is a string, else ""."""
    return value if isinstance(value, str) else ""


def positive_integer(value: Any) -> int | None:
    """`value` as a whole number of at least 1, written as a number or in digits; else `None`."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 10**MAX_DIGITS:
        return value
    return None
