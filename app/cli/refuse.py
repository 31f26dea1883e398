"""How a command says that it cannot do what it was asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from app.advisor.errors import Refusal, refusal_body
from app.planner.intent import FieldError

OK, NO, BAD_INPUT = 0, 1, 2
"""Exit codes: answered (yes), answered no (denied, nothing fits), could not be asked."""


WORKLOAD: Final = (
    "sequence_length",
    "global_batch_size",
    "task",
    "lora_rank",
    "optimizer",
    "offload",
)
"""Keys of a request's workload, each a flag of its own."""


def flag_of(name: str) -> str:
    """The flag that sets a field."""
    return f"--{name.replace('_', '-')}"


FLAGS: Final[Mapping[str, str]] = {
    "deadline_hours": "--deadline",
    "budget_usd": "--budget",
    "workload": "the workload flags",
    "pins": "--pin",
} | {
    name: flag_of(name)
    for name in (
        "model",
        "hf_config",
        "architecture",
        "gpu",
        "nodes",
        "gpus_per_node",
        "fabric",
        "instance_type",
        "framework",
        *WORKLOAD,
        "launcher",
        "layout",
        "tokens",
        "max_gpus",
        "spot_interruption_hours",
    )
}
"""The flag that sets a key of a request."""
_KEYS: Final = re.compile(r"`(?:(workload|pins|layout)\.)?([a-z_]+)`")


def in_flags(message: str) -> str:
    """A sentence about the keys of a request, in the flags of the command line."""

    def flag(found: re.Match[str]) -> str:
        part, name = found.groups()
        if part in ("pins", "layout"):
            return f"`{FLAGS[part]} {name}`"
        return f"`{FLAGS[name]}`" if name in FLAGS else found[0]

    # What follows "one of" are values, and a value may be called as a key is.
    keys, one_of, values = message.partition(" one of ")
    return f"{_KEYS.sub(flag, keys)}{one_of}{values}"


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
