"""`/v1`: the planner for people. Routes parse, call and render."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from typing import Protocol, TypeVar

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from app.advisor.advise import EstimateAnswer, PlanAnswer, answer_estimate, answer_plan
from app.advisor.answers import Json
from app.advisor.candidates import answer_candidates
from app.advisor.choices import choices_body
from app.advisor.cost import Progress, answer_cost
from app.advisor.environment import environment_body
from app.advisor.errors import Refusal, refusal_body
from app.advisor.launch.answer import answer_launch
from app.advisor.listing import gpus_body, models_body
from app.advisor.why import answer_explain
from app.http.bodies import parse_json, read_json_bytes
from app.http.deps import Deps
from app.http.documents import (
    CANDIDATES_OPERATION,
    CHOICES_OPERATION,
    COST_OPERATION,
    ENVIRONMENT_OPERATION,
    ESTIMATE_OPERATION,
    EXPLAIN_OPERATION,
    GPUS_OPERATION,
    LAUNCH_OPERATION,
    MODELS_OPERATION,
    PLAN_OPERATION,
)
from app.http.errors import JsonResponse
from app.observability.plans import record_plan
from app.trainjobs.collectives import Rules

T = TypeVar("T")

LINES = "application/x-ndjson"
STATUS = {"invalid_json": 400, "invalid_request": 422, "unresolved": 422, "not_found": 404}


def advisor_router(deps: Deps) -> APIRouter:
    """The routes of the advisor."""
    router = APIRouter(prefix="/v1", tags=["advisor"])
    rules = Rules.from_rows(deps.desk.catalog.collective_rules)

    @router.post("/plan", openapi_extra=PLAN_OPERATION)
    async def plan(request: Request) -> Response:
        body = parse_json(await read_json_bytes(request.scope, request.receive, deps.limits))
        return answered("plan", deps, lambda: answer_plan(body, deps.desk))

    @router.post("/estimate", openapi_extra=ESTIMATE_OPERATION)
    async def estimate(request: Request) -> Response:
        body = parse_json(await read_json_bytes(request.scope, request.receive, deps.limits))
        return answered("estimate", deps, lambda: answer_estimate(body, deps.desk))

    @router.post("/candidates", openapi_extra=CANDIDATES_OPERATION)
    async def candidates(request: Request) -> Response:
        body = parse_json(await read_json_bytes(request.scope, request.receive, deps.limits))
        return rendered(await in_turns(answer_candidates(body, deps.desk)))

    @router.post("/environment", openapi_extra=ENVIRONMENT_OPERATION)
    async def environment(request: Request) -> Response:
        body = parse_json(await read_json_bytes(request.scope, request.receive, deps.limits))
        operator = deps.admission
        answer = environment_body(
            body,
            desk=deps.desk,
            rules=rules,
            default_profile=operator.default_profile,
            operator_values=operator.operator_values,
        )
        return rendered(answer)

    @router.get("/choices", openapi_extra=CHOICES_OPERATION)
    async def choices(request: Request) -> Response:
        del request
        return rendered(choices_body(deps.desk))

    @router.get("/models", openapi_extra=MODELS_OPERATION)
    async def models(request: Request) -> Response:
        return rendered(models_body(deps.desk.catalog, request.query_params.get("search", "")))

    @router.get("/gpus", openapi_extra=GPUS_OPERATION)
    async def gpus(request: Request) -> Response:
        return rendered(gpus_body(deps.desk.catalog, request.query_params.get("search", "")))

    add_advice(router, deps)
    return router


def add_advice(router: APIRouter, deps: Deps) -> None:
    """The routes that set a plan to work: why, launch, cost."""

    @router.post("/explain", openapi_extra=EXPLAIN_OPERATION)
    async def explain(request: Request) -> Response:
        body = parse_json(await read_json_bytes(request.scope, request.receive, deps.limits))
        return rendered(body_of(answer_explain(body, deps.desk)))

    @router.post("/launch", openapi_extra=LAUNCH_OPERATION)
    async def launch(request: Request) -> Response:
        body = parse_json(await read_json_bytes(request.scope, request.receive, deps.limits))
        return rendered(body_of(answer_launch(body, deps.desk)))

    @router.post("/cost", openapi_extra=COST_OPERATION)
    async def cost(request: Request) -> Response:
        body = parse_json(await read_json_bytes(request.scope, request.receive, deps.limits))
        steps = answer_cost(body, deps.desk)
        if LINES in request.headers.get("accept", ""):
            return in_lines(steps)
        return rendered(body_of(await in_turns(steps)))


def answered(
    door: str, deps: Deps, ask: Callable[[], PlanAnswer | EstimateAnswer | Refusal]
) -> Response:
    """What `ask` answers as a response, with its line in the log."""
    started = deps.clock()
    answer = ask()
    record_plan(door, answer, deps.clock() - started, catalog_version=deps.desk.catalog.version)
    return rendered(answer if isinstance(answer, Refusal) else answer.body)


class Answer(Protocol):
    """An answer that is JSON too."""

    @property
    def body(self) -> Json:
        """The answer as JSON."""


def body_of(answer: Answer | Refusal) -> Json | Refusal:
    """The JSON of an answer; a refusal as it is."""
    return answer if isinstance(answer, Refusal) else answer.body


async def in_turns(steps: Generator[object, None, T]) -> T:
    """What `steps` returns; at each of its pauses whoever else waits has a turn, reviews first."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


def in_lines(steps: Generator[Progress, None, Answer | Refusal]) -> Response:
    """How far the work is, a line of JSON for each percent, and the answer as the last line.

    What is wrong with the question shows before the second step, and is refused as without lines.
    """
    try:
        next(steps)
        at = next(steps)
    except StopIteration as end:
        return rendered(body_of(end.value))
    return StreamingResponse(lines(at, steps), media_type=LINES)


async def lines(
    at: Progress, steps: Generator[Progress, None, Answer | Refusal]
) -> AsyncIterator[bytes]:
    """`{"progress": {done, total, name}}` as often as it says more, then `{"answer": {...}}`."""
    told = -1
    while True:
        percent = at.done * 100 // at.total
        if percent > told:
            told = percent
            yield line({"progress": {"done": at.done, "total": at.total, "name": at.name}})
        await asyncio.sleep(0)
        try:
            at = next(steps)
        except StopIteration as end:
            answer: Answer | Refusal = end.value
            break
    yield line(refusal_body(answer) if isinstance(answer, Refusal) else {"answer": answer.body})


def line(content: Json) -> bytes:
    """One line of JSON."""
    return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)


def rendered(answer: Json | Refusal) -> Response:
    """A body, or the refusal in its place."""
    if isinstance(answer, Refusal):
        return JsonResponse(refusal_body(answer), status_code=STATUS[answer.code])
    return JsonResponse(answer)
