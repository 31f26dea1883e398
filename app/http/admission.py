"""`/mutate` and `/validate`: bytes in, an AdmissionReview out.

Nothing in between waits, except for a training runtime where an operator has that turned on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.admission.decide import Deps as AdmissionDeps
from app.admission.decide import mutate, validate
from app.admission.decision import Decision
from app.admission.response import response_bytes
from app.admission.review import MalformedReview, Review, parse_review
from app.http.bodies import read_json_bytes
from app.http.deps import Deps
from app.http.documents import REVIEW_OPERATION
from app.http.errors import RequestError
from app.observability.reviews import DoorName, ReviewRecord, record_review

Decide = Callable[[Review, AdmissionDeps], Decision]
DECIDERS: dict[DoorName, Decide] = {"mutate": mutate, "validate": validate}

REFERENCE_PATHS = "/{}-training-vsr-dev-v1alpha1-trainjob"
"""Where webhook configurations of the first TrainJob operator point to."""

MAX_TIMEOUT_SECONDS = 30.0
_DURATION = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)(ms|s|m)?")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """When the caller stops waiting, on the clock of `Deps`."""

    at: float

    def check(self, now: float) -> None:
        """Refuse work whose answer would come too late."""
        if now >= self.at:
            raise RequestError(504, "the time the caller gave in `timeout` is over")


def admission_router(deps: Deps) -> APIRouter:
    """The webhook's routes."""
    router = APIRouter(tags=["webhook"])

    def add(door: DoorName, path: str, *, in_schema: bool) -> None:
        async def answer(request: Request) -> Response:
            return await answer_review(request, deps, door)

        router.add_api_route(
            path,
            answer,
            methods=["POST"],
            name=door,
            include_in_schema=in_schema,
            openapi_extra=REVIEW_OPERATION[door],
        )

    for door in DECIDERS:
        add(door, f"/{door}", in_schema=True)
        add(door, REFERENCE_PATHS.format(door), in_schema=False)
    return router


async def answer_review(request: Request, deps: Deps, door: DoorName) -> Response:
    """Read, decide, answer. Raises `RequestError` for what is not a review."""
    budget_seconds = timeout_seconds(request.query_params.get("timeout", ""))
    deadline = Deadline(at=deps.clock() + budget_seconds)
    limits = replace(deps.limits, seconds=min(deps.limits.seconds, budget_seconds))
    body = await read_json_bytes(request, limits)
    if deps.prepare is not None:
        await deps.prepare(body, deadline.at - deps.clock())
    deadline.check(deps.clock())
    return Response(decide_bytes(body, deps, door), media_type="application/json")


def decide_bytes(body: bytes, deps: Deps, door: DoorName) -> bytes:
    """The response to the review in `body`; counted and logged whatever comes of it."""
    started = deps.clock()
    record = ReviewRecord(door=door, outcome="failed", duration_seconds=0.0)
    try:
        review = parse_review(body)
        record = replace(record, review=review)
        decision = DECIDERS[door](review, deps.admission)
        answer = response_bytes(review, decision)
        record = replace(record, decision=decision, outcome=decision.outcome)
    except MalformedReview as problem:
        record = replace(record, outcome="malformed")
        raise RequestError(400, str(problem), code="malformed_review") from problem
    except Exception as problem:
        record = replace(record, error=type(problem).__name__)
        raise
    finally:
        record = replace(record, duration_seconds=deps.clock() - started)
        record_review(record, deps.metrics, catalog_version=deps.desk.catalog.version)
    return answer


def timeout_seconds(text: str) -> float:
    """Seconds in `timeout=2s` as the API server sends it; the longest allowed when unreadable."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return MAX_TIMEOUT_SECONDS
    seconds = float(match[1]) * _UNIT_SECONDS[match[2]]
    return min(seconds, MAX_TIMEOUT_SECONDS) if seconds > 0 else MAX_TIMEOUT_SECONDS
