"""`trainjob-advisor estimate`: what one layout would do."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.desk import open_desk
from app.cli.jsonl import answer_lines
from app.cli.plan import JsonlOption, refuse_flags_beside_jsonl
from app.cli.question import Question, key_values, with_question
from app.cli.refuse import CannotAnswer, bad_input
from app.cli.screen import console, print_json


@with_question
def command(
    question: Question,
    *,
    layout: Annotated[
        list[str] | None,
        typer.Option(
            "--layout",
            metavar="KEY=VALUE",
            help="A field of the layout, such as tp=8. Repeatable; the rest are defaults.",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the JSON that `POST /v1/estimate` answers.")
    ] = False,
    jsonl: JsonlOption = None,
) -> None:
    """Judge one layout: legal or not, what it holds in memory, how long a step takes.

    Exit code 0: answered, whatever the verdict; 2: bad input.
    """
    from app.advisor.advise import answer_estimate
    from app.advisor.errors import Refusal, refusal_body

    desk = open_desk(question)
    if jsonl is not None:
        refuse_flags_beside_jsonl(question)
        if layout:
            raise bad_input("`--jsonl` takes every layout from its lines; remove --layout")

        def answer(body: Any) -> dict[str, Any]:
            answered = answer_estimate(body, desk)
            return refusal_body(answered) if isinstance(answered, Refusal) else answered.body

        answer_lines(jsonl, answer)
        return
    body = question.body() | {"layout": key_values(layout or (), flag="--layout")}
    answered = answer_estimate(body, desk)
    if isinstance(answered, Refusal):
        raise CannotAnswer(answered)
    if json:
        print_json(answered.body)
    else:
        from app.cli.plan_view import show_estimate

        show_estimate(console(), answered)
