"""`trainjob-advisor explain`: the plan against a layout of yours, term by term."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.desk import open_desk
from app.cli.question import Question, key_values, layout_pairs, with_question
from app.cli.refuse import NO, CannotAnswer
from app.cli.screen import console, heading, print_json, say, table

_UNITS = {"seconds": (1.0, "s"), "bytes": (2.0**30, "GiB")}
SHOWN = 0.005
"""What two decimals show: less rounds to 0.00."""


@with_question
def command(
    question: Question,
    *,
    layout: Annotated[
        list[str] | None,
        typer.Option(
            "--layout",
            metavar="KEY=VALUE[,...]",
            help="Fields of the layout, such as tp=8,pp=4. Repeatable; the rest are defaults.",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the JSON that `POST /v1/explain` answers.")
    ] = False,
) -> None:
    """Compare a layout with the plan: what is faster, what breaks, and what would mend it.

    Exit code 0: the layout is legal and fits; 1: it is not or does not; 2: bad input.
    """
    from app.advisor.errors import Refusal
    from app.advisor.why import answer_explain

    pairs = layout_pairs(layout or ())
    body = question.body() | {"layout": key_values(pairs, flag="--layout")}
    answer = answer_explain(body, open_desk(question))
    if isinstance(answer, Refusal):
        raise CannotAnswer(answer)
    if json:
        print_json(answer.body)
    else:
        _show(answer.body)
    if not answer.body["works"]:
        raise typer.Exit(NO)


def _show(body: dict[str, Any]) -> None:
    screen = console()
    say(screen, body["verdict"], style="bold")
    if body["infeasible"]:
        heading(screen, "There is no plan either")
        for line in (*body["infeasible"]["reasons"], *body["infeasible"]["remedies"]):
            say(screen, f"- {line}")
    if body["estimate"]["violations"]:
        heading(screen, "Rules it breaks")
    for broken in body["estimate"]["violations"]:
        say(screen, f"- {broken['rule']}: {broken['message']}")
    if body["changed_fields"]:
        heading(screen, "What differs")
        rows = table("", "asked", "plan")
        for one in body["changed_fields"]:
            rows.add_row(one["field"], str(one["asked"]), str(one["plan"]))
        screen.print(rows)
    _terms(screen, "Time of one step", body["time"], "seconds")
    _terms(screen, "Memory of one GPU", body["memory"], "bytes")
    if not body["works"]:
        heading(screen, "Single changes that would make it legal and fit")
        for one in body["remedies"]:
            say(screen, f"- {one['says']}")
        if not body["remedies"]:
            say(screen, f"none: {_no_remedy(body)}")


def _no_remedy(body: dict[str, Any]) -> str:
    """Why no single change helps."""
    if not body["infeasible"]:
        return "more than one field must change"
    return "no layout fits, as said above, whatever changes"


def _terms(screen: Any, title: str, rows: list[dict[str, Any]], kind: str) -> None:
    unit, word = _UNITS[kind]
    both = [(row["words"], row[f"asked_{kind}"] / unit, row[f"plan_{kind}"] / unit) for row in rows]
    shown = [row for row in both if max(row[1:]) >= SHOWN]
    if not shown:
        return
    heading(screen, title)
    lines = table("", f"asked {word}", f"plan {word}", "difference", right=(1, 2, 3))
    total = ("total", sum(row[1] for row in both), sum(row[2] for row in both))
    for words, asked, plan in (*shown, total):
        lines.add_row(words, f"{asked:,.2f}", f"{plan:,.2f}", signed(asked - plan))
    screen.print(lines)


def signed(number: float) -> str:
    """Two decimals with a sign; what rounds to nothing has none."""
    return f"{number:+,.2f}" if abs(number) >= SHOWN else "0.00"
