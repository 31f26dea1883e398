"""Layouts that experts published: each is legal here, and among the layouts the search looks at."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advisor.published import Excluded, Run
from app.catalog.loader import load_catalog
from app.planner.estimate import complete, estimate
from app.planner.intent import TrainIntent
from app.planner.layout import Layout
from app.planner.legality import uneven_stages, violations
from app.planner.request import PlanRequest
from app.planner.search import best_estimate
from app.planner.space import MAX_MICROBATCH, enumerate_layouts
from benchmarks.memory import completions, runs

CATALOG = load_catalog()
RECIPES = {
    "mbr": "Megatron-Bridge performance summary",
    "skill": "Megatron-Bridge skills",
    "card": "Megatron-Bridge verification cards",
    "nemo": "NeMo performance pages",
    "dgxc": "DGX Cloud benchmarking",
    "auto": "NeMo AutoModel",
    "mlm": "Megatron-LM README",
    "tt": "torchtitan",
    "fms": "fms-fsdp",
    "llmf": "llm-foundry",
}


def spelled(request: PlanRequest, layout: Layout) -> Layout:
    """The layout with its uneven split, as Megatron-Core wants it."""
    return replace(layout, stage_layers=uneven_stages(request, layout.pp))


def question(run: Run) -> PlanRequest:
    """What was asked, in the precision of the run."""
    pins = replace(run.request.pins, precision=run.layout.precision)
    return replace(run.request, pins=pins)


def legal_layouts(run: Run) -> list[Layout]:
    """The legal layouts a row may mean."""
    request = question(run)
    meant = [spelled(request, layout) for layout in completions(run)]
    return [layout for layout in meant if not violations(request, layout)]


def gap_to_best(request: PlanRequest, layout: Layout) -> float:
    """How much longer an expert's step takes than that of our plan, by our own clock."""
    best, _ = best_estimate(request)
    assert best is not None
    return estimate(request, layout).step_time_seconds / best.step_time_seconds - 1


@pytest.fixture(scope="module")
def published() -> list[Run]:
    return [each for each in runs(CATALOG) if not isinstance(each, Excluded)]


@pytest.mark.parametrize("group", RECIPES, ids=RECIPES.values())
def test_every_recipe_is_legal_and_in_the_space(published: list[Run], group: str) -> None:
    """Microbatches above the grid aside: 512-token sequences of small models."""
    mine = [run for run in published if run.group == group]
    assert mine
    illegal, outside = [], []
    spaces: dict[str, set[Layout]] = {}
    for run in mine:
        meant = legal_layouts(run)
        if not meant:
            illegal.append(run.row["id"])
            continue
        request = question(run)
        key = repr((request.model, request.cluster, request.workload, request.pins.precision))
        if key not in spaces:
            spaces[key] = set(enumerate_layouts(request))
        if not spaces[key].intersection(meant) and run.layout.microbatch_size <= MAX_MICROBATCH:
            outside.append(run.row["id"])
    assert illegal == []
    assert outside == []


LLAMA_3_TABLE_4 = [
    (1024, 1, 64, 8192, 2048),
    (2048, 1, 128, 8192, 2048),
    (2048, 16, 8, 131_072, 128),
]
"""Nodes, cp, dp, sequence length and global batch of the 405B runs, all tp 8 and pp 16.

Source: The Llama 3 Herd of Models, arXiv:2407.21783, table 4.
"""


def llama_3(nodes: int, length: int, batch: int) -> PlanRequest:
    intent = TrainIntent(
        model="llama-3-405b",
        gpu="H100-SXM5-80GB",
        nodes=nodes,
        framework="megatron",
        sequence_length=length,
        global_batch_size=batch,
    )
    request = CATALOG.resolve(intent)
    assert isinstance(request, PlanRequest)
    return request


@pytest.mark.parametrize(("nodes", "cp", "dp", "length", "batch"), LLAMA_3_TABLE_4)
def test_llama_3_405b(nodes: int, cp: int, dp: int, length: int, batch: int) -> None:
    """The embedding and the head count as a layer each: 7, 8, ..., 8, 7."""
    request = llama_3(nodes, length, batch)
    given = {"tp": 8, "pp": 16, "cp": cp, "stage_layers": uneven_stages(request, 16)}
    plain = complete(request, given)
    assert isinstance(plain, Layout)
    assert (plain.dp, plain.stage_layers) == (dp, (7, *[8] * 14, 7))
    space = {
        each for each in enumerate_layouts(request) if (each.tp, each.pp, each.cp) == (8, 16, cp)
    }
    for vpp in (1, 2, 4, 8):
        layout = replace(plain, vpp=vpp)
        if layout.vpp > 1 and (batch // dp) % 16:
            continue
        assert violations(request, layout) == ()
        assert layout in space


def test_the_gap_of_a_plan_to_itself_is_nothing() -> None:
    request = llama_3(64, 8192, 512)
    best, _ = best_estimate(request)
    assert best is not None
    assert gap_to_best(request, best.layout) == 0
