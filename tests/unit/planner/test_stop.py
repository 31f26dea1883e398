"""A caller that no longer waits: the search gives up where it is, and has no clock of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.planner.request import NoFeasiblePlan, OutOfTime, Pins, Plan, PlanRequest
from app.planner.search import best_layout, fits_somewhere, plan
from tests.unit.planner.builders import request

PLANNED = request("llama-3-70b", nodes=16)
REFUSED = request("llama-3-70b", per_node=2)
INTERLEAVED = replace(request(framework="megatron", nodes=8), pins=Pins(vpp=2))


class Waits:
    """A caller that waits for `turns` questions, and counts them."""

    def __init__(self, turns: float) -> None:
        self.turns = turns
        self.asked = 0

    def __call__(self) -> bool:
        """Whether the caller has left."""
        self.asked += 1
        return self.asked > self.turns


@pytest.mark.parametrize("asked", [PLANNED, REFUSED], ids=["planned", "refused"])
def test_a_caller_who_waits_gets_the_same_answer(asked: PlanRequest) -> None:
    assert plan(asked, stop=Waits(float("inf"))) == plan(asked)


@pytest.mark.parametrize("asked", [PLANNED, REFUSED], ids=["planned", "refused"])
def test_no_more_work_after_the_caller_left(asked: PlanRequest) -> None:
    """Wherever the caller stops waiting, nothing is asked again: there is no half answer."""
    patient = Waits(float("inf"))
    plan(asked, stop=patient)
    assert patient.asked > 1
    for turns in range(patient.asked):
        leaving = Waits(turns)
        with pytest.raises(OutOfTime):
            plan(asked, stop=leaving)
        assert leaving.asked == turns + 1


def test_every_node_asks() -> None:
    patient = Waits(float("inf"))
    best = best_layout(PLANNED, stop=patient)
    assert patient.asked > best.nodes
    assert isinstance(plan(PLANNED), Plan)


def test_what_a_refusal_tries_asks_too() -> None:
    """Most of a refusal's time goes into its remedies."""
    searching, answering = Waits(float("inf")), Waits(float("inf"))
    best_layout(REFUSED, stop=searching)
    assert isinstance(plan(REFUSED, stop=answering), NoFeasiblePlan)
    assert answering.asked > 2 * searching.asked


def test_a_pinned_interleaving_asks_too() -> None:
    with pytest.raises(OutOfTime):
        fits_somewhere(INTERLEAVED, stop=Waits(0))
