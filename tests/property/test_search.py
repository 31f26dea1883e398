"""The search is exact: equal to trying every layout of the space."""

from __future__ import annotations

import os
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.planner.estimate import host_fits, limit_bytes
from app.planner.layout import Layout
from app.planner.legality import violations
from app.planner.memory import memory
from app.planner.request import PlanRequest
from app.planner.search import best_layout, fits_somewhere
from app.planner.space import enumerate_layouts, moving_parts
from app.planner.timing import step_time
from tests.planner_sums import sums
from tests.property.planner_strategies import requests

MANY = 1500
NEAR = 1e-9
calm = settings(
    deadline=None,
    max_examples=int(os.environ.get("SEARCH_EXAMPLES", "60")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def tried(request: PlanRequest) -> list[Layout]:
    """Every layout of the space, or the first `MANY`."""
    found = []
    for layout in enumerate_layouts(request):
        found.append(layout)
        if len(found) > MANY:
            return []
    return found


def fitting(request: PlanRequest, layouts: list[Layout]) -> list[Layout]:
    """Those that stay within the limits."""
    kept = []
    for layout in layouts:
        held = memory(request, layout)
        if held.total <= limit_bytes(request) and host_fits(request, held):
            kept.append(layout)
    return kept


@given(requests())
@calm
def test_equals_exhaustive_enumeration(request: PlanRequest) -> None:
    """The search's layout takes the least time of all that fit, or there is none."""
    layouts = tried(request)
    able = fitting(request, layouts)
    best = best_layout(request)
    if not layouts and best.configurations > MANY:
        return
    assert best.configurations == len(layouts)
    assert (best.layout is None) == (not able)
    assert fits_somewhere(request) == bool(able)
    if best.layout is not None:
        times = {layout: step_time(request, layout).total for layout in able}
        least = min(times.values())
        assert best.layout in times
        assert times[best.layout] <= least * (1 + NEAR)
        ties = [layout for layout, seconds in times.items() if seconds == least]
        if best.layout in ties:
            assert moving_parts(best.layout) <= min(moving_parts(each) for each in ties)


@given(requests())
@calm
def test_space_is_legal(request: PlanRequest) -> None:
    """Every layout of the space obeys every rule."""
    for layout in tried(request)[:200]:
        assert violations(request, layout) == ()


@given(requests(), st.randoms(use_true_random=False))
@calm
def test_kernel_agrees_with_the_reference(request: PlanRequest, random: Random) -> None:
    """The flattened sums equal `timing` and `memory` up to rounding."""
    layouts = tried(request)
    every = list(sums(request)) if layouts else []
    assert {each.layout for each in every} == set(layouts)
    for each in random.sample(every, min(20, len(every))):
        reference = step_time(request, each.layout).total
        assert abs(each.seconds - reference) <= NEAR * reference
        held = memory(request, each.layout)
        assert abs(each.device_bytes - held.total) <= NEAR * held.total
        assert abs(each.host_bytes - held.host) <= NEAR * max(1.0, held.host)
