"""What the constants have not seen: refit without each model, and without each source.

Judged on the runs that were left out (errors) and on the recipes (share within 5 % of our best
plan): a recipe leaves the fit with its run and with what its experts preferred. The refits start at
the constants of all runs and take a few rounds: what is left out moves them little; a constant that
nothing else tells about goes back to its prior. One vTrain single-node run in five is enough to
refit; all of the left-out ones are judged.
Writes benchmarks/data/left_out.csv and left_out_recipes.csv, which docs/accuracy.md shows.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.advisor.accuracy import Measured
from app.advisor.published import Run
from app.catalog.loader import load_catalog
from benchmarks.calibrate import (
    Model,
    Values,
    by_profile,
    constants,
    files,
    fit,
    fit_preferred,
    measured_runs,
    usable,
)
from benchmarks.expert_plans import RECIPES, within
from benchmarks.preferences import Preference, gap, preferences

RESULT = Path(__file__).parent / "data" / "left_out.csv"
RECIPE_RESULT = RESULT.with_name("left_out_recipes.csv")
ROUNDS = 6
THINNED = "vTrain single-node"
EVERY = 5

BY: Mapping[str, Callable[[Run], str]] = {
    "model": lambda run: run.row["model"].partition(" (")[0],
    "source": lambda run: run.group,
}
"""Depth-reduced proxies go with their model."""


def thinned(runs: Sequence[Measured]) -> list[Measured]:
    """All runs but four in five of the large single-node set."""
    return [run for index, run in enumerate(runs) if run.set != THINNED or index % EVERY == 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """What was left out of one refit: signed errors of runs, gaps of recipes."""

    errors: Sequence[tuple[Measured, float]]
    gaps: Sequence[tuple[Preference, float]]


def refits(
    profile: str,
    runs: Sequence[Measured],
    preferred: Sequence[Preference],
    *,
    model: Model,
    start: Values,
    by: str,
) -> Iterator[Unseen]:
    """One refit without each group, where runs are left to fit."""
    key = BY[by]
    priors = {name: each.prior for name, each in constants(profile, runs).items()}
    for name in sorted({key(each.run) for each in (*runs, *preferred)}):
        kept = thinned([each for each in runs if key(each.run) != name])
        if not kept:
            continue
        others = [each for each in preferred if key(each.run) != name]
        fitted = fit(profile, kept, model, preferred=others, start=start, rounds=ROUNDS)
        values = {**priors, **fitted}
        gone = [each for each in runs if key(each.run) == name]
        errors = model.seconds(gone, values) / [each.seconds for each in gone] - 1
        recipes = [each for each in preferred if key(each.run) == name]
        applied = model.applied(values)
        yield Unseen(
            errors=list(zip(gone, errors.tolist(), strict=True)),
            gaps=[(each, gap(each, applied)) for each in recipes],
        )


def write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table, which is printed too."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(header)
        for row in rows:
            table.writerow(row)
            print(*row)


def main() -> None:
    """Refit, and write errors by set and shares of recipes by source."""
    model = Model({name: table["efficiency"] for name, table in files().items()})
    preferred = by_profile(preferences(load_catalog()))
    errors: dict[tuple[str, str], list[float]] = {}
    gaps: dict[tuple[str, str], list[float]] = {}
    for profile, runs in usable(measured_runs()).items():
        start, found = fit_preferred(profile, thinned(runs), preferred.get(profile, []), model)
        for by in BY:
            for unseen in refits(profile, runs, found, model=model, start=start, by=by):
                for run, error in unseen.errors:
                    errors.setdefault((by, run.set), []).append(error)
                for recipe, size in unseen.gaps:
                    gaps.setdefault((by, recipe.run.group), []).append(size)
    write(
        RESULT,
        ("left_out", "set", "rows", "mean_error", "bias"),
        (
            (by, name, len(some), f"{np.mean(np.abs(some)):.4f}", f"{np.mean(some):+.4f}")
            for (by, name), some in sorted(errors.items())
        ),
    )
    write(
        RECIPE_RESULT,
        ("left_out", "source", "recipes", "within", "median"),
        (
            (by, name, len(some), within(some), f"{np.median(some):.4f}")
            for by in BY
            for name in RECIPES
            if (some := gaps.get((by, name)))
        ),
    )


if __name__ == "__main__":
    main()
