"""How a command says that it cannot do what it was asked."""

from __future__ import annotations

from typing import Any

from app.advisor.errors import Refusal, refusal_body
from app.planner.intent import FieldError

OK, NO, BAD_INPUT = 0, 1, 2
"""Exit codes: answered (yes), answered no (denied, nothing fits), could not be asked."""


class CannotAnswer(Exception):  # noqa: N818 - not a failure of ours: the input cannot be asked
    """Stops a command; `main` prints the refusal in the form that was asked for."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal)
        self.refusal = refusal

    @property
    def body(self) -> dict[str, Any]:
        """The error object, as HTTP answers it."""
        return refusal_body(self.refusal)


def bad_input(message: str, *, path: str = "") -> CannotAnswer:
    """What to raise when a flag or a file cannot be used."""
    error = FieldError(path=path, value=None, message=message)
    return CannotAnswer(Refusal(code="invalid_request", errors=(error,)))
