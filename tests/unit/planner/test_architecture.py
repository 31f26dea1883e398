"""Counts and FLOP of a model, by its own formulas and against published ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.planner.architecture import LatentAttention, MixtureOfExperts, ModelArchitecture

LLAMA_8B = ModelArchitecture(
    name="llama-3-8b",
    hidden_size=4096,
    ffn_hidden_size=14_336,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=128_256,
)
MIXTRAL = replace(
    LLAMA_8B,
    name="mixtral",
    vocab_size=32_000,
    moe=MixtureOfExperts(num_experts=8, top_k=2, expert_ffn_hidden_size=14_336, num_moe_layers=32),
)
DEEPSEEK_V3 = ModelArchitecture(
    name="deepseek-v3",
    hidden_size=7168,
    ffn_hidden_size=18_432,
    num_layers=61,
    num_heads=128,
    num_kv_heads=128,
    head_dim=128,
    vocab_size=129_280,
    attention="mla",
    latent=LatentAttention(
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
    ),
    moe=MixtureOfExperts(
        num_experts=256,
        top_k=8,
        expert_ffn_hidden_size=2048,
        shared_expert_ffn_hidden_size=2048,
        num_moe_layers=58,
    ),
)
GPT_2 = ModelArchitecture(
    name="gpt-2",
    hidden_size=768,
    ffn_hidden_size=3072,
    num_layers=12,
    num_heads=12,
    num_kv_heads=12,
    head_dim=64,
    vocab_size=50_257,
    gated_mlp=False,
    tied_embeddings=True,
    vector_params_per_layer=13 * 768,
    extra_params=(1024 + 2) * 768,
)


@pytest.mark.parametrize(
    ("model", "params"),
    [
        (LLAMA_8B, 8_030_261_248),
        (MIXTRAL, 46_702_792_704),
        (DEEPSEEK_V3, 671_026_404_352),
        (GPT_2, 124_439_808),
    ],
    ids=lambda each: each.name if isinstance(each, ModelArchitecture) else "",
)
def test_parameters_are_those_of_the_published_checkpoint(
    model: ModelArchitecture, params: int
) -> None:
    assert model.params == params


def test_active_parameters_count_the_experts_of_one_token() -> None:
    assert LLAMA_8B.active_params == LLAMA_8B.params
    assert MIXTRAL.active_params == 12_879_925_248
    assert replace(MIXTRAL, active_params_override=7).active_params == 7


def test_an_override_wins_over_the_count() -> None:
    assert replace(LLAMA_8B, params_override=9).params == 9


def test_what_a_model_without_experts_has_none_of() -> None:
    assert LLAMA_8B.num_moe_layers == 0
    assert LLAMA_8B.expert_params == 0
    assert LLAMA_8B.shared_expert_params == 0
    assert LLAMA_8B.router_params == 0
    assert LLAMA_8B.routed_expert_params == 0
    assert MIXTRAL.routed_expert_params == 32 * 8 * 3 * 4096 * 14_336


def test_dense_layers_are_those_without_experts() -> None:
    assert DEEPSEEK_V3.num_dense_layers == 3
    assert MIXTRAL.num_dense_layers == 0


def test_latent_attention_has_its_own_widths() -> None:
    assert DEEPSEEK_V3.query_size == 128 * 192
    assert DEEPSEEK_V3.value_size == 128 * 128
    assert DEEPSEEK_V3.kv_size == 128 * 192
    assert DEEPSEEK_V3.layer_vector_params == 2 * 7168 + 1536 + 512
    assert DEEPSEEK_V3.latent is not None
    plain = replace(DEEPSEEK_V3, latent=replace(DEEPSEEK_V3.latent, q_lora_rank=0))
    compressed = 7168 * 1536 + 1536 * 128 * 192
    assert plain.attention_params - DEEPSEEK_V3.attention_params == 7168 * 128 * 192 - compressed


def test_flop_of_a_token_are_six_a_matrix_parameter_and_attention() -> None:
    matrices = 6 * (32 * (LLAMA_8B.attention_params + LLAMA_8B.dense_mlp_params) + 128_256 * 4096)
    attention = 3 * 32 * 2 * (8192 / 2) * 2 * 4096
    assert LLAMA_8B.model_flop_per_token(8192) == matrices + attention
    both_ways = replace(LLAMA_8B, causal=False)
    assert both_ways.model_flop_per_token(8192) == matrices + 2 * attention


def test_flop_of_experts_count_the_chosen_ones() -> None:
    each = 8 * DEEPSEEK_V3.expert_params
    each += DEEPSEEK_V3.router_params + DEEPSEEK_V3.shared_expert_params
    total = 61 * DEEPSEEK_V3.attention_params + 3 * DEEPSEEK_V3.dense_mlp_params + 58 * each
    assert DEEPSEEK_V3.matmul_params_per_token() == total + 129_280 * 7168


def test_sliding_layers_see_a_window() -> None:
    sliding = replace(LLAMA_8B, sliding_window=1024, num_sliding_layers=16)
    full = LLAMA_8B.attention_flop_per_token(8192)
    assert sliding.attention_flop_per_token(8192) == full / 2 + full / 2 * 1024 / 4096
    assert sliding.attention_flop_per_token(1024) == LLAMA_8B.attention_flop_per_token(1024)
