"""Cost: arithmetic that holds whatever the model predicts, and choices that obey what was asked."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest

from app.advisor.advise import Desk, fastest
from app.advisor.cost import CostAnswer, answer_cost, checkpoint_interval, on_demand, pareto
from app.advisor.errors import Refusal
from app.catalog.loader import load_catalog
from app.observability.planning import CachedBest
from app.planner.request import Estimate, Plan, PlanRequest
from app.planner.search import plan

DESK = Desk(
    catalog=load_catalog(),
    planner=plan,
    clock=itertools.count().__next__,
    allowed_precisions=("bf16", "fp16"),
)
JOB = {"model": "llama-3-8b", "tokens": 10**11, "gpu": "H100-SXM5-80GB", "max_gpus": 64}


def asked(body: dict[str, Any], desk: Desk = DESK) -> CostAnswer | Refusal:
    steps = answer_cost(body, desk)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: CostAnswer | Refusal = end.value
            return found


def answered(**more: Any) -> CostAnswer:
    found = asked(JOB | more)
    assert isinstance(found, CostAnswer), found
    return found


def test_an_offer_is_the_plan_of_its_machines() -> None:
    """What equal machines share, on one node and on several, is what each would be planned."""
    body = JOB | {"gpu": None, "max_gpus": 16, "workload": {"sequence_length": 4096}}
    found = asked(body)
    assert isinstance(found, CostAnswer)
    assert len(found.offers) > 40
    for one in found.offers[::7]:
        planned = plan(one.request)
        assert isinstance(planned, Plan)
        assert planned.layout == one.estimate.layout
        assert planned.estimate.step_time_seconds == one.estimate.step_time_seconds


def test_equal_machines_are_searched_once() -> None:
    searched = []

    def counted(request: PlanRequest) -> Estimate | None:
        searched.append(request)
        return fastest(request)

    desk = replace(DESK, best=CachedBest(counted, size=4096))
    first = asked(JOB, desk)
    assert isinstance(first, CostAnswer)
    once = len(searched)
    assert once < len(first.offers)
    again = asked(JOB | {"tokens": 10**12}, desk)
    assert isinstance(again, CostAnswer)
    assert len(searched) == once


def test_a_machine_that_is_too_small_says_what_it_lacks() -> None:
    found = asked({"model": "llama-3-405b", "tokens": 10**9, "gpu": "T4", "max_gpus": 8})
    assert isinstance(found, CostAnswer)
    assert found.offers == ()
    assert "GiB too much" in found.body["cannot"][0]["reason"]


def test_money_is_price_times_nodes_times_time() -> None:
    for one in answered().offers:
        assert one.usd == pytest.approx(one.hours * one.nodes * on_demand(one.instance))
        assert one.hours * 3600 * one.tokens_per_second == pytest.approx(JOB["tokens"])


def test_nothing_beats_the_front() -> None:
    offers = answered().offers
    front = pareto(offers)
    for one in front:
        assert not any(other.hours <= one.hours and other.usd < one.usd for other in offers)


def test_the_cheapest_that_meets_the_deadline_is_recommended() -> None:
    deadline = sorted(one.hours for one in answered().offers)[3]
    found = answered(deadline_hours=deadline)
    assert found.recommended is not None
    timely = [one for one in found.offers if one.hours <= deadline]
    assert found.recommended.usd == min(one.usd for one in timely)


def test_the_fastest_within_the_budget_is_recommended() -> None:
    budget = sorted(one.usd for one in answered().offers)[3]
    found = answered(budget_usd=budget)
    assert found.recommended is not None
    assert found.recommended.usd <= budget


def test_an_impossible_deadline_says_what_would_be_possible() -> None:
    found = answered(deadline_hours=0.001)
    assert found.recommended is None
    assert "the fastest takes" in found.body["reason"]


def test_the_curve_starts_at_full_efficiency() -> None:
    curve = answered().body["scaling"]
    assert curve[0]["efficiency"] == pytest.approx(1)
    assert [row["nodes"] for row in curve] == sorted(row["nodes"] for row in curve)


def test_one_size_and_one_machine_can_be_asked_for() -> None:
    body = JOB | {"gpu": None, "instance_type": "p5.48xlarge", "nodes": 2}
    found = asked(body)
    assert isinstance(found, CostAnswer)
    (only,) = found.offers
    assert (only.instance.name, only.nodes, only.gpus) == ("p5.48xlarge", 2, 16)
    assert found.body["scaling_advice"] == "p5.48xlarge was tried at 2 nodes alone"


def test_a_name_of_several_gpus_is_answered_as_a_plan_answers_it() -> None:
    found = asked(JOB | {"gpu": "H100"})
    assert isinstance(found, Refusal)
    assert "is the name of several parts" in found.errors[0].message
    assert "`H100-SXM5-80GB`" in found.errors[0].message


def test_nothing_is_advised_of_spot_machines_without_a_price() -> None:
    found = asked(JOB | {"gpu": None, "instance_type": "gpu_8x_h100_sxm5", "nodes": 1})
    assert isinstance(found, CostAnswer)
    assert found.body["checkpoint"]["advice"] == "no spot price of gpu_8x_h100_sxm5 is known"


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"tokens": None}, "tokens"),
        ({"deadline_hours": -1}, "deadline_hours"),
        ({"gpu": "no such card"}, "gpu"),
        ({"instance_type": "p99"}, "instance_type"),
        ({"model": "no such model"}, "model"),
        ({"gpus_per_node": 8}, "gpus_per_node"),
    ],
)
def test_what_is_wrong_is_said_where_it_is(more: dict[str, Any], path: str) -> None:
    found = asked(JOB | more)
    assert isinstance(found, Refusal)
    assert found.errors[0].path == path


def test_young_and_daly_agree_where_writing_is_cheap() -> None:
    interval = checkpoint_interval(write_seconds=10, between_seconds=1e6)
    assert interval.young_seconds == pytest.approx(math.sqrt(2 * 10 * 1e6))
    assert interval.daly_seconds == pytest.approx(interval.young_seconds, rel=0.01)
    assert 0 < interval.overhead < 0.01
