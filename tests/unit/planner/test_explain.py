"""The words beside a plan, held to its numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.planner.estimate import estimate
from app.planner.explain import (
    GIB,
    alternatives,
    changed_layout,
    excess,
    gib,
    headline,
    kept_out,
    largest_other_cost,
    layout_words,
    narrow_sentence,
    neighbours,
    pace,
    sentences,
    short_seconds,
    why_not,
)
from app.planner.request import Pins, Plan, PlanRequest, SearchStats
from app.planner.search import plan
from tests.unit.planner.builders import layout, request

STATS = SearchStats(configurations=10, evaluated=5, legal=10, feasible=7)


def planned(asked: PlanRequest) -> Plan:
    found = plan(asked)
    assert isinstance(found, Plan)
    return found


@pytest.mark.parametrize(
    ("amount", "words"), [(1.5 * 2**30, "1.5"), (61.4 * 2**30, "61"), (-3 * 2**30, "-3.0")]
)
def test_gib(amount: float, words: str) -> None:
    assert gib(amount) == words


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (2.345, "2.35 s"),
        (0.0871, "87.1 ms"),
        (0.99951, "1 s"),
        (0.9994, "999 ms"),
        (999.6, "1,000 s"),
        (2150.4, "2,150 s"),
    ],
)
def test_short_seconds(amount: float, words: str) -> None:
    assert short_seconds(amount) == words


@pytest.mark.parametrize(
    ("framework", "sharding", "words"),
    [
        ("fsdp", "none", "DDP=16"),
        ("fsdp", "zero2", "FSDP=16"),
        ("fsdp", "zero3", "FSDP=16"),
        ("fsdp", "hsdp", "HSDP=2x8"),
        ("megatron", "none", "DDP=16"),
        ("megatron", "zero1", "ZeRO-1=16"),
        ("megatron", "zero3", "FSDP=16"),
        ("deepspeed", "zero1", "ZeRO-1=16"),
        ("deepspeed", "zero2", "ZeRO-2=16"),
        ("deepspeed", "zero3", "ZeRO-3=16"),
    ],
)
def test_a_degree_has_the_frameworks_name(framework: str, sharding: str, words: str) -> None:
    asked = request(framework=framework, nodes=2)
    pinned = layout(asked, sharding=sharding, **({"dp_shard": 8} if sharding == "hsdp" else {}))
    assert layout_words(pinned, asked.framework) == f"TP=1 PP=1 CP=1 {words} mb=1 bf16"


def test_degrees_that_matter_are_told() -> None:
    asked = request("mixtral-8x7b", framework="megatron", nodes=2)
    spread = layout(asked, tp=2, pp=2, vpp=2, ep=4, sharding="zero1")
    assert layout_words(spread, asked.framework) == "TP=2 PP=2 CP=1 EP=4 VPP=2 ZeRO-1=4 mb=1 bf16"


def test_the_headline_fits_in_a_warning() -> None:
    said = headline(planned(request(nodes=4)))
    assert len(said) <= 120
    assert "of 80 GiB, ~" in said


def test_an_explanation_names_the_costs() -> None:
    found = planned(request(nodes=2))
    for words in ("Fastest that fits, of", "Compute is", "holds most", "below the limit"):
        assert words in found.explanation
    near = alternatives(found.request, found.estimate)
    assert near
    assert all(each.why_not for each in near)


def test_a_narrow_precision_says_its_gain_and_its_pin() -> None:
    asked = request(framework="megatron", nodes=2)
    judged = estimate(asked, layout(asked, precision="fp8", recompute="full"))
    said = narrow_sentence(asked, judged)
    assert said.startswith("fp8 is 1.")
    assert said.endswith("pin precision=bf16 to keep bf16.")
    assert said in sentences(asked, judged, STATS)
    elsewhere = replace(asked, cluster=replace(asked.cluster, nodes=3, gpus_per_node=5))
    odd = replace(judged, layout=replace(judged.layout, tp=2))
    assert narrow_sentence(elsewhere, odd) == "fp8; pin precision=bf16 to keep bf16."


def test_why_another_layout_lost() -> None:
    asked = request(nodes=1)
    best = estimate(asked, layout(asked, recompute="full"))
    illegal = estimate(asked, layout(asked, ep=2))
    assert "has none" in why_not(asked, best, illegal)
    large = estimate(asked, layout(asked, sharding="none", recompute="full"))
    assert "does not fit" in why_not(asked, best, large)
    assert "optimizer states grow" in why_not(asked, best, large)
    slow = estimate(asked, layout(asked, tp=8, recompute="full"))
    assert "slower: tensor-parallel traffic costs" in why_not(asked, best, slow)


def test_what_is_faster_than_the_plan_says_what_keeps_it_out() -> None:
    """A pin, the allowed precisions, or the space, and never a loss below zero."""
    asked = replace(request(nodes=4), pins=Pins(recompute="full"))
    found = planned(asked)
    said = [each.why_not for each in alternatives(asked, found.estimate)]
    assert any(each.endswith("faster, but recompute is pinned to full") for each in said)
    assert not any(each.startswith("-") for each in said)
    free = replace(asked, pins=Pins())
    narrow = replace(found.layout, precision="fp8")
    assert kept_out(free, narrow) == "fp8 is not among the allowed precisions"
    assert kept_out(free, replace(narrow, precision="bf16")) == "the search does not try it"


def test_neighbours_change_one_thing() -> None:
    asked = request()
    single = list(neighbours(layout(asked), 8))
    assert {"tp": 2} in single
    assert {"tp": 0} not in single
    assert {"vpp": 2} not in single
    assert {"vpp": 2} in list(neighbours(layout(asked, pp=2), 8))
    assert {"vpp": 1} in list(neighbours(layout(asked, pp=2, vpp=2), 8))
    assert {"microbatch_size": 16} in list(neighbours(layout(asked, microbatch_size=8), 8))


def test_dp_follows_a_change() -> None:
    asked = request("bloom-176b", framework="megatron", nodes=3)
    split = layout(asked, pp=12, vpp=2)
    changed = changed_layout(asked, split, {"pp": 6})
    assert changed is not None
    assert (changed.dp, sum(changed.stage_layers)) == (4, 70)
    alone = changed_layout(asked, split, {"pp": 1})
    assert alone is not None
    assert alone.vpp == 1
    assert changed_layout(asked, split, {"pp": 5}) is None
    assert changed_layout(asked, split, {"sharding": "none", "recompute": "nothing"}) is None


def test_alternatives_are_what_could_run_here() -> None:
    found = planned(request(framework="megatron", nodes=2))
    near = alternatives(found.request, found.estimate)
    assert len({each.layout for each in near}) == len(near) <= 8
    assert all(each.layout != found.layout for each in near)
    assert all(each.estimate.legal for each in near)
    room = [each.estimate.memory.total <= each.estimate.limit_bytes for each in near]
    assert room == sorted(room, reverse=True)


def test_changes_that_do_not_divide_the_gpus_are_left_out() -> None:
    asked = request(per_node=6, batch=48)
    near = alternatives(asked, estimate(asked, layout(asked, tp=2, recompute="full")))
    assert {each.layout.tp for each in near} <= {1, 2}


def test_a_pinned_plan_is_explained_too() -> None:
    found = planned(replace(request(nodes=2), pins=Pins(tp=4, pp=2)))
    assert (found.layout.tp, found.layout.pp) == (4, 2)


def on_one_gpu() -> Plan:
    """Adapters on one GPU: compute is nearly all there is."""
    return planned(request(per_node=1, task="lora"))


def test_a_cost_that_prints_as_nothing_is_not_named() -> None:
    time = on_one_gpu().estimate.time
    assert largest_other_cost(replace(time, optimizer=0.0004 * time.compute)) is None
    assert largest_other_cost(replace(time, dp=time.compute)) == (
        "data-parallel traffic",
        pytest.approx(0.5, abs=0.02),
    )


def test_over_one_rank_no_other_sharding_is_an_alternative() -> None:
    found = on_one_gpu()
    near = alternatives(found.request, found.estimate)
    assert near
    assert {each.layout.sharding for each in near} == {found.layout.sharding}


def test_what_is_as_fast_is_told_by_its_memory() -> None:
    asked = request(nodes=1)
    best = estimate(asked, layout(asked, recompute="full"))
    held = best.memory
    leaner = replace(best, memory=replace(held, activations=held.activations - 2 * GIB))
    assert why_not(asked, best, leaner) == "as fast to 0.1%; 2.0 GiB less"
    assert why_not(asked, best, best) == "as fast to 0.1%; as much memory"


def test_what_is_as_fast_and_not_the_searchs_to_choose_says_why() -> None:
    """A pinned plan had a runner-up '0.0% faster'."""
    asked = replace(request(), pins=Pins(recompute="full"))
    best = estimate(asked, layout(asked, recompute="full"))
    other = estimate(asked, layout(asked, recompute="selective"))
    quick = replace(other, time=replace(best.time, compute=best.time.compute * 0.9999))
    assert why_not(asked, best, quick) == "as fast to 0.1%, but recompute is pinned to full"


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.02, "2.0% slower"),
        (-0.3, "30.0% faster"),
        (4e-4, "as fast to 0.1%"),
        (-4e-4, "as fast to 0.1%"),
    ],
)
def test_pace(share: float, words: str) -> None:
    assert pace(share) == words


def test_a_little_too_much_is_not_nothing() -> None:
    assert excess(1e6) == "under 0.1"
    assert excess(2 * GIB) == "2.0"


def test_a_runner_up_fits_the_host_too() -> None:
    """Unsharded, every rank of a node keeps the whole optimizer there: that was '12 % slower'."""
    asked = request(nodes=2, framework="deepspeed", offload="optimizer", model="llama-3-1b")
    best = estimate(asked, layout(asked, sharding="zero2"))
    host = replace(asked.cluster, host_memory_bytes_per_node=int(1.2 * best.memory.host))
    near = alternatives(replace(asked, cluster=host), best)
    outside = [each.why_not.startswith("does not fit") for each in near]
    assert outside == sorted(outside)
    over = [each for each in near if "of host memory per node" in each.why_not]
    assert "none" in {each.layout.sharding for each in over}
    assert all(each.estimate.fits is False for each in over)
