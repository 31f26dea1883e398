"""Step times against published runs: every set below its goal.

Where a set is well below, the bound is the reached error and half a point.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advisor.accuracy import (
    DEFAULT_DATA,
    GOALS,
    Comparison,
    choices,
    compare,
    measured_runs,
    summaries,
)
from app.catalog.loader import load_catalog
from app.planner.intent import TrainIntent
from app.planner.layout import Layout
from app.planner.request import PlanRequest
from app.planner.timing import Links, cp_seconds_per_layer, step_time
from benchmarks.left_out import RESULT

CATALOG = load_catalog()
MEASURED, LEFT = measured_runs(DEFAULT_DATA, CATALOG)
FOUND: list[Comparison] = compare(MEASURED)
BY_SET = {each.name: each for each in summaries(FOUND, "set")}
REACHED = {**GOALS, "Megatron-Core dense": 0.06, "MoE": 0.102, "llm-foundry MPT": 0.036}


@pytest.mark.parametrize("name", sorted(GOALS))
def test_mean_error_of_a_set(name: str) -> None:
    assert BY_SET[name].mean_error <= REACHED[name]


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("llm-foundry MPT", 0.05),
        ("Megatron-Core dense", 0.079),
        ("MoE", 0.139),
        ("A100 Megatron-LM", 0.071),
    ],
)
def test_a_set_without_its_model(name: str, bound: float) -> None:
    """On models the constants have not seen: MPT's goal, else what was reached and half a point."""
    lines = RESULT.read_text(encoding="utf-8").splitlines()
    row = next(line for line in lines if line.startswith(f"model,{name},"))
    assert float(row.split(",")[3]) <= bound


@pytest.mark.parametrize(
    ("name", "bound"),
    [("vTrain single-node", 0.05), ("vTrain multi-node", 0.025), ("A100 Megatron-LM", 0.02)],
)
def test_regret_of_the_layout_we_would_choose(name: str, bound: float) -> None:
    regrets = [each.regret for each in choices(FOUND)[name]]
    assert sum(regrets) / len(regrets) <= bound


def test_every_row_is_compared_or_left_out_with_a_reason() -> None:
    assert len(MEASURED) + len(LEFT) == 2123
    assert all(each.reason for each in LEFT)


def request(
    model: str, gpu: str, *, nodes: int, length: int, batch: int, framework: str = "fsdp"
) -> PlanRequest:
    resolved = CATALOG.resolve(
        TrainIntent(
            model=model,
            gpu=gpu,
            nodes=nodes,
            gpus_per_node=8,
            framework=framework,
            sequence_length=length,
            global_batch_size=batch,
        )
    )
    assert isinstance(resolved, PlanRequest)
    return resolved


def gain(asked: PlanRequest, layout: Layout) -> float:
    """How many times faster fp8 is than bf16."""
    wide = step_time(asked, replace(layout, precision="bf16")).total
    return wide / step_time(asked, replace(layout, precision="fp8")).total


def test_fp8_gains_more_on_large_products() -> None:
    """Published: 1.28 to 1.31 times on 8B, 1.6 on 405B, never the 2 of the peak rates."""
    small = request(
        "llama-3.1-8b", "H100-SXM5-80GB", nodes=1, length=8192, batch=128, framework="megatron"
    )
    large = request(
        "llama-3.1-405b",
        "H100-SXM5-80GB",
        nodes=128,
        length=8192,
        batch=512,
        framework="megatron",
    )
    on_8b = gain(small, Layout(dp=8, dp_shard=8, sharding="zero1"))
    on_405b = gain(
        large,
        Layout(tp=8, pp=8, vpp=8, cp=2, dp=8, dp_shard=8, sharding="zero1", sequence_parallel=True),
    )
    assert 1.15 < on_8b < 1.4
    assert on_8b < on_405b < 1.75


@pytest.mark.parametrize("gpu", ["L40S", "RTX-4090"])
def test_fp8_gain_on_ada_stays_below_hopper(gpu: str) -> None:
    ada = request("llama-3.1-8b", gpu, nodes=4, length=4096, batch=128)
    hopper = request("llama-3.1-8b", "H100-SXM5-80GB", nodes=4, length=4096, batch=128)
    layout = Layout(dp=32, dp_shard=32)
    assert 1 - 1e-9 <= gain(ada, layout) <= gain(hopper, layout)


def test_a100_has_no_fp8() -> None:
    asked = request("llama-3.1-8b", "A100-SXM4-80GB", nodes=1, length=4096, batch=64)
    assert not asked.cluster.gpu.supports("fp8")


@pytest.mark.parametrize("length", [4096, 8192])
def test_context_parallelism_costs_on_short_sequences(length: int) -> None:
    """The same tokens a rank, one half of each sequence: slower than whole sequences."""
    asked = request(
        "llama-3.1-8b", "H100-SXM5-80GB", nodes=1, length=length, batch=64, framework="megatron"
    )
    whole = Layout(dp=8, dp_shard=8, sharding="zero1")
    halves = replace(whole, cp=2, dp=4, dp_shard=4, microbatch_size=2)
    assert cp_seconds_per_layer(asked, Links(asked), halves).at(length) > 0
    assert step_time(asked, halves).total > 1.005 * step_time(asked, whole).total


def test_layers_that_do_not_divide_cost_the_fullest_stage() -> None:
    """126 layers over 8 stages: as slow as the stages of 16."""
    asked = request(
        "llama-3.1-405b", "H100-SXM5-80GB", nodes=16, length=8192, batch=256, framework="megatron"
    )
    uneven = Layout(tp=8, pp=8, dp=2, dp_shard=2, sharding="zero1", sequence_parallel=True)
    even = replace(uneven, pp=2, dp=8, dp_shard=8)
    per_gpu = step_time(asked, uneven).compute / step_time(asked, even).compute
    assert 1.0 < per_gpu < 1.06


def test_single_node_small_model_is_bound_by_launches() -> None:
    """Twice the microbatch takes nothing more where the host launches too slowly."""
    rows = [
        each
        for each in MEASURED
        if each.set == "vTrain single-node" and each.layout.microbatch_size == 1
    ]
    one = rows[0]
    double = replace(one.layout, microbatch_size=2)
    ratio = step_time(one.request, double).compute / step_time(one.request, one.layout).compute
    assert ratio < 0.75
