"""Errors speak the caller's language: flags on a terminal, keys of the request in JSON."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from app.catalog.loader import load_catalog
from app.cli.question import Question, flag_of
from app.cli.refuse import FLAGS, in_flags
from app.cli.root import run

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("said", "flags"),
    [
        ("`nodes` must be a number", "`--nodes` must be a number"),
        ("`workload.sequence_length` must", "`--sequence-length` must"),
        ("`pins.tp` must divide 8", "`--pin tp` must divide 8"),
        ("`layout.tp` must divide 8", "`--layout tp` must divide 8"),
        ("`deadline_hours` must be positive", "`--deadline` must be positive"),
        ("`offload` must be one of `optimizer`", "`--offload` must be one of `optimizer`"),
        ("`tp` must be at most 8", "`tp` must be at most 8"),
        ("near it: `llama-3-8b`", "near it: `llama-3-8b`"),
    ],
)  # fmt: skip
def test_keys_become_flags(said: str, flags: str) -> None:
    assert in_flags(said) == flags


def test_every_flag_of_a_question_is_known() -> None:
    """`--pin`, `--precision` and `--catalog` are no keys of a request."""
    own = {one.name for one in fields(Question)} - {"pin", "precision", "catalog"}
    assert {name: FLAGS[name] for name in own} == {name: flag_of(name) for name in own}


def test_a_terminal_reads_flags_and_a_program_keys(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["plan", "--model", "llama-3-8b", "--gpu", "T4", "--nodes", "0"]
    assert run(line) == run([*line, "--json"]) == 2
    shown = capsys.readouterr()
    assert "`--nodes` must be" in shown.err
    error = json.loads(shown.out)["error"]
    assert error["path"] == "nodes"
    assert error["message"].startswith("`nodes` must be")


def test_an_unknown_model_is_looked_for_among_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--model", "qqqqqq", "--gpu", "T4"]) == 2
    said = capsys.readouterr().err
    assert "`trainjob-advisor models`" in said
    assert "gpus" not in said


@pytest.mark.parametrize("place", ["help", "docs/cli.md", "docs/api.md"])
def test_every_framework_is_listed(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    if place == "help":
        run(["plan", "--help"])
        text = capsys.readouterr().out
    else:
        text = (ROOT / place).read_text()
    words = set(re.findall(r"[a-z0-9-]+", text))
    assert set(load_catalog().frameworks) <= words
