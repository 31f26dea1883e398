"""`/mutate` and `/validate`: bytes in, an AdmissionReview out.

Nothing in between waits, except for a training runtime where an operator has that turned on.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol
from urllib.parse import unquote_plus

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.admission.decide import Deps as AdmissionDeps
from app.admission.decide import mutate, told_apart, validate
from app.admission.decision import Decision
from app.admission.response import answer_of, response_bytes
from app.admission.review import MalformedReview, Review, parse_review
from app.http.bodies import SMALL_BYTES, read_json_bytes
from app.http.deps import Deps
from app.http.errors import RequestError
from app.observability.known import Answers, KnownAnswers
from app.observability.reviews import DoorName, Recorder, ReviewRecord
from app.planner.request import OutOfTime, Stop, keep_going


class Decide(Protocol):
    """What answers a review at one door."""

    def __call__(self, review: Review, deps: AdmissionDeps, *, stop: Stop) -> Decision:
        """The decision. Raises `OutOfTime`."""


DECIDERS: dict[DoorName, Decide] = {"mutate": mutate, "validate": validate}

PATHS = ("/{}", "/{}-training-vsr-dev-v1alpha1-trainjob")
"""Of a door; the second is where webhook configurations of the first TrainJob operator point to."""

MAX_TIMEOUT_SECONDS = 30.0
WORK_SHARE = 0.9
"""Of the time a caller gives; the rest is for the answer's way back."""
LATE = (
    "the time the caller gave in `timeout` was over before there was an answer; "
    "the webhook's `timeoutSeconds` may be up to 30"
)
_TIMEOUT = re.compile(rb"(?:^|&)timeout=([^&]*)")
_DURATION = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)(ms|s|m)?")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """When work must end so that the caller still hears of it, on the clock of `Deps`."""

    at: float
    clock: Callable[[], float]

    def left(self) -> float:
        """Seconds until then."""
        return self.at - self.clock()

    def passed(self) -> bool:
        """Whether an answer would come too late."""
        return self.left() <= 0


def admission_routes(deps: Deps) -> list[Route]:
    """The webhook's routes, whose endpoints raise `RequestError` for the door to answer."""
    recorder = Recorder(deps.metrics, catalog_version=deps.desk.catalog.version)
    routes = []
    for door in DECIDERS:
        endpoint = ReviewEndpoint(door=door, deps=deps, answer=answers(door, deps), record=recorder)
        routes += [
            Route(path.format(door), endpoint, methods=["POST"], name=door) for path in PATHS
        ]
    return routes


def answers(door: DoorName, deps: Deps) -> Answers:
    """What answers a review at a door; equal ones once, unless a runtime may come between."""
    decide = partial(DECIDERS[door], deps=deps.admission)
    if deps.prepare is None:
        return KnownAnswers(decide, deps.metrics, key=partial(told_apart, deps=deps.admission))
    return lambda review, stop: answer_of(decide(review, stop=stop))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewEndpoint:
    """An ASGI application: reads one review, decides and answers it.

    Every review is counted and logged, whatever comes of it.
    """

    door: DoorName
    deps: Deps
    answer: Answers
    record: Callable[[ReviewRecord], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises `RequestError` for what is not a review."""
        deps = self.deps
        budget_seconds = seconds_given(scope["query_string"])
        deadline = Deadline(at=deps.clock() + WORK_SHARE * budget_seconds, clock=deps.clock)
        seconds = min(deps.limits.seconds, budget_seconds)
        body = await read_json_bytes(scope, receive, deps.limits, seconds=seconds)
        with uncollected() if len(body) > SMALL_BYTES else nullcontext():
            content = await self.content(body, deadline)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(content)),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def content(self, body: bytes, deadline: Deadline) -> bytes:
        """The response to the review in `body`. Raises `RequestError`."""
        received = self.deps.clock()
        review = self.parsed(body, received)
        if self.deps.prepare is not None:
            await self.deps.prepare(review, deadline.left())
        return self.decided(review, received, stop=deadline.passed)

    def parsed(self, body: bytes, received: float) -> Review:
        """The review in `body`. Raises `RequestError` (400)."""
        try:
            return parse_review(body)
        except MalformedReview as problem:
            self._recorded("malformed", received)
            raise RequestError(400, str(problem), code="malformed_review") from problem

    def decided(self, review: Review, received: float, *, stop: Stop) -> bytes:
        """The response to `review`.

        Raises `RequestError` (504) when `stop` was true first: half an answer is none, and the
        failure policy decides, as it does when nobody answers.
        """
        try:
            keep_going(stop)
            answer = self.answer(review, stop)
            content = response_bytes(review, answer)
        except OutOfTime as problem:
            self._recorded("late", received, review=review)
            raise RequestError(504, LATE) from problem
        except Exception as problem:
            self._recorded("failed", received, review=review, error=type(problem).__name__)
            raise
        decision = answer.decision
        self._recorded(decision.outcome, received, review=review, decision=decision)
        return content

    def _recorded(self, outcome: str, received: float, **more: Any) -> None:
        seconds = self.deps.clock() - received
        self.record(ReviewRecord(door=self.door, outcome=outcome, duration_seconds=seconds, **more))


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection meanwhile.

    Parsing a large body makes a hundred thousand objects at once, none of them garbage before the
    answer is there, and the collector would go through them again and again.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@lru_cache(maxsize=16)
def seconds_given(query: bytes) -> float:
    """Seconds that a query string gives; an API server sends the same one every time."""
    return timeout_seconds(timeout_of(query))


def timeout_of(query: bytes) -> str:
    """`timeout` of a query string, "" without one."""
    match = _TIMEOUT.search(query)
    return unquote_plus(match[1].decode("latin-1")) if match else ""


def timeout_seconds(text: str) -> float:
    """Seconds in `timeout=2s` as the API server sends it; the longest allowed when unreadable."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return MAX_TIMEOUT_SECONDS
    seconds = float(match[1]) * _UNIT_SECONDS[match[2]]
    return min(seconds, MAX_TIMEOUT_SECONDS) if seconds > 0 else MAX_TIMEOUT_SECONDS
