"""The cached planner: equal questions are answered once, different ones never share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from app.catalog.loader import load_catalog
from app.observability.metrics import Metrics
from app.observability.planning import CachedPlanner, Keys
from app.planner.intent import TrainIntent
from app.planner.request import NoFeasiblePlan, OutOfTime, Pins, Plan, PlanRequest, Stop, never
from app.planner.search import plan


@pytest.fixture(scope="module")
def request_() -> PlanRequest:
    intent = TrainIntent(model="llama-3-8b", gpu="NVIDIA-H100-80GB-HBM3", nodes=1)
    resolved = load_catalog().resolve(intent)
    assert isinstance(resolved, PlanRequest)
    return resolved


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(version="0", planner="pure Python", catalog_version="0")


class Counting:
    """The search, and how often it ran."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, request: PlanRequest, *, stop: Stop = never) -> Plan | NoFeasiblePlan:
        """The plan."""
        self.calls += 1
        return plan(request, stop=stop)


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"trainjob_advisor_{name}", labels)


def test_an_equal_question_is_searched_once(metrics: Metrics, request_: PlanRequest) -> None:
    search = Counting()
    planner = CachedPlanner(search, metrics, size=8)
    first, second = planner(request_), planner(replace(request_))
    assert first is second
    assert search.calls == 1
    assert value(metrics, "plan_cache_lookups_total", result="hit") == 1
    assert value(metrics, "plan_cache_lookups_total", result="miss") == 1
    assert value(metrics, "plan_search_duration_seconds_count") == 1
    assert value(metrics, "plan_candidates_sum") == first.search.evaluated


@pytest.mark.parametrize(
    "change",
    [
        lambda r: replace(r, model=replace(r.model, num_layers=r.model.num_layers + 1)),
        lambda r: replace(r, cluster=replace(r.cluster, nodes=2)),
        lambda r: replace(r, workload=replace(r.workload, sequence_length=1024)),
        lambda r: replace(r, pins=Pins(tp=8)),
        lambda r: replace(r, allowed_precisions=("bf16", "fp8")),
        lambda r: replace(r, catalog_version="another"),
        lambda r: replace(r, assumptions=("another",)),
    ],
    ids=["model", "nodes", "workload", "pins", "precisions", "catalog", "assumptions"],
)
def test_any_difference_is_another_question(request_: PlanRequest, change: object) -> None:
    """Two models under one name never share a plan."""
    key = Keys()
    assert key(change(request_)) != key(request_)


def test_equal_questions_of_other_objects_have_equal_keys(request_: PlanRequest) -> None:
    """Two loads of the catalog ask the same."""
    again = load_catalog().resolve(
        TrainIntent(model="llama-3-8b", gpu="NVIDIA-H100-80GB-HBM3", nodes=1)
    )
    assert again is not request_
    key = Keys()
    assert key(again) == key(request_)
    assert hash(key(again)) == hash(key(request_))


def test_the_cache_is_bounded(metrics: Metrics, request_: PlanRequest) -> None:
    search = Counting()
    planner = CachedPlanner(search, metrics, size=2)
    for nodes in (1, 2, 4, 1):
        planner(replace(request_, cluster=replace(request_.cluster, nodes=nodes)))
    assert search.calls == 4
    assert value(metrics, "plan_cache_entries") == 2


def test_threads_get_the_same_plan(metrics: Metrics, request_: PlanRequest) -> None:
    planner = CachedPlanner(Counting(), metrics, size=8)
    with ThreadPoolExecutor(8) as pool:
        layouts = {answer.layout for answer in pool.map(planner, [request_] * 32)}
    assert len(layouts) == 1


def test_a_search_that_fails_leaves_nothing_behind(metrics: Metrics, request_: PlanRequest) -> None:
    answers = iter([RuntimeError("bug"), plan(request_)])

    def search(_: PlanRequest, *, stop: Stop = never) -> Plan | NoFeasiblePlan:
        del stop
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    planner = CachedPlanner(search, metrics, size=8)
    with pytest.raises(RuntimeError):
        planner(request_)
    assert planner(request_).request == request_


def test_a_caller_who_left_leaves_nothing_behind(metrics: Metrics, request_: PlanRequest) -> None:
    """A search given up is no answer for those who wait."""
    planner = CachedPlanner(Counting(), metrics, size=8)
    with pytest.raises(OutOfTime):
        planner(request_, stop=lambda: True)
    assert planner(request_) == plan(request_)


def test_what_is_known_is_answered_at_once(metrics: Metrics, request_: PlanRequest) -> None:
    planner = CachedPlanner(Counting(), metrics, size=8)
    assert planner(request_) is planner(request_, stop=lambda: True)
