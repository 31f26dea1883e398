"""What was worked out before in this process: functions that remember, all of them bounded."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields
from operator import attrgetter
from typing import Final, Generic, TypeVar

import orjson
from cachetools import LRUCache

from app.admission.decision import Decision
from app.admission.judge import Resolve, Verdict, judged
from app.admission.response import Answer, answer_of
from app.admission.review import Review, deciding
from app.observability.metrics import Metrics
from app.planner.intent import TrainIntent, Unresolved
from app.planner.request import Plan, PlanRequest, Stop, never
from app.trainjobs.adapter import CollectiveContext, DeclaredLayout, Environment
from app.trainjobs.collectives import Rules

INTENT_BYTES: Final = 4096
"""Of an intent that is remembered: one with a whole model configuration in it is not."""

CONTEXT_BYTES: Final = 4096
"""Of what the rules see of a job whose environment is remembered."""
ANSWERS_KEPT: Final = 1024
DECIDING_BYTES: Final = 8192
"""Of the key of a review whose answer is remembered."""

Value = TypeVar("Value")
Result = TypeVar("Result")


def kept(written: bytes) -> bytes:
    """A copy of the size of its content: orjson leaves some ten times as much room behind it."""
    return bytes(memoryview(written))


class Remembered(Generic[Value, Result]):
    """A function of frozen values, worked out once for each object: equal ones are told apart.

    At `size` results it forgets them all.
    """

    def __init__(self, function: Callable[[Value], Result], *, size: int) -> None:
        self._function = function
        self._size = size
        self._known: dict[int, tuple[Value, Result]] = {}

    def __call__(self, value: Value) -> Result:
        """The result for `value`."""
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        result = self._function(value)
        if len(self._known) >= self._size:
            self._known.clear()
        # The value is kept too: while it lives, nothing else has its identity.
        self._known[id(value)] = (value, result)
        return result

    def __len__(self) -> int:
        return len(self._known)


class KnownIntents:
    """The catalog's answer to an intent, by what the intent says.

    Only sound intents are kept, each with its one `PlanRequest`: where their author wrote a field
    matters to errors alone.
    """

    def __init__(self, resolve: Resolve, *, size: int) -> None:
        self._resolve = resolve
        self._requests: LRUCache[bytes, PlanRequest] = LRUCache(maxsize=max(size, 1))

    def __call__(self, intent: TrainIntent) -> PlanRequest | Unresolved:
        """The question `intent` asks, or its errors."""
        try:
            key = orjson.dumps(_said(intent))
        except TypeError:  # numbers of more than 64 bits
            return self._resolve(intent)
        known = self._requests.get(key)
        if known is not None:
            return known
        answer = self._resolve(intent)
        if isinstance(answer, PlanRequest) and len(key) <= INTENT_BYTES:
            self._requests[kept(key)] = answer
        return answer

    def __len__(self) -> int:
        return len(self._requests)


class KnownEnvironments:
    """The rules' environment for a job and its plan, by all that the rules can tell apart."""

    def __init__(self, rules: Rules, *, size: int) -> None:
        self._rules = rules
        self._known: LRUCache[tuple[int, bytes], tuple[Plan | None, Environment]]
        self._known = LRUCache(maxsize=max(size, 1))

    def __call__(self, context: CollectiveContext, plan: Plan | None) -> Environment:
        """The environment of one job."""
        # The plan is kept too: while it lives, nothing else has its identity.
        key = (id(plan), orjson.dumps(self._rules.shown(context)))
        known = self._known.get(key)
        if known is not None:
            return known[1]
        environment = self._rules.environment(context, plan)
        if len(key[1]) <= CONTEXT_BYTES:
            self._known[key[0], kept(key[1])] = (plan, environment)
        return environment

    def __len__(self) -> int:
        return len(self._known)


class KnownVerdicts:
    """The verdict on a stated layout, by the question it answers and what it states where.

    A job that leaves its recomputation and its sharding open is estimated under each of them.
    `resolve` has one request for intents that say the same; others are judged each time.
    """

    def __init__(self, resolve: Resolve, *, size: int) -> None:
        self._resolve = resolve
        self._known: LRUCache[tuple[int, bytes], tuple[PlanRequest, Verdict]]
        self._known = LRUCache(maxsize=max(size, 1))

    def __call__(self, declared: DeclaredLayout, *, known: Collection[str]) -> Verdict:
        """The verdict. `known` are paths that have an error already."""
        request = self._resolve(declared.intent)
        stated = _stated(declared, known)
        if isinstance(request, Unresolved) or not 0 < len(stated) <= INTENT_BYTES:
            return judged(declared, self._resolve, known=known)
        # The request is kept too: while it lives, nothing else has its identity.
        key = (id(request), stated)
        found = self._known.get(key)
        if found is not None:
            return found[1]
        verdict = judged(declared, self._resolve, known=known)
        self._known[key[0], kept(stated)] = (request, verdict)
        return verdict

    def __len__(self) -> int:
        return len(self._known)


def _stated(declared: DeclaredLayout, known: Collection[str]) -> bytes:
    """What is stated where, and the errors it has; empty for numbers of more than 64 bits."""
    try:
        return orjson.dumps((declared.fields, declared.paths, sorted(known)))
    except TypeError:
        return b""


Answers = Callable[[Review, Stop], Answer]
"""What answers a review, or raises `OutOfTime` when `stop` is true first."""


class KnownAnswers:
    """A door's answer to a review, by all of the review that its decision may depend on.

    `key` is equal for reviews that are decided alike. Kept are `ANSWERS_KEPT` answers to reviews
    whose key is short. Right only where deciding is a function of the review: not while runtimes
    are read, which change.
    """

    def __init__(
        self,
        decide: Callable[..., Decision],
        metrics: Metrics,
        *,
        key: Callable[[Review], bytes] = deciding,
    ) -> None:
        self._decide = decide
        self._key = key
        self._answers: LRUCache[bytes, Answer] = LRUCache(maxsize=ANSWERS_KEPT)
        self._hits, self._misses = (metrics.answer_lookups.labels(each) for each in ("hit", "miss"))

    def __call__(self, review: Review, stop: Stop = never) -> Answer:
        """The answer to `review`. Raises `OutOfTime`, and then remembers nothing."""
        key = self._key(review)
        known = self._answers.get(key)
        if known is not None:
            self._hits.inc()
            return known
        self._misses.inc()
        answer = answer_of(self._decide(review, stop=stop))
        if 0 < len(key) <= DECIDING_BYTES:
            self._answers[kept(key)] = answer
        return answer

    def __len__(self) -> int:
        return len(self._answers)


_said = attrgetter(*(each.name for each in fields(TrainIntent) if each.name != "paths"))
