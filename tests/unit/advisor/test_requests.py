"""The tables of the API: what is read, and what is refused with which words."""

from __future__ import annotations

from typing import Any

import pytest

from app.advisor.requests import (
    EstimateQuestion,
    parse_estimate_body,
    parse_plan_body,
)
from app.planner.intent import FieldError, TrainIntent

SMALL = {"model": "llama-3-8b", "gpu": "H100-SXM5-80GB"}
FULL = {
    "model": "llama-3-70b",
    "gpu": "NVIDIA-H100-80GB-HBM3",
    "nodes": 8,
    "gpus_per_node": 4,
    "fabric": "infiniband-400",
    "framework": "fsdp",
    "workload": {
        "sequence_length": 8192,
        "global_batch_size": 512,
        "task": "lora",
        "lora_rank": 8,
        "optimizer": "adamw_8bit",
        "offload": "optimizer",
    },
    "pins": {"tp": 8, "precision": "bf16"},
}


def refused(body: Any, parse: Any = parse_plan_body) -> tuple[FieldError, ...]:
    """The errors of a body that must be refused."""
    answer = parse(body)
    assert isinstance(answer, tuple)
    assert all(isinstance(one, FieldError) for one in answer)
    return answer


def test_every_field_reaches_the_intent() -> None:
    intent = parse_plan_body(FULL)
    assert isinstance(intent, TrainIntent)
    assert (intent.model, intent.gpu, intent.nodes, intent.gpus_per_node) == (
        "llama-3-70b",
        "NVIDIA-H100-80GB-HBM3",
        8,
        4,
    )
    assert (intent.fabric, intent.framework) == ("infiniband-400", "fsdp")
    assert (intent.sequence_length, intent.global_batch_size) == (8192, 512)
    assert (intent.task, intent.lora_rank) == ("lora", 8)
    assert (intent.optimizer, intent.offload) == ("adamw_8bit", "optimizer")
    assert intent.pins == {"tp": 8, "precision": "bf16"}


def test_what_is_absent_takes_the_defaults_of_an_intent() -> None:
    assert parse_plan_body(SMALL) == TrainIntent(
        model="llama-3-8b", gpu="H100-SXM5-80GB", paths=parse_plan_body(SMALL).paths
    )


def test_null_is_the_same_as_absent() -> None:
    """Clients that render every field send null for what nobody chose."""
    nulls = dict.fromkeys(("nodes", "fabric", "workload", "pins", "instance_type")) | SMALL
    assert parse_plan_body(nulls) == parse_plan_body(SMALL)
    assert parse_plan_body(SMALL | {"workload": {"task": None}}) == parse_plan_body(SMALL)


def test_an_architecture_keeps_its_name_and_its_path() -> None:
    intent = parse_plan_body(
        SMALL | {"model": {"name": "mine", "architecture": {"hidden_size": 64}}}
    )
    assert isinstance(intent, TrainIntent)
    assert (intent.model, intent.architecture) == ("mine", {"hidden_size": 64})
    assert intent.path("architecture") == "model.architecture"


def test_errors_of_the_catalog_name_the_fields_of_the_api() -> None:
    intent = parse_plan_body(SMALL)
    assert isinstance(intent, TrainIntent)
    assert intent.path("sequence_length") == "workload.sequence_length"
    assert intent.path("gpu") == "gpu"


def test_an_estimate_carries_its_layout() -> None:
    question = parse_estimate_body(FULL | {"layout": {"tp": 8, "pp": None, "stage_layers": [3, 5]}})
    assert isinstance(question, EstimateQuestion)
    assert question.layout == {"tp": 8, "stage_layers": [3, 5]}
    assert question.intent == parse_plan_body(FULL)


def test_an_instance_type_stands_for_the_gpu() -> None:
    assert isinstance(parse_plan_body({"model": "m", "instance_type": "p5.48xlarge"}), TrainIntent)


WRONG = [
    pytest.param({"nodes": 0}, "nodes", "from 1 to", id="zero"),
    pytest.param({"nodes": -3}, "nodes", "not -3", id="negative"),
    pytest.param({"nodes": 10**30}, "nodes", "from 1 to", id="enormous"),
    pytest.param({"nodes": 10**5000}, "nodes", "beyond any cluster", id="unprintable"),
    pytest.param({"nodes": True}, "nodes", "not true", id="bool is no number"),
    pytest.param({"nodes": 2.5}, "nodes", "whole number", id="fraction"),
    pytest.param({"nodes": float("nan")}, "nodes", "whole number", id="not a number"),
    pytest.param({"nodes": "8"}, "nodes", 'not "8"', id="number as text"),
    pytest.param({"nodes": [8]}, "nodes", "not a list", id="list"),
    pytest.param({"gpu": ""}, "gpu", "non-empty string", id="empty name"),
    pytest.param({"gpu": {}}, "gpu", "not an object", id="gpu object"),
    pytest.param({"model": 5}, "model", "catalog name or an object", id="model number"),
    pytest.param({"model": None}, "model", "must be given", id="model null"),
    pytest.param({"model": {}}, "model", "exactly one of", id="model empty"),
    pytest.param(
        {"model": {"architecture": {}, "hf_config": {}}}, "model", "exactly one", id="two models"
    ),
    pytest.param(
        {"model": {"hf_config": "x"}}, "model.hf_config", "must be an object", id="config text"
    ),
    pytest.param({"fabric": {"rate": 1}}, "fabric.rate", "is not known", id="fabric key"),
    pytest.param(
        {"fabric": {"bytes_per_second_per_gpu": 0}},
        "fabric.bytes_per_second_per_gpu",
        "greater than 0",
        id="no bandwidth",
    ),
    pytest.param(
        {"fabric": {"bytes_per_second_per_gpu": float("inf")}},
        "fabric.bytes_per_second_per_gpu",
        "greater than 0",
        id="infinite bandwidth",
    ),
    pytest.param({"workload": 3}, "workload", "must be an object", id="workload number"),
    pytest.param(
        {"workload": {"task": "dance"}}, "workload.task", "one of `pretrain`", id="unknown task"
    ),
    pytest.param(
        {"workload": {"task": ["sft"]}}, "workload.task", "not a list", id="unhashable choice"
    ),
    pytest.param({"pins": {"tp": "8"}}, "pins.tp", "whole number", id="pin text"),
    pytest.param(
        {"pins": {"sharding": "zero4"}}, "pins.sharding", "`zero3`, `hsdp`", id="pin choice"
    ),
    pytest.param(
        {"pins": {"sequence_parallel": 1}}, "pins.sequence_parallel", "true or false", id="pin bool"
    ),
    pytest.param({"layout": {}}, "layout", "is not known", id="layout belongs to estimate"),
]


@pytest.mark.parametrize(("change", "path", "words"), WRONG)
def test_a_wrong_value_is_one_error_at_its_path(
    change: dict[str, Any], path: str, words: str
) -> None:
    (error,) = refused(SMALL | change)
    assert error.path == path
    assert words in error.message
    assert len(error.message) < 300


def test_all_errors_come_at_once() -> None:
    body = {"model": "m", "nodes": 0, "workload": {"task": "x", "steps": 3}, "pins": {"tp": 0}}
    assert [one.path for one in refused(body)] == [
        "nodes",
        "workload.task",
        "workload.steps",
        "pins.tp",
        "gpu",
    ]


@pytest.mark.parametrize(
    ("key", "guess"),
    [("node", "did you mean `nodes`?"), ("gpus_pernode", "`gpus_per_node`"), ("xyz", "known here")],
)
def test_an_unknown_key_names_the_known_ones(key: str, guess: str) -> None:
    (error,) = refused(SMALL | {key: 1})
    assert guess in error.message
    assert "`workload`" in error.message


@pytest.mark.parametrize("body", [None, [], "text", 3, True])
def test_a_body_that_is_no_object_is_refused(body: Any) -> None:
    (error,) = refused(body)
    assert error.path == ""
    assert "JSON object" in error.message


@pytest.mark.parametrize("layers", ["3,5", [3, "5"], [-1], {"0": 3}, [True]])
def test_stage_layers_must_be_counts(layers: Any) -> None:
    (error,) = refused(SMALL | {"layout": {"stage_layers": layers}}, parse_estimate_body)
    assert error.path == "layout.stage_layers"
