"""Edits become the fewest operations, and nothing of a document's author's is lost."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import pytest

from app.trainjobs.patch import Edit, append_operations, as_json, pointer, set_operations


@pytest.mark.parametrize(
    ("path", "expected"),
    [(("a", "b"), "/a/b"), (("a/b", "c~d"), "/a~1b/c~0d"), (("~1",), "/~01"), (("e", 3), "/e/3")],
)
def test_pointers_are_escaped(path: tuple[Any, ...], expected: str) -> None:
    assert pointer(path) == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, [("add", "/m", {"a": {"x/y": "1"}})]),
        ({"m": None}, [("replace", "/m", {"a": {"x/y": "1"}})]),
        ({"m": {}}, [("add", "/m/a", {"x/y": "1"})]),
        ({"m": {"a": {}}}, [("add", "/m/a/x~1y", "1")]),
        ({"m": {"a": {"x/y": "0"}}}, [("replace", "/m/a/x~1y", "1")]),
        ({"m": {"a": {"x/y": None}}}, [("replace", "/m/a/x~1y", "1")]),
        ({"m": {"a": {"x/y": "1"}}}, []),
        ({"m": []}, []),
        ({"m": {"a": "text"}}, []),
        ({"m": 3}, []),
    ],
)
def test_parents_are_made_but_never_replaced(document: Any, expected: Any) -> None:
    operations = set_operations(document, [Edit(path=("m", "a", "x/y"), value="1")])
    assert [(each.op, each.path, each.value) for each in operations] == expected


def test_edits_under_one_missing_parent_are_one_operation() -> None:
    edits = [
        Edit(path=("spec", "a", "x"), value=1),
        Edit(path=("spec", "a", "y", "z"), value=True),
        Edit(path=("spec", "b"), value="t"),
    ]
    document = {"spec": {"kept": 1}}
    patch = as_json(set_operations(document, edits))
    assert len(patch) == 2
    assert jsonpatch.apply_patch(document, patch) == {
        "spec": {"kept": 1, "a": {"x": 1, "y": {"z": True}}, "b": "t"}
    }


def test_true_is_not_one() -> None:
    assert set_operations({"a": 1}, [Edit(path=("a",), value=True)])
    assert not set_operations({"a": 1.0}, [Edit(path=("a",), value=1)])


@pytest.mark.parametrize("empty", [None, "", [], {}])
def test_nothing_empty_is_written(empty: Any) -> None:
    with pytest.raises(ValueError, match="/a"):
        set_operations({}, [Edit(path=("a",), value=empty)])


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"s": {}}, {"s": {"env": [{"name": "A"}]}}),
        ({"s": {"env": None}}, {"s": {"env": [{"name": "A"}]}}),
        ({"s": {"env": []}}, {"s": {"env": [{"name": "A"}]}}),
        ({"s": {"env": [1]}}, {"s": {"env": [1, {"name": "A"}]}}),
        ({"s": {"env": "text"}}, {"s": {"env": "text"}}),
        ({"s": []}, {"s": []}),
        ({}, {}),
    ],
)
def test_lists_are_appended_to(document: Any, expected: Any) -> None:
    before = copy.deepcopy(document)
    patch = as_json(append_operations(document, ("s", "env"), [{"name": "A"}]))
    assert document == before
    assert jsonpatch.apply_patch(document, patch) == expected


def test_nothing_to_append_is_no_operation() -> None:
    assert append_operations({"s": {}}, ("s", "env"), []) == ()
