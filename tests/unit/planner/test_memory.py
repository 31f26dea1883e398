"""Each term of the memory of a stage, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.planner.framework import Bytes
from app.planner.memory import (
    MOMENT_BYTES,
    NF4_BYTES,
    NOWHERE,
    PlacedStates,
    activation_bytes_per_layer,
    adapter_params_per_layer,
    buffer_bytes,
    counted_params,
    exchanged_bytes,
    expert_shard_group,
    gathered_bytes,
    in_flight,
    kept_of,
    logits_bytes,
    memory,
    num_groups,
    placed_states,
    stage_memory,
    stage_params,
    stages_that_can_be_worst,
    states_of,
    table_excess,
)
from app.planner.request import Pins, PlanRequest
from tests.planner_sums import sums
from tests.unit.planner.builders import catalog, layout, request

PARAMS_8B = 8_030_261_248
TABLE_8B = 128_256 * 4096


@pytest.mark.parametrize(
    ("framework", "sharding", "precision", "bytes_per_parameter"),
    [
        ("fsdp", "none", "bf16", 18),
        ("fsdp", "zero3", "bf16", 16 / 8),
        ("fsdp", "zero2", "bf16", 2 + 16 / 8),
        ("composer", "zero3", "bf16", 16 / 8),
        ("megatron", "none", "bf16", 18),
        ("megatron", "zero1", "bf16", 6 + 12 / 8),
        ("megatron", "zero1", "fp8", 4 + 12 / 8),
        ("megatron", "zero3", "bf16", 18 / 8),
        ("deepspeed", "zero1", "fp16", 4 + 16 / 8),
        ("deepspeed", "zero2", "fp16", 4 + 16 / 8),
        ("deepspeed", "zero2", "bf16", 2 + 16 / 8),
        ("deepspeed", "zero3", "bf16", 18 / 8),
        ("megatron-lm-2022", "none", "fp16", 18),
    ],
)
def test_states_of_each_sharding(
    framework: str, sharding: str, precision: str, bytes_per_parameter: float
) -> None:
    """8B on 8 ranks; Megatron pads the vocabulary to nothing here."""
    asked = request(framework=framework)
    held = memory(asked, layout(asked, sharding=sharding, precision=precision))
    total = held.parameters + held.gradients + held.optimizer
    assert total / PARAMS_8B == pytest.approx(bytes_per_parameter)


@pytest.mark.parametrize(
    ("optimizer", "bytes_per_parameter"),
    [("adamw", 18), ("adamw_bf16", 8), ("adamw_8bit", 6), ("sgd", 14), ("muon", 14)],
)
def test_states_of_each_optimizer(optimizer: str, bytes_per_parameter: float) -> None:
    """Unsharded: an fp32 weight and its 16-bit cast, unless the optimizer is 16 bits wide."""
    asked = request(optimizer=optimizer)
    held = memory(asked, layout(asked, sharding="none"))
    total = held.parameters + held.gradients + held.optimizer
    assert total / PARAMS_8B == pytest.approx(bytes_per_parameter)
    assert optimizer in MOMENT_BYTES


def test_fp32_training_has_one_copy_and_no_master() -> None:
    asked = request(framework="megatron", gpu="V100-SXM2-32GB")
    states = states_of(asked, layout(asked, precision="fp32", sharding="zero1"))
    assert states.weights == Bytes(replicated=4)
    assert states.gradients == Bytes(replicated=4)
    assert states.master == Bytes()


def test_the_precision_aware_optimizer_keeps_its_master() -> None:
    asked = request(framework="megatron", optimizer="adamw_bf16")
    states = states_of(asked, layout(asked, sharding="zero1"))
    assert states.master == Bytes(sharded=4)


def test_lora_trains_adapters_and_holds_a_frozen_base() -> None:
    asked = request(task="lora", lora_rank=16)
    per_layer = 16 * (2 * 4096 + 2 * (4096 + 1024) + 2 * 4096 + 3 * (4096 + 14_336))
    assert adapter_params_per_layer(asked.model, 16) == per_layer
    params = stage_params(asked, layout(asked), 0)
    assert params.trained == 32 * per_layer
    assert params.frozen_dense == PARAMS_8B
    held = memory(asked, layout(asked, sharding="none"))
    assert held.parameters == pytest.approx(2 * PARAMS_8B + 6 * 32 * per_layer)


def test_qlora_quantises_the_base() -> None:
    asked = request(task="qlora")
    held = memory(asked, layout(asked, sharding="zero3"))
    base = NF4_BYTES * (PARAMS_8B - 2 * TABLE_8B) + 4 * TABLE_8B
    assert held.parameters == pytest.approx(base / 8, rel=0.06)


def test_qlora_leaves_the_vocabulary_tables_16_bits_wide() -> None:
    """Embedding and head: a quarter more than a base quantised whole, for 128,256 entries."""
    asked = request(task="qlora", lora_rank=1)
    params = stage_params(asked, layout(asked), 0)
    assert params.frozen_tables == 2 * TABLE_8B
    held = memory(asked, layout(asked, sharding="none"))
    base = NF4_BYTES * (PARAMS_8B - 2 * TABLE_8B) + 4 * TABLE_8B
    assert held.parameters == pytest.approx(base + 6 * params.dense)
    assert stage_params(request(task="lora"), layout(asked), 0).frozen_tables == 2 * TABLE_8B
    assert table_excess(request(task="lora")) == 0


def test_a_quantised_base_is_gathered_quantised() -> None:
    """Under ZeRO-3: three layers, 4 bits wide; one table, 16."""
    plain, narrow = request("llama-3-70b", task="lora"), request("llama-3-70b", task="qlora")
    assert gathered_bytes(plain)[0] == 3 * 2
    assert gathered_bytes(narrow) == (3 * NF4_BYTES, 2)


def test_a_gathered_layer_has_its_gradient_beside_it() -> None:
    """FSDP2 reduces in fp32: 4 bytes a parameter more; buckets take it where there are any."""
    asked = request()
    assert gathered_bytes(asked) == (3 * 2 + 4, 2 + 4)
    bucketed = request(framework="deepspeed")
    assert gathered_bytes(bucketed)[0] == 2


def test_an_moe_layer_in_work_holds_the_gradients_of_its_copies() -> None:
    """Two 16-bit tensors of top_k copies a token, whatever is kept; a dense model has none."""
    asked = request("mixtral-8x7b")
    tokens = 8192
    expected = 2 * 2 * 4096 * tokens * 2
    assert exchanged_bytes(asked, layout(asked, ep=8)) == expected
    assert exchanged_bytes(asked, layout(asked, ep=4, tp=2, cp=2)) == expected / 4
    assert exchanged_bytes(request(), layout(request())) == 0
    kept = asked.framework.kept["selective"]
    whole = 32 * activation_bytes_per_layer(
        asked, layout(asked, ep=8, recompute="selective"), kept, routed=True
    )
    held = memory(asked, layout(asked, ep=8, recompute="selective"))
    assert held.activations == pytest.approx(whole + expected)


@pytest.mark.parametrize("framework", ["fsdp", "fsdp-2024"])
@pytest.mark.parametrize("optimizer", ["adamw", "adamw_bf16"])
def test_a_pipeline_keeps_the_same_whichever_way_fsdp_reshards(
    framework: str, optimizer: str
) -> None:
    """Its backward passes neither reshard weights nor reduce gradients until the last one.

    Source: PyTorch torch/distributed/pipelining/stage.py, `backward_maybe_with_nosync`.
    """
    asked = request(nodes=2, framework=framework, optimizer=optimizer)
    held = {
        sharding: states_of(asked, layout(asked, pp=2, sharding=sharding))
        for sharding in ("zero2", "zero3", "hsdp")
    }
    assert held["zero2"] == held["zero3"] == held["hsdp"]
    assert held["zero3"].gradients.replicated > 0
    alone = states_of(asked, layout(asked, sharding="zero3"))
    assert alone.gradients.replicated == 0


def test_weights_gathered_from_a_shard_stay_beside_it() -> None:
    """FSDP without resharding in pure bf16: the gathered copy and its shard."""
    asked = request(optimizer="adamw_bf16")
    states = states_of(asked, layout(asked, sharding="zero2"))
    assert states.weights == Bytes(replicated=2, sharded=2)
    assert states.gradients == Bytes(sharded=2)


def test_adapters_of_experts_are_those_of_the_shared_one() -> None:
    mixtral = catalog().models["mixtral-8x7b"]
    assert adapter_params_per_layer(mixtral, 8) == 8 * (2 * 8192 + 2 * 5120)


def test_frozen_experts_are_sharded_apart() -> None:
    asked = request("mixtral-8x7b", task="lora")
    params = stage_params(asked, layout(asked, ep=8), 0)
    assert params.routed == 0
    assert params.frozen_routed == pytest.approx(32 * 3 * 4096 * 14_336, rel=1e-6)


def placed(asked: PlanRequest, **changed: Any) -> PlacedStates:
    chosen = layout(asked, **changed)
    return placed_states(asked, chosen, states_of(asked, chosen))


def test_offload_moves_states_to_the_host() -> None:
    """Optimizer and gradient shard; weights too with `parameters`; a frozen base like weights."""
    here = request(offload="optimizer")
    states = placed(here)
    assert (states.optimizer, states.gradients) == (NOWHERE, NOWHERE)
    assert states.parameters == (0, 4)
    assert states.host == (0, 1.5 * 12)
    away = request(offload="parameters")
    assert placed(away).parameters == NOWHERE
    assert placed(away).host == (0, 1.5 * 16)
    base = request(offload="parameters", task="qlora")
    assert placed(base).frozen == NOWHERE
    held = memory(base, layout(base))
    quantised = NF4_BYTES * (PARAMS_8B - 2 * TABLE_8B) + 4 * TABLE_8B
    assert held.host == pytest.approx(quantised, rel=0.2)


def test_replicated_gradients_stay_on_the_device() -> None:
    asked = request(framework="megatron", offload="optimizer")
    states = placed(asked, sharding="zero1")
    assert states.gradients == (4, 0)
    assert states.host == (0, 1.5 * 12)


@pytest.mark.parametrize(("per_node", "bytes_per_parameter"), [(2, 1.5 * 16), (8, 1.5 * 4 * 8)])
def test_loading_whole_weights_takes_host_memory(per_node: int, bytes_per_parameter: float) -> None:
    """DeepSpeed's estimator: 1.5 * max(4 * ranks, 16) bytes a parameter on one node."""
    asked = request(framework="deepspeed", per_node=per_node, offload="optimizer")
    held = memory(asked, layout(asked, sharding="zero2", precision="fp16"))
    assert held.host / PARAMS_8B == pytest.approx(bytes_per_parameter)


def test_experts_are_sharded_over_what_ep_leaves() -> None:
    asked = request("mixtral-8x7b", framework="megatron", nodes=4)
    assert expert_shard_group(layout(asked, ep=8)) == 4
    assert expert_shard_group(layout(asked, tp=2, ep=8)) == 4
    assert expert_shard_group(layout(asked, ep=1)) == 32


def test_a_stated_count_scales_every_stage() -> None:
    asked = request(framework="megatron", nodes=2)
    stated = replace(asked, model=replace(asked.model, params_override=2 * PARAMS_8B))
    plain = layout(asked, pp=2)
    assert stage_params(stated, plain, 1).dense == pytest.approx(
        2 * stage_params(asked, plain, 1).dense
    )


def test_a_stated_count_scales_experts_too() -> None:
    asked = request("mixtral-8x7b", framework="megatron")
    model = asked.model
    assert counted_params(model) == model.params
    stated = replace(asked, model=replace(model, params_override=2 * model.params))
    split = layout(asked, ep=4)
    before, after = stage_params(asked, split, 0), stage_params(stated, split, 0)
    assert after.routed == pytest.approx(2 * before.routed)
    assert counted_params(replace(model, params_override=7)) == model.params


def test_tables_stand_on_the_first_and_last_stage() -> None:
    asked = request(nodes=1)
    split = layout(asked, pp=4)
    sizes = [stage_params(asked, split, stage).dense for stage in range(4)]
    layer = asked.model.attention_params + asked.model.dense_mlp_params + 2 * 4096
    assert sizes == [8 * layer + TABLE_8B, 8 * layer, 8 * layer, 8 * layer + TABLE_8B + 4096]


def test_a_tied_table_is_copied_to_the_last_stage() -> None:
    asked = request("gpt-2", framework="megatron", seq=1024)
    whole = stage_params(asked, layout(asked), 0).dense
    split = layout(asked, pp=4)
    halves = sum(stage_params(asked, split, stage).dense for stage in range(4))
    padded = 50_304
    assert halves - whole == padded * 768


def test_the_vocabulary_is_padded() -> None:
    asked = request("gpt-2", framework="megatron", seq=1024)
    assert logits_bytes(asked, layout(asked)) == 1024 * 50_304 * 10
    assert logits_bytes(asked, layout(asked, tp=4)) == 1024 * 50_688 / 4 * 10


def test_korthikanti_equation_2() -> None:
    """34 s b h bytes, 5 a s^2 b beside them, unfused and unsplit, dropout masks aside.

    The paper's masks (1 byte an element) count here as half of a 16-bit value.
    """
    asked = request("gpt-3-175b", framework="megatron-lm-2022", seq=2048)
    kept = asked.framework.kept["none"]
    one = activation_bytes_per_layer(asked, layout(asked), kept, routed=False)
    h, a, s = 12_288, 96, 2048
    assert one == pytest.approx(34 * s * h + 5 * a * s * s, rel=0.01)
    split = activation_bytes_per_layer(asked, layout(asked, tp=8), kept, routed=False)
    assert split == pytest.approx(s * h * (10 + 24 / 8) + 5 * a * s * s / 8, rel=0.01)


def test_sequence_parallelism_splits_the_rest() -> None:
    asked = request(framework="megatron")
    kept = asked.framework.kept["none"]
    whole = activation_bytes_per_layer(asked, layout(asked), kept, routed=False)
    split = activation_bytes_per_layer(asked, layout(asked, tp=4), kept, routed=False)
    assert split == pytest.approx(whole / 4)
    loose = layout(asked, tp=4, sequence_parallel=False)
    assert activation_bytes_per_layer(asked, loose, kept, routed=False) > split


def test_fp32_doubles_activations() -> None:
    asked = request()
    kept = asked.framework.kept["none"]
    wide = activation_bytes_per_layer(asked, layout(asked, precision="fp32"), kept, routed=False)
    narrow = activation_bytes_per_layer(asked, layout(asked), kept, routed=False)
    assert wide == 2 * narrow


def test_narrow_products_keep_narrow_inputs() -> None:
    megatron = catalog().frameworks["megatron"]
    assert kept_of(megatron, "none", "mxfp8").routed < kept_of(megatron, "none", "bf16").routed
    assert kept_of(megatron, "full", "mxfp8") == megatron.kept["full"]


@pytest.mark.parametrize(
    ("pp", "vpp", "stage", "microbatches", "held"),
    [
        (1, 1, 0, 8, 1),
        (4, 1, 0, 8, 4),
        (4, 1, 3, 8, 1),
        (4, 1, 0, 2, 2),
        (4, 2, 0, 8, 11 / 2),
        (4, 2, 3, 8, 5 / 2),
        (4, 2, 0, 4, 4),
    ],
)
def test_microbatches_in_flight(
    pp: int, vpp: int, stage: int, microbatches: int, held: float
) -> None:
    assert in_flight(pp, vpp, stage, microbatches) == held


def test_full_recomputation_holds_one_layer_being_computed_again() -> None:
    asked = request()
    none, full = asked.framework.kept["none"], asked.framework.kept["full"]
    plain = layout(asked, recompute="full")
    one = activation_bytes_per_layer(asked, plain, full, routed=False)
    again = activation_bytes_per_layer(asked, plain, none, routed=False)
    assert memory(asked, plain).activations == 32 * one + again


def test_buffers_are_gathered_layers_and_buckets() -> None:
    """Three layers of 16-bit weights under ZeRO-3; the table is larger than a layer of 8B."""
    asked = request()
    plain = layout(asked)
    assert buffer_bytes(asked, plain, stage_params(asked, plain, 0)) == 3 * TABLE_8B * 2
    whole = layout(asked, sharding="zero2")
    assert buffer_bytes(asked, whole, stage_params(asked, whole, 0)) == 0
    buckets = request(framework="deepspeed")
    shared = layout(buckets, sharding="zero1")
    held = buffer_bytes(buckets, shared, stage_params(buckets, shared, 0))
    assert held == buckets.framework.bucket_bytes
    alone = request(framework="deepspeed", per_node=1)
    single = layout(alone, sharding="zero1")
    assert buffer_bytes(alone, single, stage_params(alone, single, 0)) == 0


def test_every_group_of_ranks_has_a_communicator() -> None:
    asked = request("mixtral-8x7b", framework="megatron", nodes=4)
    assert num_groups(layout(asked, tp=2, pp=2, ep=4)) == 4
    alone = request(per_node=1)
    assert num_groups(layout(alone)) == 0
    shared = request(nodes=2)
    assert num_groups(layout(shared, sharding="hsdp")) == 2


def test_stages_that_can_be_worst() -> None:
    even, uneven = request(), request("bloom-176b", framework="megatron-lm-2022", nodes=6)
    assert stages_that_can_be_worst(even, layout(even)) == (0,)
    assert stages_that_can_be_worst(even, layout(even, pp=4)) == (0, 3)
    assert stages_that_can_be_worst(uneven, layout(uneven, pp=12)) == (0, 1, 11)
    said = layout(even, pp=4, stage_layers=[10, 8, 7, 7])
    assert stages_that_can_be_worst(even, said) == (0, 1, 2, 3)


@pytest.mark.parametrize("pp", [2, 3, 5, 6, 12])
def test_no_other_stage_holds_more(pp: int) -> None:
    asked = request("bloom-176b", framework="megatron-lm-2022", nodes=15, batch=240, seq=2048)
    split = layout(asked, pp=pp, recompute="full")
    fullest = memory(asked, split)
    every = [stage_memory(asked, split, stage, 240 // split.dp) for stage in range(pp)]
    assert fullest.total == max(held.total for held in every)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("qwen3-30b-a3b", {"ep": 8, "precision": "fp8"}),
        ("llama-3-405b", {"tp": 8, "pp": 7, "precision": "bf16"}),
    ],
)
def test_the_search_sees_the_same_bytes(model: str, fields: dict[str, int]) -> None:
    """Variants by precision and offload included."""
    for offload in ("none", "optimizer"):
        asked = request(model, framework="megatron", nodes=7, batch=56, offload=offload)
        split = layout(asked, **fields)
        held = memory(asked, split)
        names = (
            "tp",
            "pp",
            "cp",
            "ep",
            "dp",
            "vpp",
            "microbatch_size",
            "recompute",
            "precision",
            "sharding",
        )
        pins = Pins(**{name: getattr(split, name) for name in names})
        (seen,) = sums(replace(asked, pins=pins))
        assert seen.layout == replace(split, stage_layers=seen.layout.stage_layers)
        assert seen.device_bytes == pytest.approx(held.total)
        assert seen.host_bytes == pytest.approx(held.host)
