"""The reports for people: tables, a histogram as text or as a picture, a progress bar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli.refuse import bad_input
from app.cli.screen import bar, console, fancy, heading, table

if TYPE_CHECKING:
    from app.cli.load.measure import Tick

BAR_CELLS = 40
INCHES = (9, 4.5)


def show_latencies(report: dict[str, Any]) -> None:
    """The report of `bench server`."""
    screen = console()
    server = report["server_cpu_share"]
    screen.print(
        f"{report['rate_reached']:.1f} of {report['rate']:g} reviews/s for "
        f"{report['seconds']:g} s over {report['connections']} connections; first review "
        f"{in_words(report['first_seconds'])}; of one core client {report['client_cpu_share']:.0%}"
        + ("" if server is None else f", server {server:.0%}")
        + f"; planner {report['planner'] or 'unknown'}"
    )
    screen.print()
    rows = table(
        "from due to answered",
        "count",
        "median",
        "p99",
        "max",
        "denied",
        "errors",
        right=range(1, 7),
    )
    for name, tally in {**report["by_kind"], "all": report["all"]}.items():
        times = [in_words(tally[f"{one}_seconds"]) for one in ("median", "p99", "max")]
        rows.add_row(name, f"{tally['count']}", *times, f"{tally['denied']}", f"{tally['errors']}")
    screen.print(rows)
    heading(screen, "latency")
    most = max((each["count"] for each in report["histogram"]), default=1)
    buckets = table("at most", "reviews", "", right=(0, 1))
    for each in report["histogram"]:
        drawn = bar(each["count"] / most, BAR_CELLS, blocks=fancy(screen), style="cyan")
        buckets.add_row(in_words(each["le_seconds"]), f"{each['count']}", drawn)
    screen.print(buckets)


def show_ratios(report: dict[str, Any]) -> None:
    """The report of `bench server --ratios`."""
    screen = console()
    screen.print(f"planner {report['planner'] or 'unknown'}")
    rows = table("at saturation", "ratio", "reviews/s", "server CPU", "errors", right=range(1, 5))
    for name, ratio in report["ratios"].items():
        cpu = report["server_cpu_seconds_per_review"][name]
        rows.add_row(
            name,
            f"{ratio:.2f}",
            f"{report['reviews_per_second'][name]:,.0f}",
            "" if cpu is None else in_words(cpu),
            f"{report['errors'][name]}",
        )
    screen.print(rows)


def in_words(seconds: float) -> str:
    """`1.23 ms`, `2.50 s`."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.2f} ms"


@contextmanager
def progress() -> Iterator[Tick]:
    """A bar on standard error if that is a terminal, nothing otherwise.

    No thread draws it, and it is drawn once a cell: drawing takes a millisecond, in which the
    client reads no answer.
    """
    screen = console(error=True)
    if not screen.is_terminal:
        yield lambda *_: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(BAR_CELLS), TaskProgressColumn())
    with Progress(*columns, console=screen, auto_refresh=False, transient=True) as shown:
        task = shown.add_task("")
        drawn = ("", -1.0)

        def tick(name: str, share: float) -> None:
            nonlocal drawn
            if name != drawn[0] or share - drawn[1] >= 1 / BAR_CELLS:
                shown.update(task, description=name, completed=100 * min(share, 1.0))
                shown.refresh()
                drawn = (name, share)

        yield tick


def require_matplotlib() -> None:
    """Refuse before anything is measured."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise bad_input(
            "`--plot` needs matplotlib, which is not installed: pip install matplotlib",
            path="--plot",
        )


def plot(report: dict[str, Any], file: Path) -> None:
    """The histogram as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=INCHES, layout="constrained")
    axes = figure.subplots()
    labels = [in_words(each["le_seconds"]) for each in report["histogram"]]
    axes.bar(labels, [each["count"] for each in report["histogram"]], color="#2a7f9e")
    axes.set_xlabel("latency at most, from when a review was due")
    axes.set_ylabel("reviews")
    axes.set_title(
        f"{report['rate_reached']:.0f} reviews/s: "
        f"median {in_words(report['all']['median_seconds'])}, "
        f"p99 {in_words(report['all']['p99_seconds'])}"
    )
    axes.tick_params(axis="x", rotation=45)
    try:
        figure.savefig(file)
    except (OSError, ValueError) as problem:
        raise bad_input(f"`--plot` must be a picture that can be written: {problem}") from problem
