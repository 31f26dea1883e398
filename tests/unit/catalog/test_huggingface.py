import copy
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.catalog.huggingface import FAMILIES, architecture_from_config
from app.planner.architecture import ModelArchitecture, RotaryPositions
from app.planner.intent import FieldError

DATA = Path(__file__).parents[2] / "data" / "catalog" / "hf_configs.jsonl"
ROWS = [json.loads(line) for line in DATA.read_text().splitlines()]
BY_NAME = {row["name"]: row for row in ROWS}

# Counts public model cards and loaders print for models that are not among the rows above.
PUBLISHED = {
    "gpt-neox-20b": (
        {
            "model_type": "gpt_neox",
            "hidden_size": 6144,
            "num_hidden_layers": 44,
            "num_attention_heads": 64,
            "intermediate_size": 24576,
            "vocab_size": 50432,
        },
        20_554_567_680,
    ),
    "mistral-7b": (
        {
            "model_type": "mistral",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "intermediate_size": 14336,
            "vocab_size": 32000,
        },
        7_241_732_096,
    ),
    "deepseek-v2-lite": (
        {
            "model_type": "deepseek_v2",
            "hidden_size": 2048,
            "num_hidden_layers": 27,
            "num_attention_heads": 16,
            "intermediate_size": 10944,
            "moe_intermediate_size": 1408,
            "n_routed_experts": 64,
            "num_experts_per_tok": 6,
            "first_k_dense_replace": 1,
            "q_lora_rank": None,
            "vocab_size": 102400,
        },
        15_706_484_224,
    ),
    "deepseek-v2": (
        {
            "model_type": "deepseek_v2",
            "hidden_size": 5120,
            "num_hidden_layers": 60,
            "num_attention_heads": 128,
            "intermediate_size": 12288,
            "moe_intermediate_size": 1536,
            "n_routed_experts": 160,
            "num_experts_per_tok": 6,
            "first_k_dense_replace": 1,
            "vocab_size": 102400,
        },
        235_741_434_880,
    ),
    "qwen3-8b": (
        {
            "model_type": "qwen3",
            "hidden_size": 4096,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 12288,
            "vocab_size": 151936,
        },
        8_190_735_360,
    ),
    "opt-350m": (
        {
            "model_type": "opt",
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "ffn_dim": 4096,
            "vocab_size": 50272,
            "word_embed_proj_dim": 512,
            "do_layer_norm_before": False,
        },
        331_196_416,
    ),
    "mpt-7b": (
        {"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 50432},
        6_649_286_656,
    ),
    "mpt-13b of llm-foundry": (
        {
            "model_type": "mpt",
            "d_model": 5120,
            "n_layers": 40,
            "n_heads": 40,
            "vocab_size": 50368,
            "no_bias": False,
            "attn_config": {"alibi": False},
        },
        12_853_954_560,
    ),
    "gpt2": (
        {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257},
        124_439_808,
    ),
    "bert-base masked": (
        {
            "model_type": "bert",
            "architectures": ["BertForMaskedLM"],
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "vocab_size": 30522,
        },
        109_514_298,
    ),
    "falcon-7b": (
        {
            "model_type": "falcon",
            "hidden_size": 4544,
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "vocab_size": 65024,
        },
        7_217_189_760,
    ),
    "clip text tower": (
        {
            "model_type": "clip_text_model",
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
        },
        123_060_480,
    ),
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_counts_are_exact(row):
    """All and active parameters meet the published numbers to the digit."""
    model = architecture_from_config(row["config"], row["name"])
    assert isinstance(model, ModelArchitecture)
    assert model.params == row["params_total"]
    assert model.active_params == row["params_active"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_absent_fields_take_the_librarys_defaults(name):
    config, params = PUBLISHED[name]
    model = architecture_from_config(config, name)
    assert isinstance(model, ModelArchitecture)
    assert model.params == params


@pytest.mark.parametrize(
    ("name", "window", "layers"),
    [
        ("Gemma-2-9B", 4096, 21),
        ("gpt-oss-120b", 128, 18),
        ("Llama-2-7B", 0, 0),
        ("Qwen2.5-7B", 0, 0),
    ],
)
def test_sliding_windows(name, window, layers):
    model = architecture_from_config(BY_NAME[name]["config"], name)
    assert (model.sliding_window, model.num_sliding_layers) == (window, layers)


def test_layer_types_say_which_layers_slide():
    config = {**BY_NAME["Gemma-2-9B"]["config"]}
    config["layer_types"] = ["full_attention"] * 40 + ["sliding_attention"] * 2
    model = architecture_from_config(config, "x")
    assert model.num_sliding_layers == 2


@pytest.mark.parametrize("name", ["ViT-L/16-224", "CLIP-ViT-L/14"])
def test_image_models_have_no_vocabulary(name):
    model = architecture_from_config(BY_NAME[name]["config"], name)
    assert model.vocab_size == 0
    assert not model.causal


def test_latent_attention_keeps_its_sizes():
    model = architecture_from_config(BY_NAME["DeepSeek-V3"]["config"], "x")
    assert model.attention == "mla"
    assert model.latent.kv_lora_rank == 512
    assert model.moe.num_moe_layers == 58


@pytest.mark.parametrize(
    ("config", "path", "words"),
    [
        ({}, "hf_config.model_type", "llama"),
        ({"model_type": "lama"}, "hf_config.model_type", "did you mean `llama`?"),
        ({"model_type": "mamba2"}, "hf_config.model_type", "`architecture`"),
        ({"model_type": ["llama"]}, "hf_config.model_type", "known are"),
        ([], "hf_config", "must be the object"),
        (None, "hf_config", "must be the object"),
    ],
)
def test_an_unknown_family_names_the_known_ones(config, path, words):
    errors = architecture_from_config(config, "x")
    assert [error.path for error in errors] == [path]
    assert words in errors[0].message


def test_every_missing_size_is_named_at_once():
    errors = architecture_from_config({"model_type": "llama"}, "x")
    paths = {error.path for error in errors}
    assert paths == {
        "hf_config.hidden_size",
        "hf_config.num_attention_heads",
        "hf_config.num_hidden_layers",
        "hf_config.vocab_size",
        "hf_config.intermediate_size",
    }


@pytest.mark.parametrize("bad", [0, -1, True, 1.5, math.nan, math.inf, 2**40, "4096", []])
@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads"])
def test_a_size_that_is_no_size_is_refused(key, bad):
    config = {**BY_NAME["Llama-2-7B"]["config"], key: bad}
    errors = architecture_from_config(config, "x")
    assert f"hf_config.{key}" in {error.path for error in errors}
    assert all(len(error.message) < 400 for error in errors)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"num_key_value_heads": 7}, "num_key_value_heads"),
        ({"hidden_size": 4097}, "head_dim"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
    ],
)
def test_fields_that_contradict_are_refused(change, path):
    errors = architecture_from_config({**BY_NAME["Llama-2-7B"]["config"], **change}, "x")
    assert [error.path for error in errors] == [f"hf_config.{path}"]


def test_more_experts_chosen_than_there_are_is_refused():
    config = {**BY_NAME["Mixtral-8x7B-v0.1"]["config"], "num_experts_per_tok": 9}
    errors = architecture_from_config(config, "x")
    assert [error.path for error in errors] == ["hf_config.num_experts_per_tok"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(data=st.data())
def test_malformed_configs_answer_and_never_raise(data):
    """Any field of any published config may hold anything."""
    config = copy.deepcopy(data.draw(st.sampled_from(ROWS))["config"])
    extra = ["layer_types", "mlp_only_layers", "attn_config", "architectures", "id2label"]
    for key in data.draw(st.lists(st.sampled_from([*config, *extra]), max_size=4)):
        config[key] = data.draw(JSON)
    found = architecture_from_config(config, "x")
    if isinstance(found, ModelArchitecture):
        assert found.params > 0
    else:
        assert found
        assert all(isinstance(error, FieldError) for error in found)


@given(config=st.dictionaries(st.text(max_size=8), JSON), family=st.sampled_from([*FAMILIES]))
def test_any_mapping_of_any_family_answers(config, family):
    assert architecture_from_config({**config, "model_type": family}, "x")


def test_a_number_that_cannot_be_printed_is_refused():
    config = {**BY_NAME["Llama-2-7B"]["config"], "hidden_size": 10**5000}
    errors = architecture_from_config(config, "x")
    assert "a number beyond any cluster" in errors[0].message


LLAMA_3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.parametrize(
    ("stated", "rotary"),
    [
        ({}, None),
        ({"rope_theta": 500000.0}, RotaryPositions(base=500_000)),
        ({"rope_theta": 1e6, "rope_scaling": None}, RotaryPositions(base=1_000_000)),
        (
            {"rope_theta": 500000.0, "rope_scaling": LLAMA_3},
            RotaryPositions(base=500_000, factor=8),
        ),
        ({"rope_theta": 1e4, "rope_scaling": {**LLAMA_3, "low_freq_factor": 2.0}}, None),
        ({"rope_theta": 1e4, "rope_scaling": {"type": "yarn", "factor": 40}}, None),
        ({"rope_theta": 1e4, "rope_scaling": "linear"}, None),
        ({"rope_theta": 1e4, "partial_rotary_factor": 0.5}, None),
        ({"rope_theta": "much"}, None),
    ],
)
def test_rotary_positions_are_known_or_not(stated, rotary):
    """What does not decide a plan is no error: an unknown kind is one nobody knows."""
    found = architecture_from_config({**PUBLISHED["mistral-7b"][0], **stated}, "mine")
    assert isinstance(found, ModelArchitecture)
    assert found.rotary == rotary
