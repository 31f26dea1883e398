"""The accuracy command: the repository's runs, a file of one's own, and files that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.advisor.accuracy import DEFAULT_DATA
from app.cli.root import run


def test_json_has_groups_worst_rows_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["accuracy", "--by", "precision", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert {"fp16", "bf16", "fp8"} <= {each["name"] for each in body["groups"]}
    assert body["rows"] + sum(body["left_out"].values()) == 2123
    errors = [abs(each["error"]) for each in body["worst"]]
    assert errors == sorted(errors, reverse=True)


def test_a_file_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head, *rows = DEFAULT_DATA.read_text(encoding="utf-8").splitlines()
    chosen = [row for row in rows if row.startswith("llmf-")][:5]
    data = tmp_path / "runs.csv"
    data.write_text("\n".join([head, *chosen]), encoding="utf-8")
    assert run(["accuracy", "--data", str(data), "--by", "source"]) == 0
    assert "llmf" in capsys.readouterr().out


@pytest.mark.parametrize("text", [None, "a,b\n1,2\n"])
def test_what_is_no_table_of_runs(
    text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "runs.csv"
    if text is not None:
        data.write_text(text, encoding="utf-8")
    assert run(["accuracy", "--data", str(data)]) == 2
    assert str(data) in capsys.readouterr().err
