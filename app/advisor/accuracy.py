"""How far predicted step times are from published ones: rows, sets, and the order of layouts."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from app.advisor.published import Excluded, Row, Run, runs
from app.catalog.loader import Catalog
from app.planner.layout import Layout
from app.planner.request import PlanRequest
from app.planner.timing import step_time

DEFAULT_DATA: Final = Path(__file__).parents[2] / "benchmarks" / "data" / "measurements.csv"
"""The published runs of a checkout; an installed package does not carry them."""

UNTUNED: Final = "NOT tuned for speed"
"""How a run that only shows that a recipe works is marked."""

BRIDGE: Final = "Megatron-Bridge"
MODELS_FILE: Final = "models.csv"
DENSE_MEGATRON: Final = frozenset({"mbr", "nemo", "dgxc", "mlm", "skill"})
A100_MEGATRON: Final = frozenset({"bs", "nar", "korth"})

GOALS: Final[Mapping[str, float]] = {
    "llm-foundry MPT": 0.05,
    "vTrain multi-node": 0.08,
    "vTrain single-node": 0.084,
    "Megatron-Core dense": 0.08,
    "MoE": 0.15,
    "A100 Megatron-LM": 0.06,
}
"""Mean absolute error of a set that the project set itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A published run that states its time: `seconds` of one optimizer step."""

    run: Run
    seconds: float

    @property
    def row(self) -> Row:
        """The row it comes from."""
        return self.run.row

    @property
    def request(self) -> PlanRequest:
        """What was asked."""
        return self.run.request

    @property
    def layout(self) -> Layout:
        """How it was laid out."""
        return self.run.layout

    @property
    def group(self) -> str:
        """The source group."""
        return self.run.group

    @property
    def set(self) -> str:
        """The set it is judged with."""
        return set_of(self.run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Our seconds of a step against the published ones."""

    measured: Measured
    predicted_seconds: float

    @property
    def error(self) -> float:
        """Signed relative error of the step time."""
        return self.predicted_seconds / self.measured.seconds - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Errors of one set of rows."""

    name: str
    rows: int
    mean_error: float
    bias: float
    median_error: float
    worst: float


def set_of(run: Run) -> str:
    """The set a run is judged with: those of the goals, else its source and software."""
    group = run.group
    if group == "vt":
        nodes = "multi-node" if run.request.cluster.nodes > 1 else "single-node"
        return f"vTrain {nodes}"
    if group == "llmf":
        return "llm-foundry MPT"
    if run.request.model.moe is not None:
        return "MoE"
    if group in A100_MEGATRON:
        return "A100 Megatron-LM"
    if group in DENSE_MEGATRON:
        return "Megatron-Core dense"
    return f"other: {group}"


def narayanan_seconds(run: Run) -> float:
    """Step seconds from the hardware FLOP rate of Narayanan's tables, 0 without one.

    Those tables state no time. Their FLOP count is exact: 96 B s l h^2 (1 + s / 6h + V / 16lh),
    recomputation included. Source: arXiv:2104.04473, equation 3.
    """
    row, model, workload = run.row, run.request.model, run.request.workload
    if run.group != "nar" or not row["model_tflops_per_gpu"]:
        return 0.0
    s, l, h = workload.sequence_length, model.num_layers, model.hidden_size  # noqa: E741
    shape = 1 + s / (6 * h) + model.vocab_size / (16 * l * h)
    flop = 96 * workload.global_batch_size * s * l * h * h * shape
    return flop / (float(row["model_tflops_per_gpu"]) * 1e12 * run.request.cluster.world_size)


def bridge_seconds(run: Run) -> float:
    """Step seconds from the model FLOP rate of Megatron-Bridge's pages, 0 without one.

    They count 6 per parameter and causal attention over the whole sequence, packed or not. LoRA
    and MoE rows count otherwise, and state tokens per second.
    """
    row, workload = run.row, run.request.workload
    counted = workload.task in ("pretrain", "sft") and run.request.model.moe is None
    if not (counted and row["framework"].startswith(BRIDGE) and row["model_tflops_per_gpu"]):
        return 0.0
    whole = replace(run.request.model, num_sliding_layers=0)
    flop = whole.model_flop_per_token(workload.sequence_length) * workload.sequence_length
    rate = float(row["model_tflops_per_gpu"]) * 1e12 * run.request.cluster.world_size
    return flop * workload.global_batch_size / rate


def measured_seconds(run: Run) -> float:
    """Seconds of one optimizer step as published, 0 when the row states neither time nor rate."""
    row, workload = run.row, run.request.workload
    if row["tokens_per_s_per_gpu"]:
        tokens = workload.global_batch_size * workload.sequence_length
        return tokens / (float(row["tokens_per_s_per_gpu"]) * float(row["num_gpus"]))
    if row["step_time_s"]:
        return float(row["step_time_s"])
    return narayanan_seconds(run) or bridge_seconds(run)


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def architectures(data: Path) -> dict[str, Row]:
    """The model table beside a file of measurements, else that of the checkout."""
    beside = data.parent / MODELS_FILE
    path = beside if beside.exists() else DEFAULT_DATA.parent / MODELS_FILE
    return {row["model"]: row for row in read_rows(path)}


def measured_runs(data: Path, catalog: Catalog) -> tuple[list[Measured], list[Excluded]]:
    """Every run of a file that states its time and enough to be computed, and the other rows."""
    found, left = [], []
    for each in runs(read_rows(data), architectures(data), catalog):
        if isinstance(each, Excluded):
            left.append(each)
            continue
        seconds = measured_seconds(each)
        missing = [
            kind
            for kind, known in (
                (each.layout.recompute, each.request.framework.recompute_flop_fraction),
                (each.layout.precision, each.request.cluster.gpu.peak_flop_per_second),
                (each.layout.sharding, each.request.framework.states),
            )
            if kind not in known
        ]
        if UNTUNED in each.row["notes"]:
            left.append(Excluded(row=each.row, reason="not tuned for speed, by its own words"))
        elif each.request.model.moe is not None and not each.row["ep"]:
            left.append(Excluded(row=each.row, reason="ep of an MoE run not stated"))
        elif not seconds:
            left.append(Excluded(row=each.row, reason="no step time or token rate"))
        elif missing:
            left.append(Excluded(row=each.row, reason=f"{missing[0]}: not of this GPU or software"))
        else:
            found.append(Measured(run=each, seconds=seconds))
    return found, left


def compare(measured: Iterable[Measured]) -> list[Comparison]:
    """Our step time for each run, in the run's own layout, legal by our rules or not."""
    return [
        Comparison(measured=each, predicted_seconds=step_time(each.request, each.layout).total)
        for each in measured
    ]


def summary(name: str, found: Sequence[Comparison]) -> Summary:
    """Mean, bias, median and worst error of some rows."""
    errors = sorted(abs(each.error) for each in found)
    middle = len(errors) // 2
    return Summary(
        name=name,
        rows=len(errors),
        mean_error=sum(errors) / len(errors),
        bias=sum(each.error for each in found) / len(errors),
        median_error=(errors[middle] + errors[-1 - middle]) / 2,
        worst=errors[-1],
    )


KEYS: Final[Mapping[str, Callable[[Comparison], str]]] = {
    "set": lambda each: each.measured.set,
    "source": lambda each: each.measured.group,
    "gpu": lambda each: each.measured.request.cluster.gpu.name,
    "framework": lambda each: each.measured.request.framework.name,
    "precision": lambda each: each.measured.layout.precision,
    "model": lambda each: each.measured.row["model"],
}
"""What a table may be grouped by."""


def summaries(found: Iterable[Comparison], by: str) -> list[Summary]:
    """One line a group, in the order of their names."""
    groups: dict[str, list[Comparison]] = {}
    for each in found:
        groups.setdefault(KEYS[by](each), []).append(each)
    return [summary(name, groups[name]) for name in sorted(groups)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Layouts of one model, batch and cluster that were all measured, and which one we would take.

    `regret` is what our choice costs over the best: 0.02 is two percent longer steps.
    """

    model: str
    layouts: int
    regret: float


def choices(found: Iterable[Comparison]) -> dict[str, list[Choice]]:
    """By set, every group of at least two measured layouts that differ in layout alone."""
    groups: dict[tuple[str, ...], list[Comparison]] = {}
    for each in found:
        request, row = each.measured.request, each.measured.row
        if each.measured.group not in ("vt", "bs"):
            continue
        key: tuple[str, ...] = (
            each.measured.set,
            row["model"],
            str(request.model.num_heads),
            str(request.cluster.world_size),
            str(request.workload.global_batch_size),
            each.measured.layout.precision,
        )
        groups.setdefault(key, []).append(each)
    result: dict[str, list[Choice]] = {}
    for key, some in sorted(groups.items()):
        if len({each.measured.layout for each in some}) > 1:
            chosen = min(some, key=lambda each: each.predicted_seconds)
            best = min(each.measured.seconds for each in some)
            regret = chosen.measured.seconds / best - 1
            choice = Choice(model=key[1], layouts=len(some), regret=regret)
            result.setdefault(key[0], []).append(choice)
    return result
