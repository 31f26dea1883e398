"""The planner the doors call: the search behind a bounded cache, measured."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from operator import attrgetter
from threading import Lock
from time import perf_counter
from typing import Any, Final

import orjson
from cachetools import LRUCache

from app.observability.known import Remembered, kept
from app.observability.metrics import Metrics
from app.planner.hardware import Cluster
from app.planner.request import Estimate, NoFeasiblePlan, Plan, Planner, PlanRequest, Stop, never

Clock = Callable[[], float]

FACTS_KEPT: Final = 4096


class CachedPlanner:
    """A `Planner` that answers equal questions once. Safe to call from several threads.

    The key is the whole question, so two models under one name never share a plan, and the catalog
    version is part of it. A search that raises leaves nothing behind.
    """

    def __init__(
        self, search: Planner, metrics: Metrics, *, size: int, clock: Clock = perf_counter
    ) -> None:
        self._search = search
        self._metrics = metrics
        self._clock = clock
        self._lock = Lock()
        self._key = Keys()
        self._hits, self._misses = (metrics.cache_lookups.labels(each) for each in ("hit", "miss"))
        self._plans: LRUCache[Hashable, Plan | NoFeasiblePlan] = LRUCache(maxsize=max(size, 1))

    def __call__(self, request: PlanRequest, *, stop: Stop = never) -> Plan | NoFeasiblePlan:
        """The plan for `request`, from the cache when it was asked before."""
        with self._lock:
            key = self._key(request)
            known = self._plans.get(key)
        (self._misses if known is None else self._hits).inc()
        if known is not None:
            return known
        answer = self._measured(request, stop)
        with self._lock:
            self._plans[key] = answer
            self._metrics.cache_entries.set(len(self._plans))
        return answer

    def _measured(self, request: PlanRequest, stop: Stop) -> Plan | NoFeasiblePlan:
        started = self._clock()
        answer = self._search(request, stop=stop)
        self._metrics.search_duration.observe(self._clock() - started)
        self._metrics.candidates.observe(answer.search.evaluated)
        return answer


class CachedBest:
    """A `Best` that answers equal questions once. Safe to call from several threads.

    Apart from the plans, so that a sweep over every machine pushes no review's plan out.
    """

    def __init__(self, search: Callable[[PlanRequest], Estimate | None], *, size: int) -> None:
        self._search = search
        self._lock = Lock()
        self._key = Keys()
        self._found: LRUCache[Hashable, Estimate | None] = LRUCache(maxsize=max(size, 1))

    def __call__(self, request: PlanRequest) -> Estimate | None:
        """The best layout's estimate, from the cache when it was asked before."""
        with self._lock:
            key = self._key(request)
            if key in self._found:
                return self._found[key]
        answer = self._search(request)
        with self._lock:
            self._found[key] = answer
        return answer


class Keys:
    """Questions as values that can be compared fast: equal questions have equal keys.

    A question itself has no hash, because of the mappings inside the facts it is made of. Those
    facts are the same objects in question after question (jobs with models of their own bring new
    ones), so each is written out once and known by its identity from then on. Everything else in
    the question is in the key as it is, whatever fields it may get.
    """

    def __init__(self) -> None:
        self._text: Remembered[object, bytes] = Remembered(_text, size=FACTS_KEPT)

    def __call__(self, request: PlanRequest) -> Hashable:
        """The key of one question."""
        cluster = request.cluster
        return (
            self._text(request.model),
            self._text(request.framework),
            self._text(request.efficiency),
            self._text(cluster.gpu),
            _rest_of_cluster(cluster),
            _rest_of_request(request),
        )


WRITTEN_OUT: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS
"""orjson reads a dataclass's fields from its memory, which the compiled planner lays out anew."""


def _text(fact: object) -> bytes:
    return kept(orjson.dumps(fact, default=_plain, option=WRITTEN_OUT))


def _plain(value: Any) -> dict[Any, Any]:
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    return dict(value)


def _others(kind: type[Any], *named: str) -> Callable[[Any], Any]:
    return attrgetter(*(each.name for each in fields(kind) if each.name not in named))


_rest_of_request = _others(PlanRequest, "model", "framework", "efficiency", "cluster")
_rest_of_cluster = _others(Cluster, "gpu")
