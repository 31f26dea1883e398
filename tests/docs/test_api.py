"""docs/api.md names every key of the answers it describes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.advisor.candidates import answer_candidates
from app.advisor.choices import choices_body
from app.cli.desk import open_desk
from app.cli.question import Question

PAGE = (Path(__file__).parents[2] / "docs/api.md").read_text()
DESK = open_desk(Question())
WHOLE = ("layout", "architecture", "cluster", "workload", "framework", "catalog_version")
"""Described once, elsewhere on the page."""


def section(heading: str) -> str:
    """The text under a heading."""
    (found,) = re.findall(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL
    )
    return str(found)


def keys(body: Any, *, depth: int) -> Iterator[str]:
    """Keys of an object and of the first object of each list in it."""
    for key, value in body.items():
        yield key
        if depth and isinstance(value, list) and value and isinstance(value[0], dict):
            yield from keys(value[0], depth=depth - 1)


def candidates() -> Any:
    """An answer of `/v1/candidates`."""
    steps = answer_candidates({"model": "llama-3-8b", "gpu": "H100-SXM5-80GB"}, DESK)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize(
    ("heading", "answer"),
    [
        ("Answer of `/v1/choices`", lambda: choices_body(DESK)),
        ("Answer of `/v1/candidates`", candidates),
    ],
    ids=["choices", "candidates"],
)
def test_every_key_is_described(heading: str, answer: Any) -> None:
    text = section(heading)
    missing = {key for key in keys(answer(), depth=1) if f"`{key}`" not in text}
    assert missing <= set(WHOLE)
