"""`trainjob-advisor launch`: from a plan to files that start."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.desk import open_desk
from app.cli.question import Question, key_values, layout_pairs, with_question
from app.cli.refuse import NO, CannotAnswer, bad_input
from app.cli.screen import console, heading, print_json, say


@with_question
def command(
    question: Question,
    *,
    launcher: Annotated[
        str,
        typer.Option(
            "--launcher",
            help="torchtitan, megatron-lm, megatron-bridge, deepspeed, accelerate, ddp, fsdp2, "
            "trainjob or kubeflow.",
        ),
    ],
    layout: Annotated[
        list[str] | None,
        typer.Option(
            "--layout",
            metavar="KEY=VALUE[,...]",
            help="Fields of a layout to take in place of the plan. Repeatable.",
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--write", help="Write the files into this directory too.", file_okay=False),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the JSON that `POST /v1/launch` answers.")
    ] = False,
) -> None:
    """Write the files and the command that start a plan, with tips on what binds.

    Exit code 0: files; 1: nothing fits; 2: bad input, or a layout the launcher cannot start.
    """
    from app.advisor.errors import Refusal
    from app.advisor.launch.answer import answer_launch

    body = question.body() | {"launcher": launcher}
    if layout:
        body["layout"] = key_values(layout_pairs(layout), flag="--layout")
    answer = answer_launch(body, open_desk(question))
    if isinstance(answer, Refusal):
        raise CannotAnswer(answer)
    if directory is not None:
        _write(directory, answer.body.get("files", ()))
    if json:
        print_json(answer.body)
    elif answer.launch is None:
        _show_nothing(answer.body["infeasible"])
    else:
        _show(answer.body)
        if directory is not None:
            names = ", ".join(str(directory / one["name"]) for one in answer.body["files"])
            heading(console(), "Written")
            say(console(), names)
    if answer.launch is None:
        raise typer.Exit(NO)


def _write(directory: Path, files: Any) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for one in files:
            (directory / one["name"]).write_text(one["content"], "utf-8")
    except OSError as problem:
        raise bad_input(f"`--write` failed: {problem}", path="--write") from problem


def _show_nothing(infeasible: dict[str, Any]) -> None:
    screen = console()
    say(screen, "Nothing legal fits that this launcher can start.", style="bold red")
    for line in (*infeasible["reasons"], *infeasible["remedies"]):
        say(screen, f"- {line}")


def _show(body: dict[str, Any]) -> None:
    screen = console()
    say(screen, body["summary"], style="bold")
    say(screen, body["release"], style="dim")
    for one in body["files"]:
        heading(screen, one["name"])
        say(screen, one["content"].rstrip())
    heading(screen, "Start it")
    say(screen, command_line(body["command"]))
    heading(screen, "Strategy")
    plan = body["strategy"]
    agrees = (
        "as the size calls for" if plan["agrees"] else f"the size calls for {plan['rule_of_thumb']}"
    )
    say(screen, f"{plan['chosen']}; {agrees}" + (f": {plan['reason']}" if plan["reason"] else ""))
    heading(screen, "Tips")
    for tip in body["tips"]:
        share = f" ({tip['share']:.0%})" if tip["share"] is not None else ""
        say(screen, f"- {tip['binds']}{share}: {tip['advice']}")
    for title, key in (("Warnings", "warnings"), ("Notes", "notes")):
        if body[key]:
            heading(screen, title)
        for line in body[key]:
            say(screen, f"- {line}")


def command_line(words: list[str]) -> str:
    """A line for a shell; words that a shell expands stay as they are."""
    return " ".join(word if "$" in word else shlex.quote(word) for word in words)
