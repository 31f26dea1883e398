"""A stated layout is judged, and what it does not say is not held against it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.admission.judge import (
    ASSUMED_BY_RULE,
    DEGREES_RULE,
    RULES_OF_THE_GPU,
    memory_errors,
    memory_warnings,
)
from app.planner.estimate import MEMORY_MARGIN, estimate
from app.planner.intent import TrainIntent
from app.planner.legality import RULES
from app.trainjobs.adapter import DeclaredLayout
from tests.kubeflow.reviews import answered
from tests.unit.planner.builders import layout, request
from tests.vsr.reviews import manual_job, review_of, shipped

PREFIX = "training.vsr.dev/"
TWELVE_HEADS = {"numHeads": 12, "hiddenDim": 768, "numLayers": 12, "paramsBillions": 0.3}


def verdict(notes: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """The answer of /validate to a manual job."""
    job = manual_job(**spec)
    job["metadata"]["annotations"] = {PREFIX + name: value for name, value in (notes or {}).items()}
    return answered(review_of(job), shipped(), door="validate")


def causes(answer: dict[str, Any]) -> list[tuple[str, str]]:
    """Field and message of every cause of a refusal."""
    return [(each["field"], each["message"]) for each in answer["status"]["details"]["causes"]]


def test_the_tables_name_rules_and_fields_that_exist() -> None:
    names = {rule.name for rule in RULES}
    assert {DEGREES_RULE, *ASSUMED_BY_RULE, *RULES_OF_THE_GPU} <= names
    assert set(ASSUMED_BY_RULE.values()) <= set(TrainIntent.__dataclass_fields__)


def on(gpu: str) -> dict[str, str]:
    """A node selector for a GPU."""
    return {"nvidia.com/gpu.product": gpu}


def test_tensor_parallelism_may_reach_over_trays_of_one_nvlink_domain() -> None:
    """The reference refuses tp above gpusPerNode; on NVL72 four-GPU trays share 72 GPUs' NVLink."""
    wide: dict[str, Any] = {"model": "llama-3-70b", "gpusPerNode": 4, "numNodes": 8, "tpDegree": 8}
    assert verdict(**wide, nodeSelector=on("NVIDIA-GB200"))["allowed"]
    ((field, message),) = causes(verdict(**wide, nodeSelector=on("NVIDIA-H100-80GB-HBM3")))
    assert field == "spec.tpDegree"
    assert "fast link" in message


@pytest.mark.parametrize(
    ("gpu", "allowed"),
    [("NVIDIA-L40S", True), ("NVIDIA-H100-80GB-HBM3", True), ("NVIDIA-A100-SXM4-80GB", False)],
)
def test_fp8_goes_by_what_the_gpu_can(gpu: str, allowed: bool) -> None:
    answer = verdict(
        {"framework": "megatron"}, model="llama-3-1b", precision="fp8", nodeSelector=on(gpu)
    )
    assert answer["allowed"] == allowed, answer
    if not allowed:
        assert [field for field, _ in causes(answer)] == ["spec.precision"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"model": "llama-3-70b", "numNodes": 4, "tpDegree": 8, "ppDegree": 3}, "divide"),
        ({"model": "mistral-7b", "numNodes": 2, "tpDegree": 16}, "key/value heads"),
        ({"model": "mine", "modelSpec": TWELVE_HEADS, "tpDegree": 8}, "12 attention heads"),
    ],
)
def test_heads_and_degrees_must_divide(spec: dict[str, Any], words: str) -> None:
    assert any(words in message for _, message in causes(verdict(**spec)))


def test_a_model_nobody_knows_is_let_in_with_a_warning() -> None:
    answer = verdict(model="house-13b")
    assert answer["allowed"]
    assert any("not checked" in each for each in answer["warnings"])


def test_what_the_gpu_alone_forbids_needs_no_model() -> None:
    answer = verdict(
        model="house-13b",
        numNodes=2,
        tpDegree=16,
        precision="fp8",
        nodeSelector=on("NVIDIA-A100-SXM4-80GB"),
    )
    assert [field for field, _ in causes(answer)] == ["spec.tpDegree", "spec.precision"]


@pytest.mark.parametrize("selector", [{}, {"pool": "a"}, {"nvidia.com/gpu.product": "NVIDIA-Z9"}])
def test_a_gpu_nobody_knows_is_let_in_with_a_warning(selector: dict[str, str]) -> None:
    answer = verdict(nodeSelector=selector)
    assert answer["allowed"]
    assert any("spec.nodeSelector" in each for each in answer["warnings"])


def test_a_job_over_the_card_in_every_reading_is_refused_in_numbers() -> None:
    ((field, message),) = causes(verdict(model="llama-3-70b", tpDegree=8))
    assert field == "spec.tpDegree"
    assert "GiB too much" in message
    assert "would hold" in message


def test_a_job_that_fits_in_one_reading_is_let_in_and_told_which() -> None:
    answer = verdict(modelSpec={"microBatchSize": 4}, tpDegree=1)
    assert answer["allowed"]
    assert any("unless it runs with recompute" in each for each in answer["warnings"])


def test_the_least_change_that_fits_is_named() -> None:
    """The plan's own choice, not the leanest of all; counted against what a plan may use."""
    (told,) = [
        each
        for each in verdict(model="llama-3-8b", modelSpec={"microBatchSize": 2}, tpDegree=1)[
            "warnings"
        ]
        if each.startswith("needs ")
    ]
    assert "of the 73 GiB usable (80 less the 8% that stay free)" in told
    assert "unless it runs with recompute selective (" in told
    assert "zero3" not in told


@pytest.mark.parametrize(
    ("share", "words"), [(0.919, ""), (0.95, "it may run out of memory"), (1.01, "")]
)
def test_what_a_plan_leaves_free_is_a_stated_layouts_to_use(share: float, words: str) -> None:
    """One limit at both doors; between it and the card a warning, above the card an error."""
    asked = request()
    judged = estimate(asked, layout(asked))
    card = int(judged.memory.total / share)
    full = replace(judged, gpu_memory_bytes=card, limit_bytes=card * (1 - MEMORY_MARGIN))
    assert words in " ".join(memory_warnings([full], full))
    assert bool(list(memory_warnings([full], full))) is bool(words)
    declared = DeclaredLayout(intent=TrainIntent(), fields={}, paths={})
    assert bool(list(memory_errors(full, declared, asked))) is (share > 1)


def test_lora_is_judged_as_lora() -> None:
    """A layout that full training has no room for, and an adapter has."""
    spec: dict[str, Any] = {"model": "llama-3-70b", "tpDegree": 8}
    ((_, message),) = causes(verdict(**spec))
    assert "assuming full training with AdamW; annotation `training.vsr.dev/task: lora`" in message
    assert verdict({"task": "lora"}, **spec)["allowed"]
    assert verdict({"task": "qlora", "lora-rank": "8"}, **spec)["allowed"]


def test_what_the_job_says_is_read_as_said() -> None:
    """The same job, with the recomputation that would have saved it ruled out."""
    spec = {"microBatchSize": 4, "activationCheckpointing": False}
    assert not verdict(modelSpec=spec, tpDegree=1)["allowed"]
    assert verdict(modelSpec={**spec, "activationCheckpointing": True}, tpDegree=1)["allowed"]


def test_a_rule_that_breaks_under_an_assumed_batch_is_a_warning() -> None:
    spec: dict[str, Any] = {"modelSpec": {"microBatchSize": 3}, "tpDegree": 8}
    assumed = verdict(**spec)
    assert assumed["allowed"]
    assert any("global batch size assumed" in each for each in assumed["warnings"])
    stated = verdict({"global-batch-size": "64"}, **spec)
    assert [field for field, _ in causes(stated)] == ["spec.modelSpec.microBatchSize"]


def test_a_rule_of_the_framework_holds_where_it_is_named() -> None:
    spec: dict[str, Any] = {"model": "llama-3-8b", "tpDegree": 1, "ppDegree": 8}
    named = verdict({"framework": "composer"}, **spec)
    assert causes(named)[0][0] == "spec.ppDegree"


def test_a_job_that_mostly_waits_for_the_network_is_told() -> None:
    """The reference refuses it; the job may know better."""
    answer = verdict(
        {"fabric": '{"bytes_per_second_per_gpu": 1e9}', "global-batch-size": "64"},
        numNodes=8,
        tpDegree=1,
    )
    assert answer["allowed"]
    assert any(each.startswith("communication-bound") for each in answer["warnings"])
