"""`trainjob-advisor review`: what admission would do with a manifest."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.models import CatalogOption
from app.cli.refuse import NO, bad_input
from app.cli.screen import console, heading, print_json, say

if TYPE_CHECKING:
    from rich.console import Console

    from app.cli.offline import Reviewed

SHOWN_CHARACTERS = 200


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
    catalog: CatalogOption = None,
    precision: Annotated[
        str | None,
        typer.Option(
            "--precision",
            envvar="TRAINJOB_ADVISOR_ALLOWED_PRECISIONS",
            help="Precisions a plan may choose from, with commas (bf16,fp16).",
            show_default=False,
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

    mutate, validate = open_webhooks(catalog, precision)
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
    word, style = ("allowed", "bold green") if answer.allowed else ("denied", "bold red")
    say(screen, f"{word}: {answer.operation} {answer.gvk} {answer.name}", style)
    if answer.status is not None and not answer.allowed:
        for cause in _causes(answer.status):
            say(screen, f"- {cause}")
    for warning in answer.warnings:
        say(screen, f"warning: {warning}", "yellow")


def _causes(status: Mapping[str, Any]) -> list[str]:
    causes = (status.get("details") or {}).get("causes") or ()
    lines = [f"{cause.get('field', '')}: {cause.get('message', '')}" for cause in causes]
    return lines or [str(status.get("message", ""))]


def _show_patch(screen: Console, answer: Reviewed) -> None:
    if not answer.patch:
        say(screen, "no patch", "dim")
        return
    if not answer.allowed:
        say(screen, f"the patch ({len(answer.patch)} operations) is dropped with it", "dim")
        return
    heading(screen, "Patch")
    for operation in answer.patch:
        say(screen, f"{operation['op']} {operation['path']}", "bold")
        for line in _value_lines(operation["value"]):
            say(screen, f"    {line}")


def _value_lines(value: Any) -> Iterator[str]:
    """A value for reading: one line for each item, long texts cut."""
    if isinstance(value, Mapping):
        yield from (f"{key}: {_short(item)}" for key, item in value.items())
    elif isinstance(value, list):
        yield from (f"- {_short(item)}" for item in value)
    else:
        yield _short(value)


def _short(value: Any) -> str:
    text = dumps(value, ensure_ascii=False)
    if len(text) <= SHOWN_CHARACTERS:
        return text
    return f"{text[:SHOWN_CHARACTERS]}... ({len(text):,} characters; --json shows all)"


def _print_yaml(answer: Reviewed) -> None:
    import yaml

    sys.stdout.write("---\n")
    yaml.safe_dump(dict(answer.patched), sys.stdout, sort_keys=False, allow_unicode=True)
