"""Refusals: why nothing fits, what lacks, and what was tried and would help."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.planner.refuse import grown, memory_reason, more_nodes, no_layout_reasons, remedies
from app.planner.request import NoFeasiblePlan, Pins, PlanRequest
from app.planner.search import fits_somewhere, leanest, plan
from tests.unit.planner.builders import request, with_host


def refusal(asked: PlanRequest) -> NoFeasiblePlan:
    found = plan(asked)
    assert isinstance(found, NoFeasiblePlan)
    return found


def test_nothing_fits() -> None:
    """70B on two cards: the nearest miss in GiB, more nodes, offload."""
    found = refusal(request("llama-3-70b", per_node=2))
    assert found.nearest is not None
    assert found.short_by_bytes == found.nearest.memory.total - found.nearest.limit_bytes > 0
    assert "no layout fits" in found.reasons[0]
    assert "GiB too much" in found.reasons[0]
    assert "9 nodes instead of 1 would fit" in found.remedies
    assert "an 8-bit optimizer without fp32 master weights would fit" not in found.remedies


@pytest.mark.parametrize(("nodes", "least"), [(1, 9), (2, 9), (3, 9), (7, 9)])
def test_the_nodes_named_are_the_fewest_that_fit(nodes: int, least: int) -> None:
    """Not the next doubling; one fewer lacks memory."""
    asked = request("llama-3-70b", nodes=nodes, per_node=2, batch=2 * 7 * 9 * 8)
    tried: list[int] = []

    def fits(changed: PlanRequest) -> bool:
        tried.append(changed.cluster.nodes)
        return fits_somewhere(changed)

    assert more_nodes(asked, fits) == least
    assert not fits_somewhere(grown(asked, least - 1))
    assert len(tried) <= 10


def test_a_batch_grows_in_proportion_to_the_nodes() -> None:
    """From 6 nodes with a batch of 8, only every third number of nodes keeps each rank's share."""
    tried: list[tuple[int, int]] = []

    def fits(changed: PlanRequest) -> bool:
        nodes, batch = changed.cluster.nodes, changed.workload.global_batch_size
        tried.append((nodes, batch))
        return nodes > 30

    assert more_nodes(request(nodes=6, batch=8), fits) == 33
    assert all(batch * 6 == nodes * 8 for nodes, batch in tried)


def test_a_small_optimizer_is_proposed() -> None:
    found = refusal(request("llama-3-70b", framework="deepspeed", seq=2048, batch=8))
    assert "an 8-bit optimizer without fp32 master weights would fit" in found.remedies
    assert "the optimizer offloaded to host memory would fit" in found.remedies
    tried = refusal(
        request("llama-3-405b", optimizer="adamw_8bit", offload="optimizer", per_node=1, batch=1)
    )
    assert not any("8-bit" in each or "offloaded" in each for each in tried.remedies)


def test_pins_are_named() -> None:
    asked = replace(request("llama-3-70b", nodes=4), pins=Pins(sharding="none"))
    assert "the same job without its pinned fields would fit" in refusal(asked).remedies


def test_a_loss_in_chunks_is_proposed() -> None:
    asked = request("gemma-2-2b", framework="megatron", per_node=1, seq=32_768, batch=1)
    tight = replace(asked, workload=replace(asked.workload, optimizer="adamw_bf16"))
    assert not fits_somewhere(tight)
    assert "a fused or chunked cross-entropy loss would fit" in remedies(tight, fits_somewhere)


def test_no_growth_helps_what_cannot_be_split() -> None:
    asked = replace(request("llama-3-405b", per_node=1, batch=1), pins=Pins(dp=1, tp=1, pp=1, cp=1))
    assert more_nodes(asked, fits_somewhere) == 0


def test_host_memory_is_the_reason() -> None:
    asked = with_host(request("llama-3-70b", framework="deepspeed", offload="optimizer"), 64)
    found = refusal(replace(asked, workload=replace(asked.workload, sequence_length=1024)))
    assert "offloading needs" in found.reasons[0]
    assert "of host memory per node and a node has 60 GiB" in found.reasons[0]
    assert found.short_by_bytes == 0


def test_rules_that_pins_break() -> None:
    asked = replace(request(), pins=Pins(tp=16))
    assert any("exceeds the 8 GPUs" in each for each in refusal(asked).reasons)


def test_no_legal_layout_at_all() -> None:
    """The plainest layout is legal, the pinned microbatch with the batch is not."""
    reasons = no_layout_reasons(request(batch=8))
    assert len(reasons) == 1
    assert reasons[0].startswith("no legal layout of llama-3-8b on 8 GPUs with a global batch of 8")
    odd = refusal(replace(request(batch=7), pins=Pins(dp=8)))
    assert odd.nearest is None
    assert "global batch 7 must be a multiple" in odd.reasons[0]


def test_bad_pins_are_still_answered() -> None:
    reasons = no_layout_reasons(replace(request(), pins=Pins(tp=0)))
    assert "no legal layout" in reasons[0]


def test_the_leanest_layout_is_the_nearest() -> None:
    asked = request("llama-3-70b", per_node=2)
    nearest = leanest(asked)
    assert nearest is not None
    assert f"needs {nearest.memory.total / 2**30:.0f} GiB" in memory_reason(asked, nearest)


@pytest.mark.parametrize("offload", ["none", "optimizer"])
def test_remedies_are_tried_not_guessed(offload: str) -> None:
    asked = request("llama-3-70b", per_node=2, offload=offload)
    assert remedies(asked, lambda _: False) == ()
