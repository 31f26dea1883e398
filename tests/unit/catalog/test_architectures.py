import math
from dataclasses import fields as fields_of

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.catalog.loader import load_catalog
from app.planner.architecture import ModelArchitecture
from app.planner.intent import TrainIntent, Unresolved
from app.planner.request import PlanRequest

CATALOG = load_catalog()
FULL = {
    "hidden_size": 4096,
    "ffn_hidden_size": 14336,
    "num_layers": 32,
    "num_heads": 32,
    "num_kv_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
}
PARTIAL = {"hidden_size": 6144, "num_layers": 44, "num_heads": 48, "num_kv_heads": 8}


def ask(shape, model="mine", **fields):
    """What the catalog answers about an architecture."""
    return CATALOG.resolve(TrainIntent(model=model, architecture=shape, gpu="H200", **fields))


def model(shape, name="mine"):
    """The model of an architecture that resolves."""
    found = ask(shape, name)
    assert isinstance(found, PlanRequest), found
    return found.model


def errors(shape, **fields):
    """The errors of an architecture, by path."""
    found = ask(shape, **fields)
    assert isinstance(found, Unresolved), found
    return {error.path: error.message for error in found.errors}


def test_a_complete_one_is_taken_as_it_is():
    assert model(FULL).params == 8_030_261_248


def test_absent_kv_heads_and_head_size_follow_from_the_heads():
    found = model({**FULL, "num_kv_heads": 0, "head_dim": None})
    assert found.num_kv_heads == 32
    assert found.head_dim == 128
    assert found.attention == "mha"


def test_the_feed_forward_width_comes_from_the_parameter_count():
    found = ask({**PARTIAL, "params": 22_400_000_000})
    assert found.model.params == 22_400_000_000
    counted = found.model
    exact = ModelArchitecture(
        **{
            field.name: getattr(counted, field.name)
            for field in fields_of(counted)
            if "override" not in field.name
        }
    )
    assert exact.params == pytest.approx(22.4e9, rel=0.01)
    assert any("derived from 22.40 B parameters" in said for said in found.assumptions)
    assert any("vocabulary of 128256 assumed" in said for said in found.assumptions)


def test_a_count_may_be_written_as_a_float():
    assert model({**PARTIAL, "params": 2.24e10}).params == 22_400_000_000


def test_a_small_model_ties_its_assumed_embeddings():
    shape = {"hidden_size": 2048, "num_layers": 16, "num_heads": 32, "params": 1_240_000_000}
    found = ask(shape)
    assert found.model.tied_embeddings
    assert any("tied" in said for said in found.assumptions)


def test_without_a_count_the_width_is_the_usual_one():
    assert model({"hidden_size": 4096, "num_layers": 2, "num_heads": 32}).ffn_hidden_size == 11008


def test_experts_need_no_dense_width():
    moe = {"num_experts": 8, "top_k": 2, "expert_ffn_hidden_size": 14336}
    shape = {**FULL, "ffn_hidden_size": None, "vocab_size": 32000, "moe": moe}
    found = model(shape)
    assert found.params == 46_702_792_704
    assert found.active_params == 12_879_925_248


def test_latent_attention_is_read():
    latent = {
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    }
    found = model({**FULL, "attention": "mla", "latent": latent, "head_dim": None})
    assert found.attention == "mla"
    assert found.head_dim == 192


@pytest.mark.parametrize("name", CATALOG.models)
def test_an_answered_architecture_can_be_asked_again(name):
    """What an answer prints resolves to the same shape and counts."""
    known = CATALOG.models[name]
    body = {f.name: getattr(known, f.name) for f in fields_of(known) if "override" not in f.name}
    for key in ("moe", "latent", "rotary"):
        inner = body[key]
        body[key] = inner and {f.name: getattr(inner, f.name) for f in fields_of(inner)}
    body |= {"params": known.params, "active_params": known.active_params}
    found = model(body, name=f"my {name}")
    assert found.params == known.params
    assert found.active_params == known.active_params
    assert found.attention_params == known.attention_params
    assert found.num_moe_layers == known.num_moe_layers
    assert found.rotary == known.rotary


def test_stated_sizes_of_a_catalog_model_mean_that_model():
    """A job that repeats the registry's rounded figures still gets the exact model."""
    shape = {
        "params": 70_000_000_000,
        "hidden_size": 8192,
        "num_layers": 80,
        "num_heads": 64,
        "num_kv_heads": 8,
    }
    found = ask(shape, "llama-3-70b")
    assert found.model is CATALOG.models["llama-3-70b"]
    assert any("llama-3-70b of the catalog" in said for said in found.assumptions)


def test_other_sizes_under_a_catalog_name_are_another_model():
    found = model({**FULL, "num_layers": 16}, "llama-3-8b")
    assert found.num_layers == 16


def test_every_missing_size_is_named():
    assert set(errors({})) == {
        "architecture.hidden_size",
        "architecture.num_layers",
        "architecture.num_heads",
    }


def test_errors_stand_where_the_author_wrote():
    paths = {
        "architecture": "spec.modelSpec",
        "architecture.hidden_size": "spec.modelSpec.hiddenDim",
    }
    found = errors({"num_layers": 0, "num_heads": 8}, paths=paths)
    assert set(found) == {"spec.modelSpec.hiddenDim", "spec.modelSpec.num_layers"}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"hidden_size": 0}, "hidden_size"),
        ({"hidden_size": 2**20 + 1}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"num_layers": -1}, "num_layers"),
        ({"num_heads": 1.5}, "num_heads"),
        ({"num_kv_heads": 5}, "num_kv_heads"),
        ({"gated_mlp": "yes"}, "gated_mlp"),
        ({"attention": "linear"}, "attention"),
        ({"attention": "mla"}, "attention"),
        ({"latent": 3}, "latent"),
        ({"rotary": 3}, "rotary"),
        ({"rotary": {}}, "rotary.base"),
        ({"rotary": {"base": 10000, "factor": 0.5}}, "rotary.factor"),
        ({"moe": []}, "moe"),
        ({"hiden_size": 3}, "hiden_size"),
        ({"params": -1}, "params"),
        ({"params": math.inf}, "params"),
        ({"active_params": 10**14}, "active_params"),
        ({"extra_params": -2}, "extra_params"),
        ({"moe": {"num_experts": 2, "top_k": 3, "expert_ffn_hidden_size": 8}}, "moe.top_k"),
        (
            {"moe": {"num_experts": 2, "top_k": 1, "expert_ffn_hidden_size": 8, "x": 1}},
            "moe.x",
        ),
    ],
)
def test_a_size_that_cannot_be_is_refused(change, path):
    assert f"architecture.{path}" in errors({**FULL, **change})


def test_a_misspelt_key_is_recognised():
    found = errors({**FULL, "hiden_size": 3})
    assert "did you mean `hidden_size`?" in found["architecture.hiden_size"]


def test_heads_that_do_not_divide_ask_for_their_size():
    assert set(errors({**FULL, "hidden_size": 4097, "head_dim": None})) == {"architecture.head_dim"}


@pytest.mark.parametrize(
    ("params", "words"),
    [(1_000_000, "must be greater than"), (10**14, "a mixture of experts must give `moe`")],
)
def test_a_count_the_sizes_cannot_reach_is_refused(params, words):
    assert words in errors({**PARTIAL, "params": params})["architecture.params"]


@pytest.mark.parametrize("shape", [[], "big", 3])
def test_something_else_is_refused(shape):
    assert "must be an object" in errors(shape)["architecture"]


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
KEYS = st.sampled_from(
    [*FULL, "params", "active_params", "moe", "latent", "rotary", "attention", "zz"]
)


@given(change=st.dictionaries(KEYS, VALUES | st.dictionaries(st.text(max_size=3), VALUES)))
def test_any_mapping_answers(change):
    found = ask({**FULL, **change})
    assert isinstance(found, PlanRequest) or found.errors
