"""The planner the doors call: the search behind a bounded cache, measured."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from time import perf_counter

import orjson
from cachetools import LRUCache

from app.observability.metrics import Metrics
from app.planner.request import NoFeasiblePlan, Plan, Planner, PlanRequest

Clock = Callable[[], float]


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
        self._plans: LRUCache[bytes, Plan | NoFeasiblePlan] = LRUCache(maxsize=max(size, 1))

    def __call__(self, request: PlanRequest) -> Plan | NoFeasiblePlan:
        """The plan for `request`, from the cache when it was asked before."""
        key = cache_key(request)
        with self._lock:
            known = self._plans.get(key)
        self._metrics.cache_lookups.labels("miss" if known is None else "hit").inc()
        if known is not None:
            return known
        answer = self._measured(request)
        with self._lock:
            self._plans[key] = answer
            self._metrics.cache_entries.set(len(self._plans))
        return answer

    def _measured(self, request: PlanRequest) -> Plan | NoFeasiblePlan:
        started = self._clock()
        answer = self._search(request)
        self._metrics.search_duration.observe(self._clock() - started)
        self._metrics.candidates.observe(answer.search.evaluated)
        return answer


def cache_key(request: PlanRequest) -> bytes:
    """Every field of the question as bytes. Equal questions have equal keys.

    A hash of the value itself would do, were there no mappings among its fields.
    """
    return orjson.dumps(request, default=dict, option=orjson.OPT_NON_STR_KEYS)
