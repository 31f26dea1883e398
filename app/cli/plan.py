"""`trainjob-advisor plan`: the best layout for a job, and why."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.desk import open_desk
from app.cli.jsonl import answer_lines
from app.cli.question import Question, with_question
from app.cli.refuse import NO, CannotAnswer, bad_input
from app.cli.screen import console, print_json

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print the JSON that `POST /v1/plan` answers.")
]
JsonlOption = Annotated[
    str | None,
    typer.Option(
        "--jsonl",
        metavar="FILE|-",
        help="Answer one request a line from FILE or standard input, one JSON line each.",
    ),
]


@with_question
def command(question: Question, *, json: JsonFlag = False, jsonl: JsonlOption = None) -> None:
    """Find the fastest layout that fits, and say why.

    Exit code 0: a plan; 1: nothing fits (the answer says why and what would); 2: bad input.
    """
    from app.advisor.advise import answer_plan
    from app.advisor.errors import Refusal, refusal_body
    from app.planner.request import NoFeasiblePlan

    desk = open_desk(question)
    if jsonl is not None:
        refuse_flags_beside_jsonl(question)

        def answer(body: Any) -> dict[str, Any]:
            answered = answer_plan(body, desk)
            return refusal_body(answered) if isinstance(answered, Refusal) else answered.body

        answer_lines(jsonl, answer)
        return
    answered = answer_plan(question.body(), desk)
    if isinstance(answered, Refusal):
        raise CannotAnswer(answered)
    if json:
        print_json(answered.body)
    else:
        from app.cli.plan_view import show_plan

        show_plan(console(), answered)
    if isinstance(answered.outcome, NoFeasiblePlan):
        raise typer.Exit(NO)


def refuse_flags_beside_jsonl(question: Question) -> None:
    """Raise if flags state a question while the lines of a file state theirs."""
    if given := question.given():
        raise bad_input(f"`--jsonl` takes every question from its lines; remove {given[0]}")
