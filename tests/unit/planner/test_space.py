"""The grid of layouts: what is on it, and what a pin does to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.planner.layout import Layout
from app.planner.legality import violations
from app.planner.request import Pins, PlanRequest
from app.planner.space import (
    MIN_TOKENS_PER_CP_RANK,
    divisors,
    enumerate_layouts,
    equal_chunks,
    groups,
    microbatch_sizes,
    moving_parts,
    powers_of_two,
    precision_choices,
)
from tests.unit.planner.builders import layout, request


def space(asked: PlanRequest, **pins: Any) -> list[Layout]:
    return list(enumerate_layouts(replace(asked, pins=Pins(**pins))))


def values(asked: PlanRequest, field: str, **pins: Any) -> set[Any]:
    return {getattr(each, field) for each in space(asked, **pins)}


def test_numbers() -> None:
    assert powers_of_two(9) == [1, 2, 4, 8]
    assert powers_of_two(0) == []
    assert divisors(12, 12) == [1, 2, 3, 4, 6, 12]
    assert microbatch_sizes(96) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48]


@pytest.mark.parametrize(
    ("layers", "pp", "uneven", "vpps"),
    [
        (80, 8, False, [1, 2, 5, 10]),
        (126, 16, True, [1, 2, 4, 8]),
        (126, 16, False, [1]),
        (61, 4, True, [1, 2, 4, 8]),
        (2, 2, True, [1]),
    ],
)
def test_interleaving_makes_chunks_as_good_as_equal(
    layers: int, pp: int, vpps: list[int], *, uneven: bool
) -> None:
    assert equal_chunks(layers, pp, uneven=uneven) == vpps


def test_every_layout_is_legal_and_counted() -> None:
    asked = request("mixtral-8x7b", framework="megatron", nodes=3, batch=96)
    found = space(asked)
    assert len(set(found)) == len(found)
    assert sum(node.axes.leaves for nodes in groups(asked) for node in nodes) == len(found)
    assert not [each for each in found if violations(asked, each)]


@pytest.mark.parametrize(("seq", "most"), [(2048, 1), (4096, 2), (32_768, 8)])
def test_context_parallelism_only_where_a_rank_keeps_enough_tokens(seq: int, most: int) -> None:
    """Short sequences are never cut; a pin still cuts them."""
    asked = request(seq=seq)
    assert max(values(asked, "cp")) == most
    assert seq // most >= MIN_TOKENS_PER_CP_RANK
    assert values(asked, "cp", cp=8) == {8}


def test_pins_leave_one_value_or_none() -> None:
    asked = request(nodes=2)
    assert values(asked, "tp", tp=4) == {4}
    assert values(asked, "dp", dp=4) == {4}
    assert values(asked, "microbatch_size", microbatch_size=4) == {4}
    assert values(asked, "recompute", recompute="full") == {"full"}
    assert values(asked, "sharding", sharding="zero2") == {"zero2"}
    assert values(asked, "dp_shard", dp_shard=4, dp=16) == {4}
    assert values(asked, "precision", precision="fp8") == {"fp8"}
    assert space(asked, tp=3) == []
    assert space(asked, cp=3) == []
    assert space(asked, ep=2) == []
    assert space(asked, vpp=7) == []
    assert space(asked, microbatch_size=5) == []
    assert space(asked, sharding="hsdp", dp_shard=3) == []


def test_a_framework_without_a_degree_keeps_it_at_one() -> None:
    asked = request(framework="composer")
    assert {(each.tp, each.pp, each.cp, each.vpp) for each in space(asked)} == {(1, 1, 1, 1)}
    assert space(asked, pp=2) == []
    assert space(asked, cp=2) == []


def test_hsdp_is_looked_at_where_it_differs() -> None:
    assert "hsdp" not in values(request(nodes=1), "sharding")
    groups_of = {each.dp_shard for each in space(request(nodes=4), tp=1) if each.sharding == "hsdp"}
    assert 8 in groups_of


def test_experts_with_tp_need_sequence_parallelism() -> None:
    asked = request("mixtral-8x7b", framework="megatron")
    assert values(asked, "tp", sequence_parallel=False) == {1}
    assert values(asked, "ep") == {1, 2, 4, 8}


def test_shared_gpus_have_no_layout() -> None:
    asked = request()
    shared = replace(asked, cluster=replace(asked.cluster, exclusive=False))
    assert space(shared) == []


def test_a_batch_smaller_than_the_ranks_needs_fewer_replicas() -> None:
    assert max(values(request(nodes=2, batch=8), "dp")) == 8


def test_sequences_that_tp_cannot_cut_are_left_out() -> None:
    assert values(request(seq=1023, framework="megatron"), "tp") == {1}


def test_precisions_are_those_that_are_allowed_and_work() -> None:
    asked = replace(request(), allowed_precisions=("bf16", "fp16", "fp8", "mxfp8"))
    assert values(asked, "precision") == {"bf16", "fp8"}
    odd = replace(asked, workload=replace(asked.workload, sequence_length=1000))
    assert precision_choices(odd, aligned=False) == ("bf16",)
    volta = replace(request(gpu="V100-SXM2-32GB"), allowed_precisions=("bf16", "fp16"))
    assert values(volta, "precision") == {"fp16"}


def test_uneven_stages_are_spelled() -> None:
    asked = request("llama-3-405b", framework="megatron", nodes=16, batch=128)
    for each in space(asked, tp=8, pp=16):
        assert each.stage_layers == (7, *[8] * 14, 7)
    assert values(asked, "stage_layers", tp=8, pp=2) == {()}


def test_simpler_layouts_have_fewer_moving_parts() -> None:
    asked = request()
    plain = layout(asked)
    assert moving_parts(plain) < moving_parts(replace(plain, pp=2))
    assert moving_parts(plain) < moving_parts(replace(plain, recompute="full"))
    assert moving_parts(replace(plain, microbatch_size=2)) < moving_parts(plain)


def test_a_batch_of_one_is_cut_among_all_ranks() -> None:
    """Parts shorter than pay otherwise, where nothing else is legal."""
    alone = request("llama-3-70b", nodes=8, batch=1)
    assert {each.cp for each in enumerate_layouts(alone)} >= {8}
    usual = request("llama-3-70b", nodes=8, batch=64)
    assert max(each.cp for each in enumerate_layouts(usual)) == 4


def test_tensor_parallel_groups_stay_on_a_node() -> None:
    """Of seven GPUs a node no power of two but one divides them; a pin may still ask."""
    odd = request(nodes=8, per_node=7, batch=56)
    assert {each.tp for each in enumerate_layouts(odd)} == {1}
    pinned = replace(odd, pins=Pins(tp=4))
    assert {each.tp for each in enumerate_layouts(pinned)} == {4}
