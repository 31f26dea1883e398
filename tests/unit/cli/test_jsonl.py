"""Lines in, lines out: the same number, the same order, whatever a line holds."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from app.cli import jsonl
from app.cli.refuse import CannotAnswer


def answers(text: bytes) -> list[dict[str, Any]]:
    """What is answered to each line of `text`, the answer being the request itself."""
    out = io.StringIO()
    jsonl.stream(io.BytesIO(text), out, lambda body: {"echo": body})
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_each_line_is_answered_in_order() -> None:
    assert answers(b'{"a": 1}\n{"b": 2}\n') == [{"echo": {"a": 1}}, {"echo": {"b": 2}}]


def test_the_last_line_needs_no_newline() -> None:
    assert answers(b"[1]\n[2]") == [{"echo": [1]}, {"echo": [2]}]


def test_nothing_is_answered_to_nothing() -> None:
    assert answers(b"") == []


@pytest.mark.parametrize(
    "line",
    [b"", b"  ", b"{", b"\xff\xfe", b"[" * 100_000, b"1" * 5_000],
    ids=["empty", "blank", "cut", "no utf-8", "deep", "huge number"],
)
def test_a_bad_line_is_answered_and_the_rest_go_on(line: bytes) -> None:
    first, bad, last = answers(b"[1]\n" + line + b"\n[2]\n")
    assert (first, last) == ({"echo": [1]}, {"echo": [2]})
    assert bad["error"]["code"] == "invalid_json"
    assert set(bad["error"]) == {"code", "message", "path"}
    assert bad["error"]["message"].startswith("line 2: ")


@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_line_beyond_the_limit_is_dropped_unread(
    end: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", 16)
    fits, long, *rest = answers(b'"0123456789abcd"\n' + b'"' + b"x" * 100 + b'"' + end)
    assert fits == {"echo": "0123456789abcd"}
    assert "at most 16 bytes" in long["error"]["message"]
    assert rest == []


def test_lines_after_a_long_one_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", 16)
    assert answers(b"x" * 33 + b"\n[2]\n")[1:] == [{"echo": [2]}]


def test_a_missing_file_is_bad_input() -> None:
    with pytest.raises(CannotAnswer) as problem:
        jsonl.answer_lines("/nowhere/requests.jsonl", dict)
    assert "readable file" in problem.value.body["error"]["message"]
