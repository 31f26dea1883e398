"""What the offline commands work with: the catalog and the planner, without any server."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from app.cli.question import Question
from app.cli.refuse import bad_input

if TYPE_CHECKING:
    from app.advisor.advise import Desk
    from app.catalog.loader import Catalog
    from app.planner.hardware import Precision


def open_desk(question: Question) -> Desk:
    """The desk that answers a question with this catalog and these precisions."""
    from app.advisor.advise import Desk
    from app.planner.search import plan

    return Desk(
        catalog=open_catalog(question.catalog),
        planner=plan,
        clock=perf_counter,
        allowed_precisions=precisions(question.precision),
    )


def open_catalog(overlay: Path | None) -> Catalog:
    """The built-in catalog, with the entries of a directory laid over it."""
    from app.catalog.loader import load_catalog

    return load_catalog(overlay)


def precisions(text: str | None) -> tuple[Precision, ...]:
    """`"bf16,fp8"` as a tuple; without it what a request allows by default."""
    from app.planner.hardware import PRECISIONS

    if text is None:
        return ("bf16", "fp16")
    names = [name.strip() for name in text.split(",")]
    wrong = [name for name in names if name not in PRECISIONS]
    if wrong:
        known = ", ".join(PRECISIONS)
        raise bad_input(f"`--precision` must be of {known}, not `{wrong[0]}`", path="--precision")
    return tuple(one for one in PRECISIONS if one in names)
