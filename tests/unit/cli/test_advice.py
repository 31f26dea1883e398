"""explain, launch, cost and doctor as whole command lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli.cost import count
from app.cli.explain import signed
from app.cli.refuse import CannotAnswer
from app.cli.root import run

LOGS = Path(__file__).parents[2] / "data" / "logs"
MANIFEST = Path(__file__).parents[3] / "examples" / "trainjobs" / "manual.yaml"
KUBEFLOW = MANIFEST.parents[1] / "kubeflow" / "torchtitan.yaml"
JOB = ("--model", "llama-3-8b", "--gpu", "H100-SXM5-80GB")
COST = ("cost", *JOB, "--tokens", "10B", "--max-gpus", "16")


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("explain", *JOB, "--layout", "tp=2"), 0, "Time of one step"),
        (("explain", *JOB, "--layout", "tp=3,pp=1"), 1, "Rules it breaks"),
        (("launch", *JOB, "--launcher", "torchtitan"), 0, "[parallelism]"),
        (("launch", *JOB, "--launcher", "ddp", "--layout", "tp=2"), 2, "error:"),
        (("launch", "--model", "llama-3-70b", "--gpu", "T4", "--launcher", "fsdp2"), 1, "Nothing"),
        (COST, 0, "tokens/s"),
        ((*COST, "--all"), 0, "Every machine"),
        ((*COST, "--deadline", "0.001"), 1, "nothing meets"),
        (("doctor", str(LOGS / "oom.log"), *JOB, "--layout", "tp=2"), 1, "planner:"),
        (("doctor", str(LOGS / "oom.log"), "--manifest", str(MANIFEST)), 1, "predict"),
        (("doctor", str(LOGS / "oom.log"), "--manifest", str(KUBEFLOW)), 1, "predict"),
        (("doctor", str(LOGS / "oom.log"), "--manifest", str(LOGS / "oom.log")), 2, "--manifest"),
        (("doctor", str(LOGS / "healthy.log")), 0, "No known symptom"),
        (("doctor", "no-such.log"), 2, "cannot be read"),
    ],
)
def test_it_answers(
    arguments: tuple[str, ...], code: int, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == code
    printed = capsys.readouterr()
    assert word in printed.out + printed.err


def test_files_are_written(tmp_path: Path) -> None:
    run(("launch", *JOB, "--launcher", "deepspeed", "--write", str(tmp_path / "run"), "--json"))
    assert json.loads((tmp_path / "run" / "deepspeed.json").read_text("utf-8"))


def test_what_was_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(("launch", *JOB, "--launcher", "deepspeed", "--write", str(tmp_path / "run")))
    said = capsys.readouterr().out.partition("Written")[2]
    assert "deepspeed.json" in said.replace("\n", "")


def test_a_layout_where_nothing_fits_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--model", "llama-3-405b", "--gpu", "H100-SXM5-80GB", "--layout", "tp=8")
    assert run(("explain", *asked)) == 1
    printed = capsys.readouterr().out
    assert "none: no layout fits" in printed
    assert "more than one field" not in printed


@pytest.mark.parametrize(
    ("number", "words"), [(-0.004, "0.00"), (0.0, "0.00"), (-0.005, "-0.01"), (2150.5, "+2,150.50")]
)
def test_a_difference_that_rounds_to_nothing_has_no_sign(number: float, words: str) -> None:
    assert signed(number) == words


@pytest.mark.parametrize(
    ("text", "tokens"), [("300B", 3 * 10**11), ("1.5t", 15 * 10**11), ("7", 7)]
)
def test_tokens_have_suffixes(text: str, tokens: int) -> None:
    assert count(text) == tokens


def test_a_word_is_no_number() -> None:
    with pytest.raises(CannotAnswer):
        count("many")
