"""Reading numbers out of documents nobody has validated: every error collected, none raised."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final, TypeGuard

from app.planner.intent import FieldError

MAX_SIZE: Final = 2**20
"""Largest width of anything (hidden, heads, experts). Far above any model, far below overflow."""
MAX_FFN_SIZE: Final = 2**23
MAX_LAYERS: Final = 2**12
MAX_VOCABULARY: Final = 2**24
MAX_TOKENS: Final = 2**30
MAX_PARAMS: Final = 10**15
MAX_BATCH: Final = 2**30
SHOWN_CHARACTERS: Final = 40
SHOWN_BITS: Final = 128
MAX_UNKNOWN: Final = 16
"""Unknown keys of one object that are told one by one."""
MAX_PATH_CHARACTERS: Final = 80

_REQUIRED: Final = object()


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether `value` is an integer. A boolean is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether `value` is a finite number. A boolean is not."""
    if isinstance(value, float):
        return value - value == 0
    return is_whole(value)


def shown(value: Any) -> str:
    """`value` as a message shows it: in JSON's words, and cut when it is long."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, int) and value.bit_length() > SHOWN_BITS:
        return "a number beyond any cluster"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def quoted(names: Iterable[str]) -> str:
    """Names as a message lists them."""
    return ", ".join(f"`{name}`" for name in names)


def nearest(name: str, known: Iterable[str], *, count: int = 3) -> tuple[str, ...]:
    """The known names most like `name`, best first; at most `count`, none when none is like it.

    Where no whole name is, those whose first word is: `H900` is near `H100-SXM5-80GB`.
    """
    by_key = {one.lower(): one for one in known}
    text = name[:80].lower()
    found = get_close_matches(text, by_key, n=count, cutoff=0.45)
    if not found:
        heads: dict[str, list[str]] = {}
        for key in by_key:
            heads.setdefault(key.partition("-")[0], []).append(key)
        near = get_close_matches(text, heads, n=count, cutoff=0.7)
        found = [key for head in near for key in heads[head]][:count]
    return tuple(by_key[one] for one in found)


def unknown_keys(
    given: Mapping[str, Any], known: Collection[str], *, prefix: str = ""
) -> list[FieldError]:
    """Keys of `given` that nobody reads, each with the known one it is most like.

    After `MAX_UNKNOWN` only their number is told: comparing names takes longer than reading them.
    """
    read = frozenset(known)
    strange = [name for name in given if name not in read]
    words = quoted(known)
    errors = []
    for name in strange[:MAX_UNKNOWN]:
        path = f"{prefix}{name}"[:MAX_PATH_CHARACTERS]
        near = nearest(str(name), known, count=1)
        guess = f"did you mean `{near[0]}`? " if near else ""
        message = f"`{path}` is not known; {guess}known here: {words}"
        errors.append(FieldError(path=path, value=given[name], message=message))
    if more := len(strange) - len(errors):
        message = f"{more} more keys are not known; known here: {words}"
        errors.append(FieldError(path=prefix.removesuffix("."), value=None, message=message))
    return errors


class Fields:
    """The fields of one mapping. A wrong one leaves an error here and reads as a legal value.

    `path` says where the mapping stood in its author's document.
    """

    def __init__(self, values: Mapping[str, Any], *, path: str) -> None:
        self.values = values
        self.path = path
        self.errors: list[FieldError] = []

    def at(self, name: str) -> str:
        """Where field `name` stands."""
        return f"{self.path}.{name}" if self.path else name

    def wrong(self, name: str, value: Any, message: str) -> None:
        """Note that field `name` is wrong."""
        self.errors.append(FieldError(path=self.at(name), value=value, message=message))

    def has(self, *names: str) -> bool:
        """Whether one of the spellings is there and not null."""
        return any(self.values.get(name) is not None for name in names)

    def whole(
        self, *names: str, high: int = MAX_SIZE, low: int = 1, default: Any = _REQUIRED
    ) -> int:
        """The integer under the first spelling that is there, from `low` to `high`.

        Null counts as absent. Without a `default` an absent field is an error.
        """
        name = next((one for one in names if self.values.get(one) is not None), names[0])
        value = self.values.get(name)
        if value is None and default is not _REQUIRED:
            return int(default)
        if is_whole(value) and low <= value <= high:
            return int(value)
        must = f"must be a whole number from {low} to {high}"
        found = "is missing; it" if value is None else ""
        tail = "" if value is None else f", not {shown(value)}"
        self.wrong(name, value, " ".join(f"`{name}` {found} {must}{tail}".split()))
        return max(low, 1)

    def flag(self, name: str, *, default: bool) -> bool:
        """The boolean field `name`."""
        value = self.values.get(name)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.wrong(name, value, f"`{name}` must be true or false, not {shown(value)}")
        return default

    def nested(self, name: str) -> Fields:
        """The mapping under `name`. Its errors belong to this reader too."""
        value = self.values.get(name)
        inner = Fields(value if isinstance(value, Mapping) else {}, path=self.at(name))
        inner.errors = self.errors
        if not isinstance(value, Mapping):
            self.wrong(name, value, f"`{name}` must be an object, not {shown(value)}")
        return inner
