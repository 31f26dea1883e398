"""`trainjob-advisor cost`: what a number of tokens costs, on every machine with a price."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.desk import open_desk
from app.cli.question import Question, with_question
from app.cli.refuse import NO, CannotAnswer, bad_input
from app.cli.screen import console, heading, print_json, say, table

if TYPE_CHECKING:
    from app.advisor.cost import CostAnswer, Progress
    from app.advisor.errors import Refusal

ROWS = 20
SIZES_KEPT = 4096
"""Sizes of one sweep whose best layout is remembered: equal machines have many names."""
_SUFFIXES = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}


@with_question
def command(
    question: Question,
    *,
    tokens: Annotated[
        str, typer.Option("--tokens", help="Tokens to train on: a number, or 300B, 1.5T.")
    ],
    deadline: Annotated[
        float | None, typer.Option("--deadline", help="Hours the job may take.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option("--budget", help="Dollars the job may cost.")
    ] = None,
    max_gpus: Annotated[
        int | None, typer.Option("--max-gpus", help="Most GPUs of a job to try (1024).")
    ] = None,
    spot_interruption_hours: Annotated[
        float | None,
        typer.Option(
            "--spot-interruption-hours",
            help="Hours between interruptions of one spot machine (168, assumed).",
        ),
    ] = None,
    all_rows: Annotated[
        bool, typer.Option("--all", help="Show every machine and size, not the best few.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the JSON that `POST /v1/cost` answers.")
    ] = False,
) -> None:
    """Compare machines and cluster sizes by time and money for a number of tokens.

    Exit code 0: a recommendation; 1: nothing meets the deadline or the budget; 2: bad input.
    """
    from app.advisor.cost import answer_cost
    from app.advisor.errors import Refusal
    from app.observability.planning import CachedBest

    body = question.body() | {
        "tokens": count(tokens),
        "deadline_hours": deadline,
        "budget_usd": budget,
        "max_gpus": max_gpus,
        "spot_interruption_hours": spot_interruption_hours,
    }
    given = {name: value for name, value in body.items() if value is not None}
    desk = open_desk(question)
    desk = replace(desk, best=CachedBest(desk.best, size=SIZES_KEPT))
    answer = watched(answer_cost(given, desk))
    if isinstance(answer, Refusal):
        raise CannotAnswer(answer)
    if json:
        print_json(answer.body)
    else:
        show(answer.body, every=all_rows)
    if answer.recommended is None:
        raise typer.Exit(NO)


def count(text: str) -> int:
    """`"300B"` as 300,000,000,000."""
    plain = text.strip().replace(",", "").replace("_", "").casefold()
    factor = _SUFFIXES.get(plain[-1:], 1)
    try:
        number = float(plain[:-1] if factor > 1 else plain)
        return round(number * factor)
    except (ValueError, OverflowError) as problem:
        message = f"`--tokens` must be a number, such as 300B, not `{text}`"
        raise bad_input(message, path="--tokens") from problem


def watched(
    steps: Generator[Progress, None, CostAnswer | Refusal],
) -> CostAnswer | Refusal:
    """What `steps` returns, with a progress bar on a terminal."""
    from rich.progress import Progress as Bar

    screen = console(error=True)
    with Bar(console=screen, transient=True, disable=not screen.is_terminal) as shown:
        task = shown.add_task("planning", total=None)
        while True:
            try:
                at = next(steps)
            except StopIteration as end:
                result: CostAnswer | Refusal = end.value
                return result
            shown.update(task, completed=at.done, total=at.total, description=at.name)


def show(body: dict[str, Any], *, every: bool) -> None:
    """The answer as a page."""
    screen = console()
    best = body["recommended"]
    if best is None:
        say(screen, body["reason"], style="bold red")
    else:
        say(
            screen,
            f"{best['nodes']} x {best['instance_type']}: {best['hours']:,.1f} hours, "
            f"{best['usd']:,.0f} USD; {best['reason']}",
            style="bold",
        )
        say(screen, best["plan"], style="dim")
    rows = body["offers"] if every else body["pareto"][:ROWS]
    if rows:
        heading(screen, "Every machine and size" if every else "Nothing is both faster and cheaper")
        screen.print(_offers(rows))
    if body["scaling"]:
        heading(screen, "More machines of the recommended type")
        screen.print(_scaling(body["scaling"]))
        say(screen, body["scaling_advice"])
    if body["checkpoint"]:
        _show_checkpoint(screen, body["checkpoint"])
    if body["without_price"]:
        heading(screen, "Not compared: no price known")
        say(screen, ", ".join(body["without_price"]))
    if every and body["cannot"]:
        heading(screen, "Cannot run it")
        for one in body["cannot"]:
            say(screen, f"- {one['instance_type']}: {one['reason']}")
    heading(screen, "Assumptions")
    for line in body["assumptions"]:
        say(screen, f"- {line}")


def _offers(rows: list[dict[str, Any]]) -> Any:
    shown = table(
        "instance type",
        "provider",
        "nodes",
        "hours",
        "USD",
        "spot",
        "USD/B tok",
        "MWh",
        "price of",
        right=(2, 3, 4, 5, 6, 7),
    )
    for one in rows:
        spot, energy = one["spot_usd"], one["energy_kwh_upper_bound"]
        price = one["price"]
        shown.add_row(
            one["instance_type"],
            one["provider"],
            f"{one['nodes']:,}",
            f"{one['hours']:,.1f}",
            f"{one['usd']:,.0f}",
            f"{spot:,.0f}" if spot is not None else "-",
            f"{one['usd_per_billion_tokens']:,.0f}",
            f"{energy / 1000:,.1f}" if energy is not None else "-",
            f"{price['region']} {price['date']}",
        )
    return shown


def _scaling(rows: list[dict[str, Any]]) -> Any:
    shown = table("nodes", "GPUs", "tokens/s", "efficiency", "hours", "USD", "", right=range(6))
    for row in rows:
        shown.add_row(
            f"{row['nodes']:,}",
            f"{row['gpus']:,}",
            f"{row['tokens_per_second']:,.0f}",
            f"{row['efficiency']:.0%}",
            f"{row['hours']:,.1f}",
            f"{row['usd']:,.0f}",
            _paying(row),
        )
    return shown


def _paying(row: dict[str, Any]) -> str:
    """Whether a step up pays; the first size is a step from nothing."""
    if row["speedup_over_previous"] is None:
        return "the first size"
    return "pays" if row["pays"] else "does not pay"


def _show_checkpoint(screen: Any, advice: dict[str, Any]) -> None:
    heading(screen, "Checkpoints and spot machines")
    own, inputs = advice["on_demand"], advice["inputs"]
    say(
        screen,
        f"On demand every {own['interval_minutes']} minutes ({own['overhead']:.1%} of the time): "
        f"{inputs['checkpoint_bytes'] / 1e9:,.0f} GB in {inputs['write_seconds']:,.0f} s, a "
        f"failure every {own['seconds_between_interruptions'] / 3600:,.1f} hours.",
    )
    say(screen, f"{advice['advice']}.")
