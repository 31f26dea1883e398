import json
import math
from cProfile import Profile
from dataclasses import fields as fields_of
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.catalog.loader import load_catalog
from app.planner.architecture import RotaryPositions
from app.planner.intent import TrainIntent, Unresolved
from app.planner.request import PlanRequest

CATALOG = load_catalog()
H100 = "NVIDIA-H100-80GB-HBM3"
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
}


def resolved(**fields) -> PlanRequest:
    """The request of an intent on H100s."""
    found = CATALOG.resolve(TrainIntent(**{"gpu": H100, "model": "llama-3-8b", **fields}))
    assert isinstance(found, PlanRequest), found
    return found


def errors(**fields) -> dict[str, str]:
    """The errors of an intent on H100s, by path."""
    found = CATALOG.resolve(TrainIntent(**{"gpu": H100, "model": "llama-3-8b", **fields}))
    assert isinstance(found, Unresolved), found
    return {error.path: error.message for error in found.errors}


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("llama-3-70b", "llama-3-70b"),
        ("Llama-3-70B", "llama-3-70b"),
        ("llama3_70b", "llama-3-70b"),
        ("meta-llama/Meta-Llama-3-70B", "llama-3-70b"),
        ("meta-llama/Llama-3.1-70B", "llama-3.1-70b"),
        ("Llama-3.3-70B", "llama-3.1-70b"),
        ("llama-3.1-405b", "llama-3-405b"),
        ("Qwen/Qwen3-235B-A22B", "qwen3-235b-a22b"),
        ("deepseek-r1", "deepseek-v3"),
        ("GPT-4-Scale", "gpt-4-scale"),
    ],
)
def test_a_models_name_may_be_spelled_freely(name, model):
    assert resolved(model=name).model.name == model


@pytest.mark.parametrize("size", ["8b", "70b"])
def test_llama_3_1_differs_from_llama_3_in_its_positions_alone(size):
    old, new = resolved(model=f"llama-3-{size}"), resolved(model=f"llama-3.1-{size}")
    assert new.model.max_sequence_length == 131_072
    assert old.model == replace(
        new.model,
        name=old.model.name,
        max_sequence_length=8192,
        rotary=RotaryPositions(base=500_000),
    )
    assert new.model.rotary == RotaryPositions(base=500_000, factor=8)
    assert new.workload == old.workload


@pytest.mark.parametrize(
    "name", ["llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "llama-3.2-1b", "llama-3.2-3b"]
)
def test_llama_3_1_and_later_have_131072_positions(name):
    assert "positions" not in " ".join(resolved(model=name, sequence_length=131_072).assumptions)
    assert "131072 positions" in " ".join(resolved(model=name, sequence_length=131_073).assumptions)


@pytest.mark.parametrize("name", ["llama-3-71b", "", " ", "x" * 10**6])
def test_an_unknown_model_is_refused(name):
    found = errors(model=name)
    assert set(found) == {"model"}
    assert len(found["model"]) < 400


def test_an_unknown_model_comes_with_the_nearest():
    assert "`llama-3-70b`" in errors(model="llama-3-71b")["model"]


def test_no_model_says_what_would_do():
    assert "`hf_config`" in errors(model=None)["model"]


def test_a_config_is_a_model():
    request = resolved(model="mine", hf_config=LLAMA)
    assert request.model.params == 6_738_415_616
    assert request.model.name == "mine"
    assert request.workload.sequence_length == 2048


def test_a_bad_config_is_refused_where_it_stands():
    found = errors(hf_config={**LLAMA, "hidden_size": 0}, paths={"hf_config": "model.hf_config"})
    assert set(found) == {"model.hf_config.hidden_size"}


def test_only_one_description_may_be_given():
    assert set(errors(hf_config=LLAMA, architecture={"hidden_size": 1})) == {"architecture"}


def test_a_catalog_model_states_its_own_workload():
    request = resolved(model="mixtral-8x7b", nodes=4)
    assert request.workload.sequence_length == 32768
    assert "sequence length of 32768 assumed" in request.assumptions


@pytest.mark.parametrize(
    ("model", "nodes", "length", "batch"),
    [
        ("llama-3-70b", 8, 8192, 512),
        ("llama-3-70b", 64, 8192, 512),
        ("llama-3-70b", 128, 8192, 512),
        ("llama-3-8b", 8, 8192, 256),
        ("llama-3-8b", 64, 8192, 512),
        ("llama-3-1b", 1, 8192, 128),
        ("llama-3-70b", 3, 8192, 504),
        ("llama-3-70b", 1000, 8192, 800),
        ("qwen2.5-0.5b", 1, 4096, 128),
    ],
)
def test_the_assumed_batch(model, nodes, length, batch):
    """By the model's size, in shares that data-parallel ranks of the cluster can take."""
    request = resolved(model=model, nodes=nodes, sequence_length=length)
    world = request.cluster.world_size
    assert request.workload.global_batch_size == batch
    assert batch % world == 0 or world % batch == 0
    assert any("global batch of" in said for said in request.assumptions)


def test_fine_tuning_assumes_a_small_batch():
    assert resolved(task="lora", lora_rank=8).workload.global_batch_size == 64


def test_a_stated_workload_is_not_assumed():
    request = resolved(sequence_length=4096, global_batch_size=512, nodes=1)
    assert request.assumptions == ()
    assert request.workload.global_batch_size == 512


def test_a_length_beyond_the_model_is_said():
    said = resolved(model="gpt-2", sequence_length=4096).assumptions
    assert any("beyond the 1024 positions" in sentence for sentence in said)


def test_the_request_names_catalog_and_precisions():
    found = CATALOG.resolve(
        TrainIntent(model="llama-3-8b", gpu=H100), allowed_precisions=("bf16", "fp8")
    )
    assert found.allowed_precisions == ("bf16", "fp8")
    assert found.catalog_version == CATALOG.version


@pytest.mark.parametrize("name", CATALOG.frameworks)
def test_every_framework_resolves(name):
    assert resolved(framework=name.upper()).framework.name == name


def test_the_default_framework_is_fsdp():
    assert resolved().framework.name == "fsdp"


def test_pins_are_typed():
    pins = {
        "tp": 8,
        "precision": "fp8",
        "recompute": "full",
        "sharding": "zero3",
        "sequence_parallel": True,
        "cp": None,
    }
    request = resolved(pins=pins)
    assert request.pins.tp == 8
    assert request.pins.sequence_parallel is True
    assert request.pins.cp is None


@pytest.mark.parametrize(
    ("pins", "path"),
    [
        ({"tp": 0}, "pins.tp"),
        ({"tp": True}, "pins.tp"),
        ({"tp": "8"}, "pins.tp"),
        ({"tp": 2**40}, "pins.tp"),
        ({"pd": 2}, "pins.pd"),
        ({"precision": "bf8"}, "pins.precision"),
        ({"precision": ["bf16"]}, "pins.precision"),
        ({"sharding": "zero4"}, "pins.sharding"),
        ({"recompute": True}, "pins.recompute"),
        ({"sequence_parallel": 1}, "pins.sequence_parallel"),
        ([], "pins"),
        ("tp=8", "pins"),
    ],
)
def test_a_pin_that_cannot_be_is_refused(pins, path):
    found = errors(pins=pins)
    assert set(found) == {path}
    assert "must be" in found[path] or "known here" in found[path]


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        (field, bad)
        for field in ("sequence_length", "global_batch_size", "lora_rank")
        for bad in (0, -1, True, 1.5, math.nan, 2**60, "8192")
    ]
    + [(field, bad) for field in ("task", "optimizer", "offload") for bad in ("x", None, 3, [])]
    + [("framework", bad) for bad in ("x", 3, "")],
)
def test_a_workload_that_cannot_be_is_refused(field, bad):
    found = errors(**{field: bad})
    assert set(found) == {field}
    assert "must be" in found[field]


def test_all_errors_come_at_once_where_their_author_wrote_them():
    found = errors(
        model="nothing",
        gpu="H10",
        nodes=0,
        framework="x",
        task="play",
        sequence_length=-1,
        pins={"tp": 0},
        paths={
            "model": "spec.model",
            "gpu": "spec.nodeSelector",
            "nodes": "spec.numNodes",
            "pins": "metadata.annotations[pins]",
        },
    )
    assert set(found) == {
        "spec.model",
        "spec.nodeSelector",
        "spec.numNodes",
        "framework",
        "task",
        "sequence_length",
        "metadata.annotations[pins].tp",
    }


def test_resolving_is_deterministic():
    first, second = resolved(nodes=4), resolved(nodes=4)
    assert first == second
    assert first.cluster.gpu is second.cluster.gpu


def test_resolving_does_little():
    """A question over the catalog is a few look-ups: nothing is parsed or scanned."""
    intent = TrainIntent(model="llama-3-70b", gpu=H100, nodes=16)
    CATALOG.resolve(intent)
    profile = Profile()
    profile.runcall(CATALOG.resolve, intent)
    assert sum(entry.callcount for entry in profile.getstats()) < 200


def test_the_published_configs_resolve():
    path = Path(__file__).parents[2] / "data" / "catalog" / "hf_configs.jsonl"
    for line in path.read_text().splitlines():
        row = json.loads(line)
        request = resolved(model=row["name"], hf_config=row["config"])
        assert request.model.params == row["params_total"]


ANYTHING = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.lists(st.integers(), max_size=2)
    | st.dictionaries(st.text(max_size=8), st.integers(), max_size=2)
)
FREE = sorted({field.name for field in fields_of(TrainIntent)} - {"node_labels", "paths"})


@given(change=st.dictionaries(st.sampled_from(FREE), ANYTHING, max_size=4))
def test_an_intent_of_anything_answers(change):
    """Whatever stands in the fields, the answer is a request or reasons, never an exception."""
    found = CATALOG.resolve(TrainIntent(**{"gpu": H100, "model": "llama-3-8b", **change}))
    assert isinstance(found, PlanRequest) or found.errors
