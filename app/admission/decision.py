"""What admission decides: data that becomes a response, a log line and a metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.planner.intent import FieldError
from app.planner.request import NoFeasiblePlan, Plan
from app.trainjobs.adapter import Operation

Outcome = Literal["patched", "unchanged", "skipped", "denied"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One answer. `denied` is the only one that is not allowed.

    `reason` is a word of a closed set (why skipped, or what kind of denial), `message` and `causes`
    are for the author of a denied job. `headline` is the plan in a line, "" without one.
    """

    outcome: Outcome
    reason: str = ""
    operations: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    causes: tuple[FieldError, ...] = ()
    message: str = ""
    headline: str = ""
    plan: Plan | NoFeasiblePlan | None = None

    @property
    def allowed(self) -> bool:
        """Whether the job may enter."""
        return self.outcome != "denied"
