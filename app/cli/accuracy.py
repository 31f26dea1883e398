"""`trainjob-advisor accuracy`: predicted step times against published ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from app.advisor.accuracy import Comparison, Summary
from app.cli.refuse import bad_input
from app.cli.screen import print_json

By = Literal["set", "source", "gpu", "framework", "precision", "model"]
WORST = 10
IN_SAMPLE = """
The time model was fitted to these runs: the errors are in-sample. Those on models and sources left
out of the fit are larger; `make left-out` measures them and docs/accuracy.md shows them."""


def command(
    data: Annotated[
        Path | None,
        typer.Option(help="CSV of published runs; models.csv beside it names the architectures."),
    ] = None,
    by: Annotated[By, typer.Option(help="What to group the rows by.")] = "set",
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Compare predicted step times with published training runs."""
    from app.advisor.accuracy import DEFAULT_DATA, compare, measured_runs, summaries
    from app.catalog.loader import load_catalog

    path = data or DEFAULT_DATA
    if not path.is_file():
        hint = "" if data else "; the installed package carries no runs, give `--data FILE`"
        raise bad_input(f"{path} is not a file{hint}", path="--data")
    try:
        measured, left = measured_runs(path, load_catalog())
    except (KeyError, ValueError) as error:
        message = f"{path} is not a table of runs: {error}; see benchmarks/data/measurements.csv"
        raise bad_input(message, path="--data") from error
    found = compare(measured)
    reasons: dict[str, int] = {}
    for each in left:
        reasons[each.reason] = reasons.get(each.reason, 0) + 1
    table = summaries(found, by)
    worst = sorted(found, key=lambda each: -abs(each.error))[:WORST]
    if as_json:
        print_json(body(by, table, worst, reasons) | {"in_sample": data is None})
    else:
        print(text(by, table, worst, reasons))
        if data is None:
            print(IN_SAMPLE)


def row_of(each: Comparison) -> dict[str, Any]:
    """One compared row as JSON."""
    measured = each.measured
    return {
        "id": measured.row["id"],
        "model": measured.row["model"],
        "gpu": measured.request.cluster.gpu.name,
        "predicted_seconds": each.predicted_seconds,
        "measured_seconds": measured.seconds,
        "error": each.error,
    }


def body(
    by: str, table: Sequence[Summary], worst: Sequence[Comparison], left: dict[str, int]
) -> dict[str, Any]:
    """The whole comparison as JSON."""
    return {
        "by": by,
        "rows": sum(each.rows for each in table),
        "groups": [
            {
                "name": each.name,
                "rows": each.rows,
                "mean_error": each.mean_error,
                "bias": each.bias,
                "median_error": each.median_error,
                "worst_error": each.worst,
            }
            for each in table
        ],
        "worst": [row_of(each) for each in worst],
        "left_out": left,
    }


def text(
    by: str, table: Sequence[Summary], worst: Sequence[Comparison], left: dict[str, int]
) -> str:
    """The whole comparison as lines for a terminal."""
    lines = [f"{by:36} {'rows':>5} {'error':>7} {'bias':>7} {'median':>7} {'worst':>7}"]
    lines += [
        f"{each.name:36} {each.rows:5} {each.mean_error:7.1%} {each.bias:+7.1%} "
        f"{each.median_error:7.1%} {each.worst:7.1%}"
        for each in table
    ]
    lines += ["", "worst rows"]
    lines += [
        f"{each.measured.row['id']:12} {each.measured.row['model']:32.32} "
        f"{each.predicted_seconds:9.3g} s predicted {each.measured.seconds:9.3g} s measured "
        f"{each.error:+.0%}"
        for each in worst
    ]
    if left:
        lines += ["", "rows that can't be computed"]
        lines += [f"{count:5} {reason}" for reason, count in sorted(left.items())]
    return "\n".join(lines)
