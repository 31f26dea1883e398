"""Every rule: a layout that breaks it, what is said, and the layout beside it that does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.planner.legality import (
    RULES,
    interleaves,
    num_microbatches,
    padded_vocabulary,
    sequence_multiple,
    split_layers,
    stages_or_ceiling,
    uneven_stages,
    usable_shardings,
)
from app.planner.request import PlanRequest
from tests.unit.planner.builders import broken, catalog, layout, request

Asked = dict[str, Any]
Fields = dict[str, Any]

BREAKS: list[tuple[str, Asked, Fields, str]] = [
    ("degrees multiply to the GPUs", {}, {"tp": 2, "dp": 16}, "`dp` must be 4"),
    ("degrees multiply to the GPUs", {}, {"tp": 3, "dp": 1}, "3 but the job has 8"),
    ("tp is a power of two", {"nodes": 3}, {"tp": 3}, "must be a power of two"),
    ("tp stays in the NVLink domain", {"nodes": 2}, {"tp": 16}, "less than or equal to 8"),
    ("heads % tp == 0", {"model": "qwen2.5-7b"}, {"tp": 8}, "28 attention heads"),
    ("kv_heads % tp == 0", {"model": "qwen3-30b-a3b"}, {"tp": 8}, "4 key/value heads"),
    ("layers % pp == 0", {"framework": "megatron", "nodes": 3}, {"pp": 3}, "10, 12, 10"),
    ("layers % pp == 0", {"nodes": 5}, {"pp": 40}, "`pp` must divide the layers"),
    ("layers % pp == 0", {}, {"pp": 2, "stage_layers": [16, 15]}, "add up to 32"),
    ("layers % pp == 0", {"nodes": 3}, {"pp": 3, "vpp": 4}, "3 stages of 4 chunks"),
    ("layers % (pp * vpp) == 0", {}, {"pp": 2, "vpp": 5}, "2 * 5 chunks"),
    ("layers % (pp * vpp) == 0", {}, {"vpp": 2}, "needs a pipeline"),
    ("microbatches fill the pipeline", {"batch": 8}, {"pp": 4, "dp": 4}, "cannot fill 4"),
    ("microbatches fill the pipeline", {"batch": 20}, {"pp": 4, "vpp": 2}, "multiple of pp 4"),
    ("sequence divides", {"seq": 8193}, {"tp": 2}, "the next is 8194"),
    ("sequence divides", {"seq": 4098}, {"cp": 4}, "a multiple of 8"),
    ("experts % ep == 0", {}, {"ep": 2}, "has none"),
    ("experts % ep == 0", {"model": "mixtral-8x7b", "nodes": 2}, {"ep": 16}, "8 experts"),
    ("experts % ep == 0", {"model": "mixtral-8x7b", "per_node": 4}, {"ep": 8}, "must divide"),
    (
        "moe with tp needs sequence parallelism",
        {"model": "mixtral-8x7b"},
        {"tp": 2, "sequence_parallel": False},
        "needs sequence parallelism",
    ),
    ("global_batch % (microbatch * dp) == 0", {"batch": 60}, {}, "the nearest are 56 and 64"),
    ("global_batch % (microbatch * dp) == 0", {"batch": 3}, {}, "the nearest is 8"),
    ("the GPU has the precision", {"gpu": "A100-SXM4-80GB"}, {"precision": "fp8"}, "bf16"),
    ("the framework has the precision", {"framework": "deepspeed"}, {"precision": "fp8"}, "fp8"),
    ("narrow precision needs aligned tokens", {"seq": 8}, {"precision": "fp8"}, "16"),
    ("framework has tensor parallelism", {"framework": "composer"}, {"tp": 2}, "must be 1"),
    ("framework has pipeline parallelism", {"framework": "composer"}, {"pp": 2}, "must be 1"),
    (
        "framework has interleaved schedule",
        {"framework": "deepspeed"},
        {"pp": 2, "vpp": 2},
        "must be 1",
    ),
    ("framework has context parallelism", {"framework": "composer"}, {"cp": 2}, "must be 1"),
    (
        "framework has expert parallelism",
        {"framework": "composer", "model": "mixtral-8x7b"},
        {"ep": 2},
        "must be 1",
    ),
    ("the framework has the sharding", {"framework": "megatron"}, {"sharding": "zero2"}, "zero1"),
    (
        "the framework has the sharding",
        {"framework": "megatron"},
        {"pp": 2, "sharding": "zero3"},
        "with a pipeline",
    ),
    ("dp_shard divides dp", {}, {"sharding": "hsdp", "dp_shard": 3}, "must divide dp 8"),
    ("dp_shard divides dp", {}, {"sharding": "zero3", "dp_shard": 4}, "must equal dp 8"),
    (
        "the framework has the recomputation",
        {"framework": "deepspeed"},
        {"recompute": "selective"},
        "no recomputation selective",
    ),
    (
        "the framework has the offload",
        {"framework": "megatron", "offload": "parameters"},
        {},
        "it has none, optimizer",
    ),
]


@pytest.mark.parametrize(("rule", "asked", "fields", "words"), BREAKS)
def test_a_layout_that_breaks_the_rule(rule: str, asked: Asked, fields: Fields, words: str) -> None:
    assert words in broken(request(**asked), **fields)[rule]


def test_every_rule_has_a_layout_that_breaks_it() -> None:
    assert {rule.name for rule in RULES} - {rule for rule, *_ in BREAKS} == {
        "shared GPUs stand alone"
    }


def test_shared_gpus_stand_alone() -> None:
    def shared(asked: PlanRequest) -> PlanRequest:
        return replace(asked, cluster=replace(asked.cluster, exclusive=False))

    assert "use one GPU" in broken(shared(request()))["shared GPUs stand alone"]
    assert broken(shared(request(per_node=1))) == {}


@pytest.mark.parametrize(
    ("asked", "fields"),
    [
        ({}, {}),
        ({"nodes": 3}, {"pp": 3}),
        ({"framework": "megatron", "nodes": 3}, {"pp": 3, "stage_layers": [11, 11, 10]}),
        ({"model": "deepseek-v3", "framework": "megatron", "nodes": 16}, {"tp": 8, "ep": 16}),
        ({"model": "mixtral-8x7b", "framework": "megatron"}, {"tp": 2, "ep": 4}),
        ({"gpu": "H100-SXM5-80GB"}, {"precision": "fp8"}),
        ({"nodes": 2}, {"sharding": "hsdp"}),
        ({"seq": 4096}, {"cp": 4}),
        (
            {"model": "llama-3-405b", "framework": "megatron", "nodes": 16},
            {"tp": 8, "pp": 8, "cp": 2, "vpp": 8},
        ),
        ({"framework": "megatron"}, {"pp": 4, "vpp": 4, "stage_layers": [4, 12, 8, 8]}),
    ],
)
def test_legal_layouts(asked: Asked, fields: Fields) -> None:
    assert broken(request(**{"batch": 768, **asked}), **fields) == {}


def test_a_framework_without_uneven_stages() -> None:
    asked = request(nodes=3)
    strict = replace(asked, framework=replace(asked.framework, uneven_pipeline=False))
    assert "`pp` must divide" in broken(strict, pp=3)["layers % pp == 0"]
    listed = broken(strict, pp=3, stage_layers=[11, 11, 10])["layers % pp == 0"]
    assert "has no uneven pipeline split" in listed
    assert broken(strict, pp=2, stage_layers=[16, 16]).get("layers % pp == 0") is None


@pytest.mark.parametrize(
    ("layers", "pp", "split"),
    [
        (32, 4, (8, 8, 8, 8)),
        (70, 12, (5, *[6] * 10, 5)),
        (126, 8, (15, *[16] * 6, 15)),
        (61, 4, (15, 16, 16, 14)),
        (32, 3, (10, 12, 10)),
        (4, 3, (1, 2, 1)),
        (3, 4, ()),
        (5, 3, (1, 3, 1)),
    ],
)
def test_uneven_splits_count_the_embedding_and_the_head(
    layers: int, pp: int, split: tuple[int, ...]
) -> None:
    assert split_layers(layers, pp, uneven=True) == split
    assert sum(split) in (layers, 0)


def test_even_splits_only() -> None:
    assert split_layers(70, 12, uneven=False) == ()
    assert split_layers(72, 12, uneven=False) == (6,) * 12


@pytest.mark.parametrize(
    ("layers", "pp", "vpp", "uneven", "even"),
    [
        (80, 8, 5, True, True),
        (126, 16, 8, True, True),
        (126, 16, 8, False, False),
        (61, 4, 4, True, True),
        (61, 8, 4, True, True),
        (61, 64, 1, True, False),
        (80, 8, 3, True, False),
    ],
)
def test_chunks_as_good_as_equal(
    layers: int, pp: int, vpp: int, *, uneven: bool, even: bool
) -> None:
    assert interleaves(layers, pp, vpp, uneven=uneven) is even


def test_an_illegal_split_counts_the_fullest_stage() -> None:
    asked = request(nodes=5)
    assert stages_or_ceiling(asked, layout(asked, pp=40)) == (1,) * 40
    assert uneven_stages(asked, 40) == ()
    assert stages_or_ceiling(asked, layout(asked, pp=2, stage_layers=[15, 17])) == (15, 17)
    assert uneven_stages(asked, 8) == ()
    assert uneven_stages(asked, 5) == (6, 7, 7, 7, 5)


def test_padding_of_the_vocabulary() -> None:
    assert padded_vocabulary(50_257, 8, 128) == 51_200
    assert padded_vocabulary(128_256, 1, 128) == 128_256
    assert padded_vocabulary(0, 8, 128) == 0


@pytest.mark.parametrize(
    ("fields", "multiple"),
    [({}, 1), ({"tp": 4}, 4), ({"cp": 4}, 8), ({"tp": 4, "cp": 2}, 8), ({"tp": 1, "cp": 2}, 4)],
)
def test_what_a_sequence_is_a_multiple_of(fields: Fields, multiple: int) -> None:
    assert sequence_multiple(layout(request(), **fields)) == multiple


def test_a_pipeline_runs_at_least_one_microbatch() -> None:
    asked = request(batch=4)
    assert num_microbatches(asked, layout(asked, microbatch_size=8)) == 1


def test_shardings_that_go_with_a_pipeline() -> None:
    megatron = catalog().frameworks["megatron"]
    assert usable_shardings(megatron, pp=1) == ("none", "zero1", "zero3")
    assert usable_shardings(megatron, pp=2) == ("none", "zero1")
