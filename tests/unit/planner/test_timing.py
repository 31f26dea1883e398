"""Terms of the step time, one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.planner.memory import layer_params
from app.planner.request import PlanRequest
from app.planner.timing import (
    LayerSeconds,
    Rates,
    SharedSeconds,
    accumulation,
    block_seconds,
    ep_seconds_per_pass,
    exposed_dp,
    gemm,
    launch_routed_seconds,
    layer_seconds,
    other_domains,
    routed_mlp,
    shared_seconds,
)
from tests.unit.planner.builders import layout, request

MOE = "qwen3-235b-a22b"


def traffic(asked: PlanRequest, **fields: object) -> SharedSeconds:
    """Per microbatch, per step, update."""
    return shared_seconds(asked, layout(asked, **fields))


def dense_layer(asked: PlanRequest) -> LayerSeconds:
    """Of the default layout."""
    laid = layout(asked)
    rates = Rates(asked, laid.precision)
    block = block_seconds(asked, laid, rates, routed=False)
    return layer_seconds(asked, laid, rates, block, routed=False)


def test_gradients_are_added_once_a_microbatch_whatever_its_tokens() -> None:
    asked = request(framework="megatron")
    one = accumulation(asked, layout(asked, tp=1), routed=False)
    four = accumulation(asked, layout(asked, tp=4), routed=False)
    assert one.per_token == 0
    assert one.fixed > 3.9 * four.fixed


def test_adding_a_gradient_reads_and_writes_it_once() -> None:
    asked = request(framework="megatron")
    wide = replace(asked, framework=replace(asked.framework, gradient_bytes=4.0))
    narrow = replace(asked, framework=replace(asked.framework, gradient_bytes=2.0))
    laid = layout(asked)
    params = sum(layer_params(asked.model, laid, routed=False))
    rate = asked.cluster.gpu.hbm_bytes_per_second * asked.efficiency.hbm
    assert accumulation(narrow, laid, routed=False).fixed == pytest.approx(4 * params / rate)
    assert accumulation(wide, laid, routed=False).fixed == pytest.approx(8 * params / rate)


def test_operands_load_while_others_multiply() -> None:
    """Half the memory bandwidth leaves a product as it is."""
    asked = request(framework="megatron")
    slow = replace(asked, efficiency=replace(asked.efficiency, hbm=asked.efficiency.hbm / 2))
    products = [gemm(Rates(each, "bf16"), n=4096, k=4096).at(4096) for each in (asked, slow)]
    assert products[0] == products[1]


def test_frozen_weights_have_no_gradients_to_add() -> None:
    full, lora = request(framework="megatron"), request(framework="megatron", task="lora")
    added = accumulation(full, layout(full), routed=False).fixed
    products, trained = dense_layer(lora), dense_layer(full)
    assert trained.backward.fixed == pytest.approx(2 * products.backward.fixed + added)


@pytest.mark.parametrize("microbatches", [1, 2, 8])
@pytest.mark.parametrize("overlap", [(0.0, 0.0), (0.6, 0.6), (1.0, 1.0), (0.2, 0.9), (0.9, 0.2)])
@pytest.mark.parametrize("shared", [(0.0, 5.0, 0.0), (4.0, 0.0, 0.0), (4.0, 5.0, 0.0)])
def test_a_longer_microbatch_never_makes_a_shorter_step(
    shared: SharedSeconds, overlap: tuple[float, float], microbatches: int
) -> None:
    """What one microbatch hides of its own traffic, it can't hide of the step's again."""
    steps = [
        seconds * microbatches
        + exposed_dp(
            shared,
            overlap_each=overlap[0],
            overlap_step=overlap[1],
            microbatch_seconds=seconds,
            microbatches=microbatches,
        )
        for seconds in (0.0, 1.0, 3.9, 4.1, 6.0, 8.9, 9.1, 20.0)
    ]
    assert steps == sorted(steps)


@pytest.mark.parametrize(
    ("top_k", "domains", "reached"), [(8, 1, 0.0), (1, 2, 0.5), (2, 2, 0.75), (8, 4, 2.7)]
)
def test_a_token_crosses_once_to_each_other_domain(
    top_k: int, domains: int, reached: float
) -> None:
    """As many as `top_k` draws reach, never more than there are."""
    assert other_domains(top_k, domains) == pytest.approx(reached, abs=0.01)
    assert other_domains(1000, domains) == pytest.approx(domains - 1)


def test_an_exchange_across_nodes_costs_more_than_inside() -> None:
    asked = request(MOE, framework="megatron", nodes=4, batch=512)
    inside = ep_seconds_per_pass(asked, layout(asked, ep=8))
    across = ep_seconds_per_pass(asked, layout(asked, ep=32))
    assert 0 < inside.per_token < across.per_token
    assert 0 < inside.fixed < across.fixed


def test_grouped_products_reach_less_than_plain_ones() -> None:
    asked = request(MOE, framework="megatron", nodes=4, batch=512)
    plain = replace(asked, efficiency=replace(asked.efficiency, grouped_gemm=1.0))
    half = replace(asked, efficiency=replace(asked.efficiency, grouped_gemm=0.5))
    laid = layout(asked, ep=8)
    rates = Rates(asked, laid.precision)
    assert routed_mlp(plain, laid, rates).per_token < routed_mlp(half, laid, rates).per_token


@pytest.mark.parametrize(
    ("captures", "gpu", "captured"),
    [
        ("never", "GB200-186GB", False),
        ("nvl72", "GB200-186GB", True),
        ("nvl72", "B200-SXM-180GB", False),
        ("always", "B200-SXM-180GB", True),
    ],
)
def test_cuda_graphs_take_host_time_away(captures: str, gpu: str, captured: bool) -> None:
    asked = request(MOE, framework="megatron", gpu=gpu, nodes=4, batch=512)
    framework = replace(asked.framework, captures_routed=captures)
    efficiency = replace(asked.efficiency, launch_routed_seconds=1e-3, launch_captured=0.25)
    asked = replace(asked, framework=framework, efficiency=efficiency)
    assert launch_routed_seconds(asked) == (2.5e-4 if captured else 1e-3)


def test_zero2_of_fsdp_gathers_once_and_reduces_every_microbatch() -> None:
    """FSDP makes the weights that compute from shards: two transfers where ZeRO-3 has three."""
    asked = request(nodes=2)
    two, three = traffic(asked, sharding="zero2"), traffic(asked, sharding="zero3")
    assert 0 < two[0] < three[0]
    assert two[1] == three[1] == 0


def test_zero2_of_fsdp_pays_hops_for_each_of_its_transfers() -> None:
    """One gather and one reduction of every layer, where ZeRO-3 has two and one."""
    asked = request(nodes=16, batch=512)
    efficiency = replace(asked.efficiency, gathers_per_layer=2 * asked.efficiency.gathers_per_layer)
    twice = replace(asked, efficiency=efficiency)
    added = {
        sharding: traffic(twice, sharding=sharding)[0] - traffic(asked, sharding=sharding)[0]
        for sharding in ("zero2", "zero3")
    }
    assert added["zero2"] > 0
    assert added["zero3"] == pytest.approx(1.5 * added["zero2"])


def test_zero2_of_deepspeed_in_fp16_reduces_once_a_step() -> None:
    """Whole fp16 gradients stand, and so do the weights."""
    asked = request(framework="deepspeed", nodes=2)
    once = traffic(asked, sharding="zero2", precision="fp16")
    assert once[0] == 0
    assert once[1] > 0


def test_zero2_of_deepspeed_in_bf16_gathers_once_a_step() -> None:
    asked = request(framework="deepspeed", nodes=2)
    each = traffic(asked, sharding="zero2", precision="bf16")
    assert each[0] > 0
    assert each[1] > 0


def test_fsdp_under_a_pipeline_moves_everything_once_a_step() -> None:
    asked = request(nodes=2)
    piped = traffic(asked, sharding="zero3", pp=2)
    assert piped[0] == 0
    assert piped[1] > 0
