"""Fit the time model's constants to published runs and write them as catalog files.

    python -m benchmarks.calibrate              # fit every profile, write the files (minutes)
    python -m benchmarks.calibrate --left-out   # refit without each model, each source

Least squares on the logarithm of predicted over measured step time, with a robust loss, so that
one odd run moves little. Each constant has bounds that physics allows and is drawn to a prior
(datasheet rates, measured kernel rates, one pass over memory per tensor) by a weak penalty, so that
what the data does not say stays where it was. Recipes of experts pull too, where our clock prefers
another layout (`benchmarks.preferences`). A constant belongs to a software profile, or to a
profile on one GPU family; never to a model, a source or a row. The same data gives the same files.
"""

from __future__ import annotations

import math
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from scipy.optimize import least_squares

from app.advisor import accuracy
from app.advisor.accuracy import Measured
from app.catalog.loader import load_catalog
from app.planner.efficiency import Efficiency
from app.planner.framework import FrameworkProfile
from app.planner.request import PlanRequest
from app.planner.timing import step_time
from benchmarks.preferences import (
    WEIGHT,
    Applied,
    Case,
    Hinges,
    Preference,
    preferences,
    with_rival,
)

CATALOG_DATA = Path(__file__).parents[1] / "app" / "catalog" / "data"
UNTUNED = frozenset({"card", "lit3", "swift", "tune", "ec", "mds"})
"""Sources the fit does not see: runs that were not tuned for speed, or whose tokens are unsure."""

CAP = 100
"""Rows of one set that count in full; more rows share their weight."""

HEAVY: Mapping[str, float] = {"vTrain multi-node": 3.0, "MoE": 2.0, "A100 Megatron-LM": 1.5}
"""Sets whose rows count more than one of vTrain's single-node runs."""

Values = dict[str, float]
Known = TypeVar("Known", Measured, Preference)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One constant to fit: its bounds, its prior and how far from it is still plausible."""

    low: float
    high: float
    prior: float
    spread: float


def c(low: float, high: float, prior: float, spread: float) -> Constant:
    """A constant, in one line of a table."""
    return Constant(low=low, high=high, prior=prior, spread=spread)


COMMON: Mapping[str, Constant] = {
    "hbm": c(0.6, 0.9, 0.75, 0.05),
    "wave": c(0, 0.6, 0.5, 0.1),
    "attention_half_length": c(0, 3000, 500, 300),
    "attention_head_exponent": c(0, 1.5, 0.4, 0.3),
    "backward_attention": c(1.5, 3.5, 2.5, 0.3),
    "elementwise_hidden": c(10, 100, 30, 10),
    "elementwise_mlp": c(0, 50, 10, 5),
    "launch_seconds": c(1e-5, 3e-3, 3e-4, 1.5e-4),
    "step_seconds": c(0, 0.03, 0.01, 0.01),
    "inter_link": c(0.1, 1, 0.8, 0.15),
    "intra_link": c(0.3, 1, 0.75, 0.1),
    "latency_factor": c(0.5, 8, 2, 1),
    "logits_passes": c(4, 40, 12, 5),
    "optimizer_passes": c(4, 12, 8, 2),
    "!overlap_dp": c(0, 1, 0.7, 0.2),
}
"""What every profile has. A name that starts with `!` is a field of the framework profile."""

MOE: Mapping[str, Constant] = {
    "launch_routed_seconds": c(0, 8e-3, 3e-3, 3e-4),
    "launch_captured": c(0, 1, 0.5, 0.2),
    "grouped_gemm": c(0.3, 1, 0.8, 0.1),
    "moe_dispatch_passes": c(0, 100, 12, 8),
    "exchange_link": c(0.1, 1, 0.5, 0.1),
    "!overlap_ep": c(0, 1, 0.4, 0.3),
}
EXTRA: Mapping[str, Mapping[str, Constant]] = {
    "megatron": {
        **MOE,
        "hbm": c(0.6, 0.95, 0.75, 0.03),
        "elementwise_hidden": c(10, 100, 30, 5),
        "optimizer_passes": c(4, 12, 8, 1),
        "step_seconds": c(0, 0.06, 0.02, 0.01),
        "inter_link": c(0.3, 1, 0.85, 0.05),
        "intra_link": c(0.3, 1, 0.75, 0.05),
        "cp_attention": c(0, 1.5, 0.3, 0.2),
        "!overlap_each": c(0, 1, 0.7, 0.2),
        "!overlap_tp": c(0, 1, 0.5, 0.1),
        "!overlap_pp": c(0, 1, 0.5, 0.3),
    },
    "fsdp": {
        **MOE,
        "cp_attention": c(0, 1.5, 0.3, 0.2),
        "intra_link": c(0.3, 1, 0.75, 0.05),
    },
    "deepspeed": {"gathers_per_layer": c(1, 20, 6, 4)},
    "megatron-deepspeed": {
        "launch_seconds": c(1e-5, 3e-3, 8e-4, 4e-4),
        "launch_exposed": c(0, 1, 0.2, 0.2),
        "launch_collective_seconds": c(0, 1e-3, 1e-4, 5e-5),
        "attention_half_length": c(0, 3000, 500, 100),
        "intra_link": c(0.6, 0.9, 0.75, 0.03),
        "inter_link": c(0.3, 1, 0.85, 0.02),
        "latency_factor": c(1, 8, 2.7, 1),
        "optimizer_passes": c(4, 12, 8, 0.5),
        "score_passes": c(1, 40, 6, 1),
        "attention_unaligned": c(1, 20, 5, 2),
    },
}
BY_FAMILY: Mapping[str, Constant] = {"attention": c(0.1, 0.85, 0.4, 0.1)}
GEMM_PRIOR: Mapping[str, Mapping[str, float]] = {
    "ampere": {"fp16": 0.85, "bf16": 0.85},
    "hopper": {"bf16": 0.8, "fp8": 0.7},
    "blackwell": {"bf16": 0.74, "fp8": 0.73, "mxfp8": 0.7, "nvfp4": 0.5},
    "blackwell-ultra": {"bf16": 0.76, "fp8": 0.74, "mxfp8": 0.7, "nvfp4": 0.5},
    "cdna3": {"bf16": 0.5, "fp8": 0.4},
}
"""Matrix rate of a part's best shape over its peak. Source: stas00/ml-engineering, MAMF table; it
has no mxfp8 (taken just below fp8, for the scales of its blocks), nvfp4 or fp8 of CDNA 3 (assumed).
"""
SIXTEEN_BIT = ("fp16", "bf16")
"""Precisions whose products run at one rate."""
USUAL_GEMM = {"fp16": 0.75, "bf16": 0.75, "fp8": 0.65, "mxfp8": 0.65, "nvfp4": 0.5}
"""That of a family the table does not have."""
GEMM_SPREAD: Mapping[str, float] = {"megatron": 0.05}
"""How far from the prior is plausible, 0.1 if not said: tuned recipes come close to it."""

SIBLING: Mapping[str, str] = {
    "megatron-2025": "megatron",
    "megatron-lm-2022": "megatron-deepspeed",
    "maxtext": "fsdp",
}
"""Profiles that share every constant of another but their `OWN`."""
OWN: Mapping[str, Mapping[str, Constant]] = {
    "megatron-2025": {"moe_dispatch_passes": MOE["moe_dispatch_passes"]},
    "megatron-lm-2022": {
        "@ampere:gemm.fp16": c(0.2, 0.95, 0.85, 0.1),
        "launch_exposed": c(0, 1, 0.2, 0.2),
    },
    "maxtext": {
        "@hopper:gemm.bf16": c(0.2, 0.95, 0.8, 0.1),
        "@hopper:gemm.fp8": c(0.2, 0.95, 0.7, 0.1),
    },
}
"""What a sibling does otherwise. Megatron-Core fused the permutation of routed tokens in 2026.
NVIDIA's own runs of Megatron-LM (Selene) do the same products faster than Megatron-DeepSpeed's, and
XLA faster than PyTorch."""

FIXED: Mapping[str, Mapping[str, float]] = {
    "megatron-deepspeed": {"!overlap_tp": 0.0, "!overlap_pp": 0.0},
    "megatron-lm-2022": {"!overlap_tp": 0.0, "!overlap_pp": 0.0},
    "megatron": {"!gradient_bytes": 2.0},
    "megatron-2025": {"!gradient_bytes": 2.0},
}
"""What a stack is known to do: no overlap in 2022; NVIDIA's recipes reduce gradients in 16 bits."""


def files() -> dict[str, dict[str, Any]]:
    """The calibration files as they are."""
    found = {}
    for path in sorted((CATALOG_DATA / "calibration").glob("*.toml")):
        with path.open("rb") as file:
            found[path.stem] = tomllib.load(file)
    return found


@cache
def efficiency_fields() -> tuple[str, ...]:
    """Fields of `Efficiency` that are numbers."""
    return tuple(each.name for each in fields(Efficiency) if each.name != "provenance")


def scopes(profile: str, family: str) -> tuple[str, ...]:
    """Prefixes of the constants that hold for a profile on a family, the last wins."""
    names = [SIBLING[profile]] if profile in SIBLING else []
    names.append(profile)
    return (*names, *(f"{name}@{family}" for name in names))


def calibrated(
    base: Mapping[str, Any], values: Values, profile: str, family: str
) -> tuple[Efficiency, dict[str, float]]:
    """The efficiency of a profile on a GPU family, and the framework fields that were fitted.

    Where the runs tell one overlap of data-parallel traffic, it is that of every kind.
    """
    chosen = {key: dict(v) if isinstance(v, Mapping) else v for key, v in base.items()}
    framework: dict[str, float] = {}
    for scope in scopes(profile, family):
        for key, value in values.items():
            owner, _, field = key.partition(":")
            if owner != scope:
                continue
            if field.startswith("!"):
                framework[field[1:]] = value
            elif field.startswith("gemm."):
                names = SIXTEEN_BIT if field[5:] in SIXTEEN_BIT else (field[5:],)
                chosen["gemm"].update(dict.fromkeys(names, value))
            else:
                chosen[field] = value
    if "overlap_dp" in framework:
        framework.setdefault("overlap_each", framework["overlap_dp"])
    return Efficiency(**{name: chosen[name] for name in efficiency_fields()}), framework


def touches(run: Case, key: str) -> bool:
    """Whether a constant may change a run's prediction."""
    owner, _, field = key.partition(":")
    name, _, family = owner.partition("@")
    profile = profile_of(run)
    if name not in (profile, SIBLING.get(profile)):
        return False
    if family and family != run.request.cluster.gpu.family:
        return False
    if field in ("gemm.fp8", "gemm.mxfp8", "gemm.nvfp4"):
        return field[5:] == run.layout.precision
    if field in MOE:
        return run.request.model.moe is not None
    return True


def profile_of(run: Case | Preference) -> str:
    """The calibration of a run."""
    return run.request.framework.efficiency


class Model:
    """Predictions of many runs under given constants."""

    def __init__(self, base: Mapping[str, Mapping[str, Any]]) -> None:
        self.base = base

    def applied(self, values: Values) -> Applied:
        """How a request looks under given constants."""
        known: dict[tuple[int, str], tuple[Efficiency, FrameworkProfile]] = {}

        def asked(request: PlanRequest) -> PlanRequest:
            key = (id(request.framework), request.cluster.gpu.family)
            pair = known.get(key)
            if pair is None:
                profile = request.framework.efficiency
                efficiency, changed = calibrated(self.base[profile], values, profile, key[1])
                pair = known[key] = (efficiency, replace(request.framework, **changed))
            return replace(request, efficiency=pair[0], framework=pair[1])

        return asked

    def seconds(self, runs: Sequence[Case], values: Values) -> np.ndarray:
        """Step seconds of each run."""
        asked = self.applied(values)
        found = [step_time(asked(run.request), run.layout).total for run in runs]
        return np.array(found, dtype=float)


def constants(profile: str, runs: Sequence[Measured]) -> dict[str, Constant]:
    """The constants of a profile that its runs can tell something about."""
    found: dict[str, Constant] = {}
    wide = "fp16" if profile == "megatron-deepspeed" else "bf16"
    by_family: dict[str, set[str]] = {}
    for run in runs:
        by_family.setdefault(run.request.cluster.gpu.family, {wide}).add(run.layout.precision)
    for family in sorted(by_family):
        for precision in sorted(by_family[family] - (set(SIXTEEN_BIT) - {wide})):
            prior = GEMM_PRIOR.get(family, USUAL_GEMM)[precision]
            spread = GEMM_SPREAD.get(profile, 0.1)
            found[f"{profile}@{family}:gemm.{precision}"] = c(0.2, 0.95, prior, spread)
        for name, constant in BY_FAMILY.items():
            found[f"{profile}@{family}:{name}"] = constant
    for name, constant in {**COMMON, **EXTRA.get(profile, {})}.items():
        if name not in MOE or any(run.request.model.moe for run in runs):
            found[f"{profile}:{name}"] = constant
    for sibling in (name for name, other in SIBLING.items() if other == profile):
        for name, constant in OWN[sibling].items():
            found[sibling + name if name.startswith("@") else f"{sibling}:{name}"] = constant
    return found


def weight_of(counts: Mapping[str, int]) -> Callable[[Measured], float]:
    """The root of a run's weight: sets of more than `CAP` rows count as `CAP` rows.

    `HEAVY` sets count more: vTrain's few multi-node runs and the large ones of BigScience are what
    real jobs look like, and MoE rows scatter so much that a robust loss would else give up on half
    of them.
    """
    return lambda run: math.sqrt(min(1.0, CAP / counts[run.set]) * HEAVY.get(run.set, 1.0))


PENALTY = 0.1
"""Weight of one spread away from a prior, in relative error."""
PENALTY_OF: Mapping[str, float] = {"megatron-deepspeed": 0.05}
"""The same of a profile with so many runs that it needs less of a guide."""


def fit(
    profile: str,
    runs: Sequence[Measured],
    model: Model,
    *,
    preferred: Sequence[Preference] = (),
    start: Values | None = None,
    rounds: int = 60,
) -> Values:
    """The constants of one profile that fit its runs, and what experts preferred, best."""
    wanted = constants(profile, runs)
    names = list(wanted)
    low = np.array([wanted[name].low for name in names])
    high = np.array([wanted[name].high for name in names])
    prior = np.array([wanted[name].prior for name in names])
    spread = np.array([wanted[name].spread for name in names])
    penalty = PENALTY_OF.get(profile, PENALTY)
    inside = (high - low) * 1e-6
    begin = np.array([(start or {}).get(name, wanted[name].prior) for name in names])
    begin = np.clip(begin, low + inside, high - inside)
    fixed = {
        f"{owner}:{field}": value
        for owner in (profile, *(name for name, of in SIBLING.items() if of == profile))
        for field, value in FIXED.get(owner, {}).items()
    }
    measured = np.log([run.seconds for run in runs])
    counts = Counter(run.set for run in runs)
    weights = np.array([weight_of(counts)(run) for run in runs])
    hinges = Hinges(preferred, WEIGHT.get(profile, 0.0))
    cases: list[Case] = [*runs, *hinges.cases]
    affected = [{at for at, case in enumerate(cases) if touches(case, name)} for name in names]

    def values(point: np.ndarray) -> Values:
        return {**fixed, **dict(zip(names, (float(each) for each in point), strict=True))}

    def residuals(point: np.ndarray) -> np.ndarray:
        logs = np.log(model.seconds(cases, values(point)))
        error = logs[: len(runs)] - measured
        hinged = hinges.residuals(logs[len(runs) :])
        return np.concatenate([error * weights, hinged, (point - prior) / spread * penalty])

    def slopes(point: np.ndarray) -> np.ndarray:
        logs = np.log(model.seconds(cases, values(point)))
        pulling = hinges.pulling(logs[len(runs) :])
        counted = set(range(len(runs)))
        counted.update(len(runs) + at for _, *pair in pulling for at in pair)
        table = np.zeros((len(runs) + len(hinges.places) + len(names), len(names)))
        for column, _ in enumerate(names):
            step = max(abs(point[column]) * 1e-4, (high[column] - low[column]) * 1e-6)
            if point[column] + step > high[column]:
                step = -step
            moved = point.copy()
            moved[column] += step
            change = np.zeros(len(cases))
            some = sorted(affected[column] & counted)
            if some:
                seconds = model.seconds([cases[at] for at in some], values(moved))
                change[some] = (np.log(seconds) - logs[some]) / step
            table[: len(runs), column] = change[: len(runs)] * weights
            hinged = change[len(runs) :] * hinges.weight
            for place, recipe, rival in pulling:
                table[len(runs) + place, column] = hinged[recipe] - hinged[rival]
            table[len(runs) + len(hinges.places) + column, column] = penalty / spread[column]
        return table

    solved = least_squares(
        residuals,
        begin,
        slopes,
        bounds=(low, high),
        loss="soft_l1",
        f_scale=0.05,
        x_scale=spread,
        max_nfev=rounds,
    )
    return values(solved.x)


CUTS = 4
"""How often rivals are sought anew."""
ROUNDS = 15
"""Rounds of the fit after each."""


def fit_preferred(
    profile: str, runs: Sequence[Measured], preferred: Sequence[Preference], model: Model
) -> tuple[Values, list[Preference]]:
    """The constants of one profile, and the preferences with every rival that was found."""
    values = fit(profile, runs, model)
    found = list(preferred)
    if profile in WEIGHT and found:
        for _ in range(CUTS):
            applied = model.applied(values)
            found = [with_rival(each, applied) for each in found]
            values = fit(profile, runs, model, preferred=found, start=values, rounds=ROUNDS)
    return values, found


def by_profile(known: Iterable[Known]) -> dict[str, list[Known]]:
    """Runs or preferences by calibration; a profile that shares constants goes with its sibling."""
    found: dict[str, list[Known]] = {}
    for each in known:
        profile = profile_of(each)
        found.setdefault(SIBLING.get(profile, profile), []).append(each)
    return dict(sorted(found.items()))


def usable(runs: Iterable[Measured]) -> dict[str, list[Measured]]:
    """Runs to fit, by calibration."""
    return by_profile(run for run in runs if run.group not in UNTUNED)


def number(value: float) -> str:
    """Four significant digits, as TOML reads them."""
    text = f"{value:.4g}"
    return text if "." in text or "e" in text else f"{text}.0"


def split(profile: str, values: Values) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """The fitted efficiency fields of a profile: for every GPU, and by family."""
    own: dict[str, float] = {}
    families: dict[str, dict[str, float]] = {}
    names = (*((SIBLING[profile],) if profile in SIBLING else ()), profile)
    for name in names:
        for key, value in values.items():
            owner, _, field = key.partition(":")
            scope, _, family = owner.partition("@")
            if scope == name and not field.startswith("!"):
                (families.setdefault(family, {}) if family else own)[field] = value
    return own, families


def table(heading: str, numbers: Mapping[str, float]) -> list[str]:
    """One TOML table, nothing for no numbers."""
    if not numbers:
        return []
    return ["", f"[{heading}]", *(f"{name} = {number(value)}" for name, value in numbers.items())]


def family_tables(family: str, found: Mapping[str, float]) -> list[str]:
    """The TOML tables of one GPU family. fp16 and bf16 products run at one rate."""
    plain = {name: found[name] for name in sorted(found) if not name.startswith("gemm.")}
    rates = {name[5:]: value for name, value in found.items() if name.startswith("gemm.")}
    wide = rates.get("bf16", rates.get("fp16"))
    if wide is not None:
        rates = {"fp16": wide, "bf16": wide, **rates}
    return table(f"families.{family}", plain) + table(f"families.{family}.gemm", rates)


ASSUMED: Mapping[str, Mapping[str, float]] = {
    "ada": {"gemm.bf16": 0.75, "gemm.fp8": 0.5},
    "ampere": {"gemm.bf16": 0.85},
}
"""Families of which a profile has no run. Ada: 8-bit products with 32-bit accumulation reach less
of their peak than on Hopper, so that fp8 gains a third at most."""


def calibration_text(profile: str, base: Mapping[str, Any], values: Values, runs: int) -> str:
    """One calibration file."""
    own, families = split(profile, values)
    common = base["efficiency"]
    plain = {field: own.get(field, common[field]) for field in efficiency_fields()[1:]}
    lines = [
        "# Written by `make calibrate` (benchmarks/calibrate.py); edit the priors there, not here.",
        'provenance = "measured"',
        *table("efficiency", plain),
        *table("efficiency.gemm", common["gemm"]),
    ]
    for family, found in sorted({**ASSUMED, **families}.items()):
        lines += family_tables(family, found)
    fit = f"least squares on {runs} published runs of benchmarks/data/measurements.csv"
    lines += [
        "",
        "[sources]",
        f'fit = "{fit}; each row there names its source"',
        'assumed = "families and precisions without runs: priors of benchmarks/calibrate.py"',
        "",
    ]
    return "\n".join(lines)


def write(values: Values, counts: Mapping[str, int]) -> None:
    """The calibration files, and the fitted fields of the framework profiles."""
    for profile, base in files().items():
        source = SIBLING.get(profile, profile)
        text = calibration_text(profile, base, values, counts.get(source, 0))
        (CATALOG_DATA / "calibration" / f"{profile}.toml").write_text(text, encoding="utf-8")
    for path in sorted((CATALOG_DATA / "frameworks").glob("*.toml")):
        with path.open("rb") as file:
            profile = tomllib.load(file)["efficiency"]
        _, changed = calibrated(files()[profile]["efficiency"], values, profile, "none")
        lines = path.read_text(encoding="utf-8").split("\n")
        for index, line in enumerate(lines):
            name = line.partition(" = ")[0]
            if name in changed:
                lines[index] = f"{name} = {number(changed[name])}"
        path.write_text("\n".join(lines), encoding="utf-8")


def measured_runs() -> list[Measured]:
    """Every usable published run of the repository."""
    found, _ = accuracy.measured_runs(accuracy.DEFAULT_DATA, load_catalog())
    return found


def main() -> None:
    """Fit and write."""
    everything = measured_runs()
    preferred = by_profile(preferences(load_catalog()))
    bases = {name: table["efficiency"] for name, table in files().items()}
    model = Model(bases)
    values: Values = {}
    counts = {}
    for profile, runs in usable(everything).items():
        found, _ = fit_preferred(profile, runs, preferred.get(profile, []), model)
        values.update(found)
        counts[profile] = len(runs)
        errors = np.abs(model.seconds(runs, found) / [run.seconds for run in runs] - 1)
        print(f"{profile}: {len(runs)} runs, {len(found)} constants, {errors.mean():.1%}")
    write(values, counts)


if __name__ == "__main__":
    if sys.argv[1:] == ["--left-out"]:
        from benchmarks.left_out import main as left_out

        left_out()
    else:
        main()
