"""Names that nobody reads, and the known ones they nearly are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from app.trainjobs import labels

NEARLY: Final = 0.85
"""How alike two names must be for one to be taken for a slip of the other (difflib ratio)."""
NEAREST: Final = 0.6
"""How alike for a name that is a slip for certain: it has our prefix, and nobody reads it."""
NAME_CHARACTERS: Final = 60
CHECKED_NAMES: Final = 64
"""Names of one object that are looked at for slips; comparing costs some 30 us each."""


@lru_cache(maxsize=1024)
def meant(name: str, known: tuple[str, ...], alike: float = NEARLY) -> str:
    """The one of `known` that `name` nearly is, "" if none; jobs use the same few names."""
    near = get_close_matches(name.lower(), [each.lower() for each in known], 1, alike)
    return next((each for each in known if [each.lower()] == near), "")


def unread_annotations(annotations: Mapping[str, Any], read: tuple[str, ...]) -> Iterator[str]:
    """Annotations of our prefix that are neither `read` nor written by us, or nearly are `read`."""
    for name in islice(annotations, CHECKED_NAMES):
        if name in read or name in labels.WRITTEN or len(name) > NAME_CHARACTERS:
            continue
        near, instead = _unread(name, read)
        if instead:
            said = f"`{near}` counts" if near in annotations else instead
            yield f"metadata.annotations: nothing reads `{name}`; {said}"


@lru_cache(maxsize=1024)
def _unread(name: str, read: tuple[str, ...]) -> tuple[str, str]:
    """The annotation that `name` nearly is, and what to say of it: both "" for a foreign name.

    The prefix counts for nothing in the likeness: with it any two names would be much alike.
    """
    domain, slash, key = name.rpartition("/")
    ours = domain + slash == labels.PREFIX
    if not ours and not meant(domain + slash, (labels.PREFIX,)):
        return "", ""
    known = tuple(each.removeprefix(labels.PREFIX) for each in read)
    near = meant(key, known, NEAREST if ours else NEARLY)
    if near:
        return labels.PREFIX + near, f"did you mean `{labels.PREFIX}{near}`?"
    return "", f"{labels.PREFIX} has {', '.join(known)}" if ours else ""
