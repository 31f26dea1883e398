"""How fast the search is: every model, GPU and size of the catalog, or a fixed sample of them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from app.catalog.loader import Catalog
from app.planner.intent import TrainIntent
from app.planner.request import NoFeasiblePlan, Plan, PlanRequest
from app.planner.search import best_layout, plan

NODES = tuple(1 << shift for shift in range(12))
GPUS_PER_NODE = (1, 2, 4, 8)
STRIDE = 75_041
"""Steps of this prime visit the grid in an order that mixes models, GPUs and sizes."""

SLOWEST_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """One question of the grid, by name."""

    model: str
    gpu: str
    nodes: int
    gpus_per_node: int

    @property
    def words(self) -> str:
        """`model on nodes x gpus_per_node GPU`."""
        return f"{self.model} on {self.nodes} x {self.gpus_per_node} {self.gpu}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One search, cold: its seconds, how much of the space it evaluated, and the whole plan's."""

    combination: Combination
    search_seconds: float
    plan_seconds: float
    configurations: int
    evaluated: int
    feasible: bool


def combinations(catalog: Catalog, sample: int = 0) -> Iterator[Combination]:
    """The grid, or `sample` combinations of it, the same ones each time."""
    grid = list(product(catalog.models, catalog.gpus, NODES, GPUS_PER_NODE))
    count = min(sample, len(grid)) if sample else len(grid)
    stride = STRIDE if len(grid) % STRIDE else 1
    for index in range(count):
        model, gpu, nodes, per_node = grid[index * stride % len(grid)]
        yield Combination(model=model, gpu=gpu, nodes=nodes, gpus_per_node=per_node)


def question(catalog: Catalog, combination: Combination) -> PlanRequest | None:
    """The resolved question; `None` where the catalog has no such machine."""
    resolved = catalog.resolve(
        TrainIntent(
            model=combination.model,
            gpu=combination.gpu,
            nodes=combination.nodes,
            gpus_per_node=combination.gpus_per_node,
        )
    )
    return resolved if isinstance(resolved, PlanRequest) else None


def timed(catalog: Catalog, sample: int, clock: Callable[[], float]) -> Iterator[Timed]:
    """Every search of the grid, without any cache; and the plan with its words, or the refusal.

    The collector waits meanwhile: it would go through the results of this run, not the search's.
    """
    for combination in combinations(catalog, sample):
        request = question(catalog, combination)
        if request is None:
            continue
        gc.disable()
        try:
            started = clock()
            best = best_layout(request)
            searched = clock()
            outcome: Plan | NoFeasiblePlan = plan(request)
            planned = clock()
        finally:
            gc.enable()
        yield Timed(
            combination=combination,
            search_seconds=searched - started,
            plan_seconds=planned - searched,
            configurations=best.configurations,
            evaluated=best.evaluated,
            feasible=isinstance(outcome, Plan),
        )


GROWTH_MODELS = ("llama-3-70b", "qwen3-30b-a3b")
"""A dense model and one with experts, on nodes of eight of the GPU below, a sequence a GPU."""
GROWTH_GPU = "H100-SXM5-80GB"
GROWTH_GPUS = 512
GROWTH: Mapping[str, tuple[int, ...]] = {
    "GPUs": (8, 32, 128, 512, 2048, 8192, 32_768, 65_536),
    "layers": (8, 32, 128, 512),
    "experts": (8, 32, 128, 512),
}
REPEATS = 5


def grown(catalog: Catalog, model: str, axis: str, size: int) -> PlanRequest | None:
    """The question with one thing at that size; `None` where the model has no such thing."""
    gpus = size if axis == "GPUs" else GROWTH_GPUS
    where = Combination(model=model, gpu=GROWTH_GPU, nodes=gpus // 8, gpus_per_node=8)
    asked = question(catalog, where)
    if asked is None:
        return None
    architecture, moe = asked.model, asked.model.moe
    if axis == "layers":
        routed = moe and replace(moe, num_moe_layers=size)
        architecture = replace(architecture, num_layers=size, moe=routed)
    elif axis == "experts":
        if moe is None:
            return None
        architecture = replace(architecture, moe=replace(moe, num_experts=size))
    workload = replace(asked.workload, global_batch_size=gpus)
    return replace(asked, model=architecture, workload=workload)


def growth(catalog: Catalog, clock: Callable[[], float]) -> list[dict[str, Any]]:
    """How the search grows with GPUs, layers and experts: counts, and the least of some times."""
    rows = []
    for model, (axis, sizes) in product(GROWTH_MODELS, GROWTH.items()):
        for size in sizes:
            asked = grown(catalog, model, axis, size)
            if asked is None:
                continue
            seconds = []
            for _ in range(REPEATS):
                started = clock()
                best = best_layout(asked)
                seconds.append(clock() - started)
            rows.append(
                {
                    "model": model,
                    "axis": axis,
                    "size": size,
                    "configurations": best.configurations,
                    "evaluated": best.evaluated,
                    "seconds": min(seconds),
                }
            )
    return rows


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of the sorted values do not exceed; 0 for none."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def spread(values: list[float]) -> dict[str, float]:
    """Median, p99 and largest."""
    ordered = sorted(values)
    return {
        "count": len(ordered),
        "median_seconds": percentile(ordered, 0.5),
        "p99_seconds": percentile(ordered, 0.99),
        "max_seconds": ordered[-1] if ordered else 0.0,
    }


def search_report(
    measured: list[Timed], growing: list[dict[str, Any]], *, form: str
) -> dict[str, Any]:
    """The report of `bench search`."""
    seconds = sum(each.search_seconds for each in measured)
    configurations = sum(each.configurations for each in measured)
    evaluated = sum(each.evaluated for each in measured)
    slowest = sorted(measured, key=lambda each: -each.search_seconds)[:SLOWEST_SHOWN]
    return {
        "planner": form,
        "search": spread([each.search_seconds for each in measured]),
        "plan": spread([each.plan_seconds for each in measured if each.feasible]),
        "refusal": spread([each.plan_seconds for each in measured if not each.feasible]),
        "configurations": configurations,
        "configurations_per_second": configurations / seconds if seconds else 0.0,
        "pruned_share": 1 - evaluated / configurations if configurations else 0.0,
        "slowest": [
            {
                "combination": each.combination.words,
                "seconds": each.search_seconds,
                "configurations": each.configurations,
                "evaluated": each.evaluated,
            }
            for each in slowest
        ],
        "growth": growing,
    }
