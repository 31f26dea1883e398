"""Errors on runs the constants have not seen: refit without each model, and without each source.

The refits start at the constants of all runs and take a few rounds: what is left out moves them
little; a constant that nothing else tells about goes back to its prior. One vTrain single-node run
in five is enough to refit; all of the left-out ones are judged.
Writes benchmarks/data/left_out.csv, which docs/accuracy.md shows.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from app.advisor.accuracy import Measured
from benchmarks.calibrate import Model, Values, constants, files, fit, measured_runs, usable

RESULT = Path(__file__).parent / "data" / "left_out.csv"
ROUNDS = 6
THINNED = "vTrain single-node"
EVERY = 5

BY: Mapping[str, Callable[[Measured], str]] = {
    "model": lambda run: run.row["model"].partition(" (")[0],
    "source": lambda run: run.group,
}
"""Depth-reduced proxies go with their model."""


def thinned(runs: list[Measured]) -> list[Measured]:
    """All runs but four in five of the large single-node set."""
    return [run for index, run in enumerate(runs) if run.set != THINNED or index % EVERY == 0]


def left_out_errors(
    profile: str, runs: list[Measured], model: Model, start: Values, by: str
) -> list[tuple[Measured, float]]:
    """Each run with the error of constants fitted without its group."""
    key, found = BY[by], []
    for name in sorted({key(run) for run in runs}):
        kept = thinned([run for run in runs if key(run) != name])
        gone = [run for run in runs if key(run) == name]
        if not kept:
            continue
        priors = {name: each.prior for name, each in constants(profile, runs).items()}
        values = {**priors, **fit(profile, kept, model, start=start, rounds=ROUNDS)}
        predicted = model.seconds(gone, values)
        found += [
            (run, float(seconds / run.seconds - 1))
            for run, seconds in zip(gone, predicted, strict=True)
        ]
    return found


def main() -> None:
    """Refit, and write a table of errors by set."""
    model = Model({name: table["efficiency"] for name, table in files().items()})
    errors: dict[tuple[str, str], list[float]] = {}
    for profile, runs in usable(measured_runs()).items():
        start = fit(profile, thinned(runs), model)
        for by in BY:
            for run, error in left_out_errors(profile, runs, model, start, by):
                errors.setdefault((by, run.set), []).append(error)
    with RESULT.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("left_out", "set", "rows", "mean_error", "bias"))
        for (by, name), some in sorted(errors.items()):
            mean, bias = np.mean(np.abs(some)), np.mean(some)
            table.writerow((by, name, len(some), f"{mean:.4f}", f"{bias:+.4f}"))
            print(f"without its {by}: {name} {len(some)} {mean:.1%} {bias:+.1%}")


if __name__ == "__main__":
    main()
