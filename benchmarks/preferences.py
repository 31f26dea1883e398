"""What experts preferred: recipes as evidence about the clock.

Whoever tuned a recipe had other layouts to choose from. Where our clock calls one of those faster
by more than a margin, the clock is more likely wrong than the expert, in directions that measured
steps hardly tell: nobody publishes the layouts that lost. So `benchmarks.calibrate` adds to its
residuals, for every recipe, the hinge
    weight * clip(log T(recipe) - log T(rival) - MARGIN, 0, MOST)
where the rivals are the plans we thought best under earlier constants, the fastest of which counts.
A hinge beyond `MOST` pulls no more: such a layout was kept over a series or shows that a feature
works. Refits find new rivals, and old ones stay: cutting planes, as in Keshavarz, Wang and Boyd,
Imputing a Convex Objective Function (2011).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from app.advisor.published import Run
from app.catalog.loader import Catalog
from app.planner.estimate import estimate
from app.planner.layout import Layout
from app.planner.request import PlanRequest
from app.planner.search import best_estimate
from benchmarks.expert_plans import Question, judged, recipe_questions, recipe_runs

MARGIN = 0.03
"""How much faster than a recipe, by logarithm, a rival may be without a word."""
MOST = 0.2
"""The largest hinge that still pulls."""
WEIGHT: Mapping[str, float] = {"megatron": 0.3, "composer": 0.5}
"""Weight of a recipe by profile, where a run of the profile has 1. Chosen by the errors and the
share of recipes on models and sources left out; FSDP's recipes gain nothing there."""

Applied = Callable[[PlanRequest], PlanRequest]
"""A request under other constants."""


class Case(Protocol):
    """What has a step time: a run or a layout of a question."""

    @property
    def request(self) -> PlanRequest:
        """What was asked."""
        ...

    @property
    def layout(self) -> Layout:
        """How it is laid out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A layout of a question."""

    request: PlanRequest
    layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """A recipe: the layouts it may mean, and the rivals it was preferred to."""

    run: Run
    request: PlanRequest
    recipe: tuple[Choice, ...]
    rivals: tuple[Choice, ...] = ()


def preferences(catalog: Catalog) -> list[Preference]:
    """Every recipe of a published run, without rivals yet.

    What a source leaves open takes values that fit, or any where none does.
    """
    by_id = {run.row["id"]: run for run in recipe_runs(catalog)}
    found = []
    for asked in recipe_questions(by_id.values()):
        request = asked.request
        fitting = [each for each in asked.layouts if estimate(request, each).fits]
        choices = tuple(Choice(request=request, layout=each) for each in fitting or asked.layouts)
        found.append(Preference(run=by_id[asked.name], request=request, recipe=choices))
    return found


def with_rival(preference: Preference, applied: Applied) -> Preference:
    """The same, and our best plan under these constants among its rivals."""
    best, _ = best_estimate(applied(preference.request))
    if best is None or any(best.layout == each.layout for each in preference.rivals):
        return preference
    rival = Choice(request=preference.request, layout=best.layout)
    return replace(preference, rivals=(*preference.rivals, rival))


def gap(preference: Preference, applied: Applied) -> float:
    """How much longer the recipe's step is than that of our best plan under these constants.

    Raises AssertionError where nothing fits.
    """
    asked = Question(
        name=preference.run.row["id"],
        source=preference.run.group,
        request=applied(preference.request),
        layouts=tuple(each.layout for each in preference.recipe),
    )
    return judged(asked).gap


class Hinges:
    """The residuals of some preferences over the step times of their `cases`."""

    def __init__(self, preferred: Sequence[Preference], weight: float) -> None:
        self.weight = weight
        self.cases: list[Case] = []
        self.places: list[tuple[list[int], list[int]]] = []
        for each in preferred:
            if each.rivals:
                self.places.append((self._add(each.recipe), self._add(each.rivals)))

    def _add(self, choices: Sequence[Choice]) -> list[int]:
        start = len(self.cases)
        self.cases += choices
        return list(range(start, len(self.cases)))

    def fastest(self, logs: np.ndarray) -> list[tuple[int, int]]:
        """The case of each recipe and of its rivals that counts."""
        return [
            (min(recipe, key=lambda at: logs[at]), min(rivals, key=lambda at: logs[at]))
            for recipe, rivals in self.places
        ]

    def residuals(self, logs: np.ndarray) -> np.ndarray:
        """Of logarithms of seconds, by case."""
        over = [logs[recipe] - logs[rival] - MARGIN for recipe, rival in self.fastest(logs)]
        return self.weight * np.clip(np.array(over), 0, MOST)

    def pulling(self, logs: np.ndarray) -> list[tuple[int, int, int]]:
        """Hinge, recipe and rival of every residual that a change of constants moves."""
        return [
            (place, recipe, rival)
            for place, (recipe, rival) in enumerate(self.fastest(logs))
            if 0 < logs[recipe] - logs[rival] - MARGIN < MOST
        ]
