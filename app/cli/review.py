"""`trainjob-advisor review`: what admission would do with a manifest."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.refuse import NO, bad_input
from app.cli.screen import console, heading, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from app.cli.offline import Reviewed


def command(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|-", help="A TrainJob (YAML or JSON, several too) or an AdmissionReview."
        ),
    ],
    *,
    patched: Annotated[
        bool,
        typer.Option("--patched", help="Print the object as it would be stored, as YAML."),
    ] = False,
    catalog: Annotated[
        Path | None,
        typer.Option(
            "--catalog",
            exists=True,
            file_okay=False,
            help="A directory of own entries, over the built-in catalog.",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the response as JSON, the patch decoded.")
    ] = False,
) -> None:
    """Run admission offline: mutate, then validate what results.

    Exit code 0: allowed; 1: denied; 2: bad input. With --patched the YAML alone goes to standard
    output, the decision to standard error.
    """
    from app.cli.desk import open_webhooks
    from app.cli.offline import documents, review

    mutate, validate = open_webhooks(catalog)
    answers = [review(one, mutate=mutate, validate=validate) for one in documents(_text(file))]
    if not answers:
        raise bad_input("FILE must hold at least one object")
    for answer in answers:
        if json:
            print_json(answer.body | ({"patched": answer.patched} if patched else {}))
        elif patched:
            _show_decision(console(error=True), answer)
            _print_yaml(answer)
        else:
            screen = console()
            _show_decision(screen, answer)
            _show_patch(screen, answer)
    if not all(answer.allowed for answer in answers):
        raise typer.Exit(NO)


def _text(file: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise bad_input(f"FILE must be readable UTF-8: {problem}") from problem


def _show_decision(screen: Console, answer: Reviewed) -> None:
    from rich.text import Text

    word, style = ("allowed", "bold green") if answer.allowed else ("denied", "bold red")
    what = f": {answer.operation} {answer.gvk} {answer.name}"
    screen.print(Text.assemble((word, style), what))
    if answer.status is not None and not answer.allowed:
        screen.print(Text(str(answer.status.get("message", ""))))
    for warning in answer.warnings:
        screen.print(Text.assemble(("warning", "yellow"), f": {warning}"))


def _show_patch(screen: Console, answer: Reviewed) -> None:
    from json import dumps

    from rich.text import Text

    if not answer.patch:
        screen.print(Text("no patch", style="dim"))
        return
    heading(screen, "Patch")
    for operation in answer.patch:
        path = str(operation["path"])
        value = dumps(operation["value"], indent=2, ensure_ascii=False)
        screen.print(Text.assemble((f"{operation['op']:7} ", "dim"), (path, "bold")))
        screen.print(Text("\n".join(f"    {line}" for line in value.splitlines())))


def _print_yaml(answer: Reviewed) -> None:
    import yaml

    sys.stdout.write("---\n")
    yaml.safe_dump(dict(answer.patched), sys.stdout, sort_keys=False, allow_unicode=True)
