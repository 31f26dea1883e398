"""The root command and the table of all others.

A new command is one module with a function `command`, and one line in `COMMANDS`. A module is
imported when its command is named, and imports what is heavy inside the function, so that the
shell never waits for rooms it does not enter.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from app.cli.refuse import BAD_INPUT, OK, CannotAnswer, bad_input, in_flags
from app.cli.screen import print_json

PROGRAM = "trainjob-advisor"
UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""What the parser raises for any wrong use; the class's home differs between releases of typer."""

COMMANDS: dict[str, str] = {
    "plan": "app.cli.plan",
    "estimate": "app.cli.estimate",
    "explain": "app.cli.explain",
    "launch": "app.cli.launch",
    "cost": "app.cli.cost",
    "doctor": "app.cli.doctor",
    "review": "app.cli.review",
    "env": "app.cli.env",
    "models": "app.cli.models",
    "gpus": "app.cli.gpus",
    "accuracy": "app.cli.accuracy",
    "bench": "app.cli.bench",
    "serve": "app.cli.serve",
    "certs": "app.cli.certs",
}


class LazyGroup(TyperGroup):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, or `None`."""
        del ctx
        return load_command(cmd_name) if cmd_name in COMMANDS else None


def load_command(name: str) -> TyperCommand:
    """The command of one name, from the module that holds it."""
    module = importlib.import_module(COMMANDS[name])
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name=name)(module.command)
    command = typer.main.get_command(alone)
    assert isinstance(command, TyperCommand)  # noqa: S101 - one function makes no group
    return command


def version_line() -> str:
    """The version, and which form of the planner runs."""
    from importlib.metadata import version

    from app.planner import form

    return f"{PROGRAM} {version(PROGRAM)} (planner: {form()})"


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version_line())
        raise typer.Exit


cli = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@cli.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show the version and which form of the planner runs.",
        ),
    ] = False,
) -> None:
    """Plan parallelism for training jobs: what fits, what is fast, and why."""
    del version


def main() -> None:
    """Run the command line with the arguments of this process, and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; its exit code.

    Errors are one JSON object on standard output when the caller reads JSON, a sentence on
    standard error otherwise.
    """
    as_json = "--json" in arguments or "--jsonl" in arguments
    try:
        ended = cli(args=list(arguments), prog_name=PROGRAM, standalone_mode=not as_json)
    except SystemExit as exit_:
        return _code(exit_)
    except CannotAnswer as problem:
        return _refuse(problem, as_json=as_json)
    except UsageError as problem:
        return _refuse(bad_input(problem.format_message()), as_json=as_json)  # type: ignore[attr-defined] # every usage error has it
    # Without `standalone_mode`, leaving early answers the exit code instead of raising it.
    return ended if isinstance(ended, int) else OK


def _code(exit_: SystemExit) -> int:
    return exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)


def _refuse(problem: CannotAnswer, *, as_json: bool) -> int:
    if as_json:
        print_json(problem.body)
    else:
        for error in problem.refusal.errors:
            typer.echo(f"error: {in_flags(error.message)}", err=True)
    return BAD_INPUT
