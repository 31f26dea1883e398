"""`trainjob-advisor bench`: how fast the search is."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from app.cli.desk import open_catalog
from app.cli.refuse import bad_input
from app.cli.screen import console, print_json, table

BENCHES = ("search",)


def command(
    what: Annotated[str, typer.Argument(help="What to measure: search.")] = "search",
    *,
    sample: Annotated[
        int,
        typer.Option("--sample", min=0, help="Combinations to try, always the same; 0 for all."),
    ] = 2000,
    catalog: Annotated[
        Path | None,
        typer.Option(
            "--catalog",
            exists=True,
            file_okay=False,
            envvar="TRAINJOB_ADVISOR_CATALOG_DIR",
            help="A directory of own entries, over the built-in catalog.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Measure the search over the models, GPUs and sizes of the catalog, without any cache."""
    if what not in BENCHES:
        raise bad_input(f"there is no bench `{what}`; there is {', '.join(BENCHES)}")
    from app.advisor.bench import search_report, timed
    from app.planner import form

    measured = list(timed(open_catalog(catalog), sample, perf_counter))
    report = search_report(measured, form=form())
    if json:
        print_json(report)
    else:
        _show(report)


def milliseconds(seconds: float) -> str:
    """`1.23 ms`."""
    return f"{seconds * 1e3:.2f} ms"


def _show(report: dict[str, Any]) -> None:
    screen = console()
    rows = table("cold", "count", "median", "p99", "max", right=range(1, 5))
    for name in ("search", "plan", "refusal"):
        spread = report[name]
        times = [milliseconds(spread[f"{one}_seconds"]) for one in ("median", "p99", "max")]
        rows.add_row(name, f"{spread['count']}", *times)
    screen.print(rows)
    screen.print(
        f"{report['planner']}: {report['configurations_per_second']:,.0f} configurations/s, "
        f"{report['pruned_share']:.1%} pruned"
    )
    screen.print()
    slowest = table("slowest searches", "time", "space", "evaluated", right=range(1, 4))
    for each in report["slowest"]:
        slowest.add_row(
            each["combination"],
            milliseconds(each["seconds"]),
            f"{each['configurations']:,}",
            f"{each['evaluated']:,}",
        )
    screen.print(slowest)
