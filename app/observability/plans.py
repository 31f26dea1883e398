"""What one question to the advisor leaves behind: a line in the log."""

from __future__ import annotations

from app.advisor.advise import EstimateAnswer, PlanAnswer
from app.advisor.errors import Refusal
from app.observability.logs import LOGGED_CHARACTERS, LOGGED_REJECTIONS, logger
from app.planner.explain import headline
from app.planner.request import NoFeasiblePlan


def record_plan(
    door: str,
    answer: PlanAnswer | EstimateAnswer | Refusal,
    duration_seconds: float,
    *,
    catalog_version: str,
) -> None:
    """Write the line of one question. It names no field's value, only what came of it."""
    logger().info(
        "plan",
        door=door,
        **_answer_fields(answer),
        catalog_version=catalog_version,
        duration_seconds=round(duration_seconds, 6),
    )


def _answer_fields(answer: PlanAnswer | EstimateAnswer | Refusal) -> dict[str, object]:
    if isinstance(answer, Refusal):
        paths = [error.path[:LOGGED_CHARACTERS] for error in answer.errors[:LOGGED_REJECTIONS]]
        return {"outcome": "refused", "reason": answer.code, "rejections": paths}
    if isinstance(answer, EstimateAnswer):
        return {"outcome": "estimated"}
    outcome = answer.outcome
    fields: dict[str, object] = {"num_candidates": outcome.search.evaluated}
    if isinstance(outcome, NoFeasiblePlan):
        return {"outcome": "infeasible", "rejections": list(outcome.reasons), **fields}
    return {"outcome": "planned", "plan": headline(outcome), **fields}
