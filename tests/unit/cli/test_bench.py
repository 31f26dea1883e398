"""`bench search` as a whole command line."""

from __future__ import annotations

import json

import pytest

from app.cli.root import run


def test_json_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "search", "--sample", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["search"]["count"] == 5


def test_page_names_the_slowest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "search", "--sample", "5"]) == 0
    page = capsys.readouterr().out
    assert "slowest searches" in page
    assert "qwen3-30b-a3b, experts" in page
    assert "pruned" in page


def test_unknown_bench_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "coffee"]) == 2
    assert "no bench `coffee`" in capsys.readouterr().err
