"""What commands write: JSON for programs, and tables that fit the terminal for people.

Plain text without colours, bars and lines of ASCII: whenever the output is no terminal, `NO_COLOR`
is set, or the encoding has no block characters.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_EIGHTHS = " ▏▎▍▌▋▊▉█"
PLAIN_WIDTH = 100
"""Columns of an output that is no terminal, so that a file reads the same everywhere."""


def print_json(body: Mapping[str, Any]) -> None:
    """One JSON document: indented for a person at a terminal, one line for a program."""
    indent = 2 if sys.stdout.isatty() else None
    sys.stdout.write(json.dumps(body, indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def console(*, error: bool = False) -> Console:
    """The terminal, or a plain page of `PLAIN_WIDTH` columns; `error` for standard error."""
    from rich.console import Console

    is_terminal = (sys.stderr if error else sys.stdout).isatty()
    plain = not is_terminal or bool(os.environ.get("NO_COLOR"))
    return Console(
        highlight=False,
        stderr=error,
        width=None if is_terminal else PLAIN_WIDTH,
        color_system=None if plain else "auto",
    )


def fancy(screen: Console) -> bool:
    """Whether block characters and rules may be used."""
    return screen.color_system is not None and screen.encoding.startswith("utf")


def table(*columns: str, right: Sequence[int] = ()) -> Table:
    """A table without a frame; `right` counts the columns, from 0, that align right."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, column in enumerate(columns):
        made.add_column(column, justify="right" if number in right else "left")
    return made


def say(screen: Console, text: str, style: str = "") -> None:
    """A paragraph: wrapped on a terminal, one line otherwise, so that it can be searched for."""
    from rich.text import Text

    screen.print(Text(text, style=style), soft_wrap=not screen.is_terminal)


def heading(screen: Console, title: str) -> None:
    """A blank line and a title."""
    screen.print()
    screen.print(title, style="bold cyan")


def bar(share: float, width: int, *, blocks: bool, style: str) -> Text:
    """`share` (0 to 1) of `width` cells, in eighths of a cell where `blocks` are there."""
    from rich.text import Text

    cells = max(0.0, min(1.0, share)) * width
    if not blocks:
        return Text("#" * round(cells))
    whole, rest = divmod(round(cells * 8), 8)
    return Text("█" * whole + (_EIGHTHS[rest] if rest else ""), style=style)
