"""`trainjob-advisor bench`: how fast the search and the service are."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from time import process_time, time_ns
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.desk import open_catalog
from app.cli.refuse import bad_input
from app.cli.screen import console, print_json, table

if TYPE_CHECKING:
    from app.cli.load.measure import Effort
    from app.cli.load.process import Server
    from app.cli.load.reviews import Magazine

BENCHES = ("search", "server")
MOST_CONNECTIONS = 25
"""As many as the API server keeps to one webhook."""


def command(
    what: Annotated[str, typer.Argument(help="What to measure: search or server.")] = "search",
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
    rate: Annotated[
        float, typer.Option("--rate", min=0.1, max=100_000, help="Reviews a second, on average.")
    ] = 200.0,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, help="How long; with --ratios, each server.")
    ] = 10.0,
    connections: Annotated[
        int, typer.Option("--connections", min=1, max=MOST_CONNECTIONS, help="Kept connections.")
    ] = MOST_CONNECTIONS,
    ratios: Annotated[
        bool,
        typer.Option("--ratios", help="Compare throughput with a bare handler and without cache."),
    ] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Write the histogram of latencies as a picture.")
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="A server that runs already; else one is started.")
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option("--ca", exists=True, dir_okay=False, help="The authority of its certificate."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Measure the search without any cache, or a server under load."""
    if what not in BENCHES:
        raise bad_input(f"there is no bench `{what}`; there is {', '.join(BENCHES)}")
    if what == "search":
        _search(catalog, sample, json=json)
        return
    from app.cli.load.measure import Effort
    from app.cli.load.process import running

    effort = Effort(rate=rate, seconds=seconds, connections=connections)
    if ratios:
        if url or plot:
            raise bad_input("`--ratios` starts servers of its own and has no `--url` or `--plot`")
        _ratios(catalog, effort, json=json)
    else:
        _server(catalog, effort, running(url, ca) if url else None, plot=plot, json=json)


def _server(
    catalog: Path | None, effort: Effort, server: Server | None, *, plot: Path | None, json: bool
) -> None:
    from app.cli.load import view
    from app.cli.load.measure import latencies
    from app.cli.load.process import started

    if plot is not None:
        view.require_matplotlib()
    with ExitStack() as stack:
        measured = server or stack.enter_context(started())
        tick = stack.enter_context(view.progress())
        try:
            report = latencies(measured, _magazine(catalog), effort, tick)
        except OSError as problem:
            raise bad_input(f"no answer from {measured.url}: {problem}", path="--url") from problem
    if plot is not None:
        view.plot(report, plot)
    if json:
        print_json(report)
    else:
        view.show_latencies(report)


def _ratios(catalog: Path | None, effort: Effort, *, json: bool) -> None:
    from app.cli.load.measure import ratios
    from app.cli.load.view import progress, show_ratios

    with progress() as tick:
        report = ratios(_magazine(catalog), effort, tick)
    if json:
        print_json(report)
    else:
        show_ratios(report)


def _magazine(catalog: Path | None) -> Magazine:
    from app.cli.load.reviews import Magazine

    # Another seed each time: a server that runs already would know the questions of the last.
    return Magazine(open_catalog(catalog).models, seed=time_ns())


def _search(catalog: Path | None, sample: int, *, json: bool) -> None:
    from app.advisor.bench import growth, search_report, timed
    from app.planner import form

    known = open_catalog(catalog)
    measured = list(timed(known, sample, process_time))
    report = search_report(measured, growth(known, process_time), form=form())
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
    screen.print()
    growing = table("growth", "size", "time", "space", "evaluated", right=range(1, 5))
    for each in report["growth"]:
        growing.add_row(
            f"{each['model']}, {each['axis']}",
            f"{each['size']:,}",
            milliseconds(each["seconds"]),
            f"{each['configurations']:,}",
            f"{each['evaluated']:,}",
        )
    screen.print(growing)
