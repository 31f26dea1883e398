"""The client of a load: answers read whole, and a real server loaded for a moment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli.load.client import is_whole, outcome_of
from app.cli.root import run
from app.planner import form

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n"


@pytest.mark.parametrize(
    ("answer", "whole"),
    [
        (HEAD, False),
        (HEAD + b"\r\nabc", False),
        (HEAD + b"\r\nabcd", True),
        (HEAD + b"x: y\r\n\r\nabcd", True),
    ],
)
def test_an_answer_is_whole_with_all_its_bytes(answer: bytes, *, whole: bool) -> None:
    assert is_whole(bytearray(answer)) is whole


def test_an_answer_without_a_length_is_refused() -> None:
    with pytest.raises(ConnectionAbortedError):
        is_whole(bytearray(b"HTTP/1.1 200 OK\r\n\r\n"))


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (HEAD + b'\r\n{"allowed":true}', "allowed"),
        (HEAD + b'\r\n{"allowed":false}', "denied"),
        (HEAD + b"\r\n{}", "error"),
        (b'HTTP/1.1 500 No\r\n\r\n{"allowed":true}', "error"),
    ],
)
def test_outcomes(answer: bytes, outcome: str) -> None:
    assert outcome_of(answer) == outcome


def test_a_started_server_answers_every_review(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    picture = tmp_path / "latency.png"
    options = ["--rate", "20", "--seconds", "1", "--connections", "4", "--plot", str(picture)]
    assert run(["bench", "server", *options, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["planner"] == form()
    assert report["all"]["errors"] == 0
    assert report["all"]["count"] == sum(each["count"] for each in report["by_kind"].values())
    assert report["all"]["count"] == sum(each["count"] for each in report["histogram"])
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_ratios_name_every_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "server", "--ratios", "--seconds", "0.2", "--connections", "2"]) == 0
    page = capsys.readouterr().out
    assert f"planner {form()}" in page
    assert "ours, plans known" in page
    assert "bare FastAPI, bytes" in page


@pytest.mark.parametrize(
    "options",
    [
        ["--url", "http://localhost:1"],
        ["--url", "https://localhost:1"],
        ["--ratios", "--url", "https://localhost:1"],
    ],
    ids=["not TLS", "nobody there", "ratios of a given server"],
)
def test_what_cannot_be_measured_is_bad_input(options: list[str]) -> None:
    assert run(["bench", "server", *options]) == 2
