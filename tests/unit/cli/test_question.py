"""Flags become the body that the HTTP API takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli.desk import precisions
from app.cli.question import Question, key_values
from app.cli.refuse import CannotAnswer


def refusal(problem: pytest.ExceptionInfo[CannotAnswer]) -> str:
    """The sentence a refusal says."""
    message: str = problem.value.body["error"]["message"]
    return message


def test_what_is_not_given_is_absent() -> None:
    assert Question(model="llama-3-8b").body() == {"model": "llama-3-8b"}
    assert Question().body() == {}


def test_every_flag_has_its_place_in_the_body() -> None:
    question = Question(
        model="llama-3-70b",
        gpu="H100-SXM5-80GB",
        nodes=8,
        gpus_per_node=4,
        fabric="infiniband-400",
        framework="megatron",
        sequence_length=8192,
        global_batch_size=512,
        task="lora",
        lora_rank=8,
        optimizer="sgd",
        offload="optimizer",
        pin=["tp=8", "precision=bf16"],
    )
    assert question.body() == {
        "model": "llama-3-70b",
        "gpu": "H100-SXM5-80GB",
        "nodes": 8,
        "gpus_per_node": 4,
        "fabric": "infiniband-400",
        "framework": "megatron",
        "workload": {
            "sequence_length": 8192,
            "global_batch_size": 512,
            "task": "lora",
            "lora_rank": 8,
            "optimizer": "sgd",
            "offload": "optimizer",
        },
        "pins": {"tp": 8, "precision": "bf16"},
    }


def test_a_number_is_a_fabric_of_that_rate() -> None:
    assert Question(fabric="5e10").body()["fabric"] == {"bytes_per_second_per_gpu": 5e10}


def test_an_architecture_is_text_or_a_file(tmp_path: Path) -> None:
    shape = {"hidden_size": 64}
    file = tmp_path / "shape.json"
    file.write_text(json.dumps(shape))
    for given in (json.dumps(shape), str(file)):
        body = Question(model="mine", architecture=given).body()
        assert body["model"] == {"architecture": shape, "name": "mine"}


def test_a_config_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "llama"}')
    assert Question(hf_config=file).body()["model"] == {"hf_config": {"model_type": "llama"}}


@pytest.mark.parametrize("given", ["{", "/nowhere/shape.json", "{" * 100_000])
def test_an_architecture_that_cannot_be_read_is_bad_input(given: str) -> None:
    with pytest.raises(CannotAnswer) as problem:
        Question(architecture=given).body()
    assert "`--architecture` must be JSON" in refusal(problem)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("-1", -1),
        ("true", True),
        ("False", False),
        ("zero3", "zero3"),
        ("20,22", [20, 22]),
        ("1" * 5000, "1" * 5000),
        ("", ""),
        ("1.5", "1.5"),
    ],
)
def test_values_have_the_type_they_look_like(text: str, value: Any) -> None:
    assert key_values([f"key={text}"], flag="--pin") == {"key": value}


@pytest.mark.parametrize("pair", ["tp", "=8", ""])
def test_a_pair_needs_a_key_and_a_value(pair: str) -> None:
    with pytest.raises(CannotAnswer) as problem:
        key_values([pair], flag="--pin")
    assert "`--pin` must be KEY=VALUE" in refusal(problem)


def test_precisions_come_in_the_order_of_width() -> None:
    assert precisions("fp8, bf16") == ("bf16", "fp8")
    assert precisions(None) == ("bf16", "fp16")


def test_an_unknown_precision_names_the_known() -> None:
    with pytest.raises(CannotAnswer) as problem:
        precisions("bf16,int4")
    assert "nvfp4" in refusal(problem)
    assert "`int4`" in refusal(problem)
