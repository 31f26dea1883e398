"""`trainjob-advisor env`: the collective environment of a job, each variable with its reason."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.desk import open_desk, open_rules
from app.cli.question import Question, key_texts, key_values, with_question
from app.cli.refuse import CannotAnswer
from app.cli.screen import console, heading, print_json, say

_JOB = "What the job shows"


def _pairs(flag: str, text: str, metavar: str = "NAME=VALUE") -> Any:
    return typer.Option(flag, metavar=metavar, rich_help_panel=_JOB, help=f"{text} Repeatable.")


@with_question
def command(
    question: Question,
    *,
    layout: Annotated[
        list[str] | None,
        _pairs("--layout", "A field of the job's layout, such as tp=8.", "KEY=VALUE"),
    ] = None,
    set_: Annotated[
        list[str] | None, _pairs("--set", "A variable the job sets itself; it stays.")
    ] = None,
    resource: Annotated[
        list[str] | None, _pairs("--resource", "An extended resource.", "NAME=COUNT")
    ] = None,
    node_label: Annotated[
        list[str] | None, _pairs("--node-label", "A label of the node selector.")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            rich_help_panel=_JOB,
            envvar="TRAINJOB_ADVISOR_COLLECTIVE_PROFILE",
            help="The network profile where nothing else shows one.",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the JSON that `POST /v1/environment` answers.")
    ] = False,
) -> None:
    """Show what a job's collective libraries should be told, and why.

    With a model it is the environment of the job's plan, or of the layout given.
    """
    from app.advisor.environment import environment_body
    from app.advisor.errors import Refusal

    desk = open_desk(question)
    body = question.body() | {
        "layout": key_values(layout or (), flag="--layout"),
        "env": key_texts(set_ or (), flag="--set"),
        "resources": key_texts(resource or (), flag="--resource"),
        "node_labels": key_texts(node_label or (), flag="--node-label"),
        "default_profile": profile,
    }
    given = {name: value for name, value in body.items() if value not in (None, {})}
    answer = environment_body(given, desk=desk, rules=open_rules(desk.catalog))
    if isinstance(answer, Refusal):
        raise CannotAnswer(answer)
    if json:
        print_json(answer)
    else:
        _show(answer)


def _show(answer: dict[str, Any]) -> None:
    screen = console()
    say(screen, f"profile {answer['profile']}", "bold")
    if answer["environment"]:
        heading(screen, "Environment")
    for setting in answer["environment"]:
        say(screen, f"{setting['name']}={setting['value']}", "bold")
        say(screen, f"  {setting['reason']}")
        say(screen, f"  {setting['source']}", "dim")
    for title, key in (("Warnings", "warnings"), ("Advice", "advice")):
        lines = answer.get(key, ())
        if lines:
            heading(screen, title)
        for line in lines:
            say(screen, f"- {line}")
