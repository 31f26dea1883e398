"""What the advisor answers when it cannot: one shape on every route and in the command line.

invalid_json      the text is not JSON
invalid_request   a field is unknown, missing, of the wrong type or out of range
unresolved        a name is not in the catalog, or the facts given contradict each other
not_found         a search word matches nothing
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.planner.intent import FieldError

Code = Literal["invalid_json", "invalid_request", "unresolved", "not_found"]


SHOWN_ERRORS = 64
"""Errors told one by one: more than anybody reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A question that has no answer, and everything that is wrong with it."""

    code: Code
    errors: tuple[FieldError, ...]


def error_body(code: str, message: str, path: str = "") -> dict[str, Any]:
    """The error object for one thing wrong at `path` (empty: the document as a whole)."""
    return {"error": {"code": code, "message": message, "path": path}}


def refusal_body(refusal: Refusal) -> dict[str, Any]:
    """The error object for all that is wrong.

    `message` and `path` are those of the first error. When there are more, `message` holds their
    sentences and `details` lists them with their paths; after `SHOWN_ERRORS` only their number.
    """
    errors = refusal.errors[:SHOWN_ERRORS]
    if len(errors) == 1:
        return error_body(refusal.code, errors[0].message, errors[0].path)
    more = len(refusal.errors) - len(errors)
    sentences = [error.message for error in errors] + [f"and {more} more errors"] * (more > 0)
    message = "; ".join(sentences)
    body = error_body(refusal.code, message, errors[0].path if errors else "")
    body["error"]["details"] = _details(errors)
    return body


def _details(errors: Sequence[FieldError]) -> list[dict[str, str]]:
    return [{"path": error.path, "message": error.message} for error in errors]
