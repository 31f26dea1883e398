"""What one review leaves behind: a line in the log, a count, a duration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.admission.decision import Decision
from app.admission.review import Review
from app.observability.logs import LOGGED_CHARACTERS, LOGGED_REJECTIONS, logger
from app.observability.metrics import CRDS, OPERATIONS, Metrics, Series
from app.planner.request import NoFeasiblePlan

DoorName = Literal["mutate", "validate"]
NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRecord:
    """One review, answered or not. `review` is absent when the body was not one."""

    door: DoorName
    outcome: str
    duration_seconds: float
    review: Review | None = None
    decision: Decision | None = None
    error: str = ""


class Recorder:
    """Counts reviews and writes their lines: no name in a label, no value of a job in the log.

    Made once, since finding a logger and a series takes longer than using them.
    """

    def __init__(self, metrics: Metrics, *, catalog_version: str) -> None:
        self._reviews = Series(metrics.reviews)
        self._durations = Series(metrics.review_duration)
        self._catalog_version = catalog_version
        self._log = logger().bind()

    def __call__(self, record: ReviewRecord) -> None:
        """Record one review."""
        crd, operation = crd_label(record.review), operation_label(record.review)
        self._reviews[crd, operation, record.outcome].inc()
        self._durations[crd,].observe(record.duration_seconds)
        self._log.info("review", **self._fields(record))

    def _fields(self, record: ReviewRecord) -> dict[str, object]:
        fields: dict[str, object] = {"door": record.door}
        if record.review is not None:
            fields |= _review_fields(record.review)
        fields["outcome"] = record.outcome
        if record.decision is not None:
            fields |= _decision_fields(record.decision)
        if record.error:
            fields["error"] = record.error
        fields["catalog_version"] = self._catalog_version
        fields["duration_seconds"] = round(record.duration_seconds, 6)
        return fields


def crd_label(review: Review | None) -> str:
    """The reviewed API as a metric label."""
    if review is None:
        return NONE
    name = f"{review.group}/{review.version}"
    return name if name in CRDS else "other"


def operation_label(review: Review | None) -> str:
    """The operation as a metric label."""
    return review.operation if review is not None and review.operation in OPERATIONS else NONE


def _review_fields(review: Review) -> dict[str, object]:
    return {
        "uid": review.uid,
        "gvk": review.gvk[:LOGGED_CHARACTERS],
        "operation": review.operation,
        "namespace": review.namespace[:LOGGED_CHARACTERS],
        "name": review.name[:LOGGED_CHARACTERS],
        "dry_run": review.dry_run,
    }


def _decision_fields(decision: Decision) -> dict[str, object]:
    fields: dict[str, object] = {"reason": decision.reason}
    if decision.headline:
        fields["plan"] = decision.headline
    if decision.plan is not None:
        fields["num_candidates"] = decision.plan.search.evaluated
    if isinstance(decision.plan, NoFeasiblePlan):
        fields["rejections"] = list(decision.plan.reasons)
    elif decision.causes:
        # Paths only: a message quotes what the author wrote.
        paths = [cause.path[:LOGGED_CHARACTERS] for cause in decision.causes]
        fields["rejections"] = paths[:LOGGED_REJECTIONS]
    return fields
