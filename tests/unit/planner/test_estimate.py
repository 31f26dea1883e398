"""Layouts completed with defaults, and the verdict on one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.planner.estimate import complete, computable, default_sharding, estimate, limit_bytes
from app.planner.intent import TrainIntent
from tests.unit.planner.builders import layout, request, with_host


def problems(**fields: Any) -> dict[str, str]:
    made = complete(request(), fields)
    assert isinstance(made, tuple)
    return {each.path: each.message for each in made}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("tp", 0, "must be a whole number greater than 0, not 0"),
        ("pp", True, "must be a whole number"),
        ("dp", 1.5, "must be a whole number"),
        ("pp", 10**9, "must be less than or equal to"),
        ("sharding", "zero4", "must be one of none, zero1"),
        ("recompute", "some", "must be one of none, selective, full"),
        ("precision", "int8", "must be one of fp32"),
        ("sequence_parallel", 1, "must be true or false"),
        ("stage_layers", "8,8", "must be a list"),
        ("stage_layers", [8, True], "must be a list"),
        ("depth", 3, "is not a layout field"),
    ],
)
def test_bad_fields_are_named(field: str, value: Any, words: str) -> None:
    assert words in problems(**{field: value})[field]


def test_all_bad_fields_at_once() -> None:
    assert problems(tp=0, pp=0, depth=1).keys() == {"tp", "pp", "depth"}


def test_defaults_are_the_frameworks() -> None:
    made = layout(request(framework="megatron", nodes=2), tp=2, pp=2)
    assert (made.dp, made.dp_shard, made.sharding) == (4, 4, "zero1")
    assert made.sequence_parallel
    assert made.precision == "bf16"
    assert layout(request(gpu="V100-SXM2-32GB")).precision == "fp16"


def test_hsdp_shards_within_the_fast_domain() -> None:
    asked = request(nodes=4)
    assert layout(asked, sharding="hsdp").dp_shard == 8
    assert layout(asked, sharding="hsdp", tp=2).dp_shard == 4
    odd = request(nodes=3, per_node=5)
    assert layout(odd, sharding="hsdp", tp=2, dp=7).dp_shard == 1


def test_default_sharding_works_with_the_pipeline() -> None:
    deepspeed = request(framework="deepspeed")
    assert default_sharding(deepspeed, pp=1) == "zero3"
    assert default_sharding(deepspeed, pp=2) == "none"
    composer = request(framework="composer")
    assert default_sharding(composer, pp=2) == "zero3"


def test_a_layout_that_cannot_be_computed_has_no_numbers() -> None:
    asked = request(gpu="A100-SXM4-80GB")
    judged = estimate(asked, layout(asked, precision="fp8"))
    assert not judged.legal
    assert not judged.fits
    assert judged.memory.total == 0
    assert judged.step_time_seconds == 0
    assert not computable(asked, layout(asked, pp=2, stage_layers=[32]))
    assert not computable(asked, layout(request(framework="megatron"), sharding="zero1"))


def test_rates_follow_from_the_step() -> None:
    asked = request(batch=64)
    judged = estimate(asked, layout(asked, microbatch_size=2, recompute="full"))
    assert judged.legal
    assert judged.fits
    assert judged.num_microbatches == 4
    assert judged.global_batch_size == 64
    tokens = 64 * 8192 / judged.step_time_seconds / 8
    assert judged.tokens_per_second_per_gpu == pytest.approx(tokens)
    flop = tokens * asked.model.model_flop_per_token(8192)
    assert judged.model_flop_per_second_per_gpu == pytest.approx(flop)
    assert judged.mfu == pytest.approx(flop / 989e12)
    assert judged.limit_bytes == limit_bytes(asked) == 0.92 * judged.gpu_memory_bytes


def test_host_memory_counts_where_it_is_known() -> None:
    asked = request(offload="optimizer")
    plain = layout(asked, recompute="full")
    assert estimate(asked, plain).fits
    assert estimate(with_host(asked, 200), plain).fits
    assert not estimate(with_host(asked, 100), plain).fits


def test_assumptions_travel() -> None:
    asked = replace(request(), assumptions=("said",))
    assert estimate(asked, layout(asked)).assumptions == ("said",)


def test_a_field_is_named_as_its_author_wrote_it() -> None:
    intent = TrainIntent(paths={"gpu": "spec.gpuType"})
    assert intent.path("gpu") == "spec.gpuType"
    assert intent.path("nodes") == "nodes"
