"""Recipes as evidence for the fit: what a hinge pulls, and that every recipe has one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from app.catalog.loader import load_catalog
from app.planner.request import PlanRequest
from benchmarks.expert_plans import recipe_questions, recipe_runs
from benchmarks.preferences import (
    MARGIN,
    MOST,
    Hinges,
    Preference,
    gap,
    preferences,
    with_rival,
)


def same(request: PlanRequest) -> PlanRequest:
    """The constants of the catalog."""
    return request


@pytest.fixture(scope="module")
def found() -> list[Preference]:
    return preferences(load_catalog())


def test_every_recipe_is_a_preference(found: list[Preference]) -> None:
    assert len(found) == len(recipe_questions(recipe_runs(load_catalog()))) > 300
    assert all(each.recipe and not each.rivals for each in found)


def test_a_rival_is_our_best_plan_and_counts_once(found: list[Preference]) -> None:
    once = with_rival(found[0], same)
    assert len(once.rivals) == 1
    assert with_rival(once, same) == once
    assert gap(replace(once, recipe=once.rivals), same) == pytest.approx(0)


@pytest.mark.parametrize(
    ("slower", "hinge", "pulls"),
    [(-0.1, 0.0, False), (MARGIN / 2, 0.0, False), (MARGIN + 0.1, 0.1, True), (1.0, MOST, False)],
)
def test_a_recipe_pulls_between_margin_and_limit(
    found: list[Preference], slower: float, hinge: float, pulls: bool
) -> None:
    recipe = replace(found[0], recipe=found[0].recipe[:1], rivals=found[0].recipe[:1] * 2)
    hinges = Hinges([recipe, found[1]], weight=0.5)
    assert len(hinges.cases) == 3
    logs = np.array([slower, 0.0, 0.2])
    assert hinges.residuals(logs) == pytest.approx([0.5 * hinge])
    assert hinges.pulling(logs) == ([(0, 0, 1)] if pulls else [])
