"""A document in, an answer out: what `/v1/plan` and `/v1/estimate` do, HTTP and flags aside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from app.advisor.answers import Json, estimate_body, plan_body
from app.advisor.errors import Refusal
from app.advisor.requests import EstimateQuestion, parse_estimate_body, parse_plan_body
from app.catalog.loader import Catalog
from app.planner.estimate import complete, estimate
from app.planner.hardware import Precision
from app.planner.intent import FieldError, TrainIntent, Unresolved
from app.planner.layout import Layout
from app.planner.request import Estimate, NoFeasiblePlan, Plan, Planner, PlanRequest
from app.planner.search import best_estimate

Best = Callable[[PlanRequest], Estimate | None]
"""The fastest layout that fits, without the reasons a plan has; `None` when nothing does."""


def fastest(request: PlanRequest) -> Estimate | None:
    """The search alone, as a `Best`."""
    found, _ = best_estimate(request)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What an answer needs beside the question. `clock` counts seconds from anywhere."""

    catalog: Catalog
    planner: Planner
    clock: Callable[[], float]
    allowed_precisions: tuple[Precision, ...]
    best: Best = fastest


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAnswer:
    """A plan, or why there is none, as a value and as JSON."""

    outcome: Plan | NoFeasiblePlan
    body: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateAnswer:
    """What one layout would do, as a value and as JSON."""

    request: PlanRequest
    estimate: Estimate
    body: Json


def answer_plan(body: Any, desk: Desk) -> PlanAnswer | Refusal:
    """The best layout for what `body` asks."""
    question = parse_plan_body(body)
    if not isinstance(question, TrainIntent):
        return Refusal(code="invalid_request", errors=question)
    request = resolve(question, desk)
    if isinstance(request, Refusal):
        return request
    started = desk.clock()
    outcome = desk.planner(request)
    duration_seconds = desk.clock() - started
    return PlanAnswer(outcome=outcome, body=plan_body(outcome, duration_seconds=duration_seconds))


def answer_estimate(body: Any, desk: Desk) -> EstimateAnswer | Refusal:
    """What the layout of `body` would do."""
    question = parse_estimate_body(body)
    if not isinstance(question, EstimateQuestion):
        return Refusal(code="invalid_request", errors=question)
    return judge(question, desk)


def judge(question: EstimateQuestion, desk: Desk) -> EstimateAnswer | Refusal:
    """What the layout of a question would do."""
    request = resolve(question.intent, desk)
    if isinstance(request, Refusal):
        return request
    layout = complete(request, question.layout)
    if not isinstance(layout, Layout):
        return Refusal(code="invalid_request", errors=tuple(map(_in_layout, layout)))
    judged = estimate(request, layout)
    return EstimateAnswer(request=request, estimate=judged, body=estimate_body(judged, request))


def resolve(intent: TrainIntent, desk: Desk) -> PlanRequest | Refusal:
    """The question with every name looked up."""
    resolved = desk.catalog.resolve(intent, allowed_precisions=desk.allowed_precisions)
    if isinstance(resolved, Unresolved):
        return Refusal(code="unresolved", errors=resolved.errors)
    return resolved


def _in_layout(error: FieldError) -> FieldError:
    return replace(error, path=f"layout.{error.path}")
