"""What the adapter of `training.vsr.dev` reads and writes, with the real planner and catalog."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml

from app.trainjobs.adapter import JobReview, Skip, WantsPlan
from app.trainjobs.vsr import VsrAdapter
from app.trainjobs.vsr_rules import OPERATOR_VARIABLES
from tests.kubeflow.reviews import answered, stored
from tests.kubeflow.schema import without_zero_values
from tests.vsr.reviews import auto_job, manual_job, review_of, shipped
from tests.vsr.schema import problems

ADAPTER = VsrAdapter()
PREFIX = "training.vsr.dev/"
SHAPE = {
    "paramsBillions": 22.4,
    "hiddenDim": 6144,
    "numLayers": 44,
    "numHeads": 48,
    "numKVHeads": 8,
    "seqLen": 8192,
    "microBatchSize": 1,
}


def review(job: dict[str, Any], old: dict[str, Any] | None = None, **given: Any) -> JobReview:
    """A review as the adapter sees it."""
    operation = "CREATE" if old is None else "UPDATE"
    return JobReview(**{"operation": operation, "job": job, "old": old, "namespace": "n", **given})


def wanted(job: dict[str, Any]) -> Any:
    """The intent of a job that asks for a plan."""
    wish = ADAPTER.wish(review(job))
    assert isinstance(wish, WantsPlan)
    return wish.intent


def created(job: dict[str, Any]) -> dict[str, Any]:
    """The job as it is stored."""
    response = answered(review_of(job), shipped())
    assert response["allowed"], response
    return stored(review_of(job), response)


def notes(job: dict[str, Any]) -> dict[str, str]:
    """Our annotations of a stored job by their short names."""
    listed = job["metadata"].get("annotations", {})
    return {name.removeprefix(PREFIX): value for name, value in listed.items()}


def variables(job: dict[str, Any]) -> dict[str, str]:
    """Environment of a stored job; no name stands there twice."""
    listed = job["spec"].get("env", [])
    assert len({each["name"] for each in listed}) == len(listed)
    return {each["name"]: each["value"] for each in listed}


def test_an_intent_holds_what_the_job_says() -> None:
    job = auto_job(modelSpec=SHAPE, numNodes=4)
    job["metadata"]["annotations"] = {
        PREFIX + "global-batch-size": "1024",
        PREFIX + "task": "lora",
        PREFIX + "lora-rank": "64",
        PREFIX + "optimizer": "adamw_8bit",
        PREFIX + "offload": "optimizer",
        PREFIX + "framework": "megatron",
        PREFIX + "fabric": '{"bytes_per_second_per_gpu": 5e10}',
        PREFIX + "pins": '{"tp": 2}',
    }
    intent = wanted(job)
    assert intent.model == "llama-3-8b"
    assert intent.architecture == {
        "params": 22_400_000_000,
        "hidden_size": 6144,
        "num_layers": 44,
        "num_heads": 48,
        "num_kv_heads": 8,
    }
    assert (intent.nodes, intent.gpus_per_node) == (4, 8)
    assert (intent.sequence_length, intent.global_batch_size) == (8192, 1024)
    assert (intent.task, intent.lora_rank) == ("lora", 64)
    assert (intent.optimizer, intent.offload) == ("adamw_8bit", "optimizer")
    assert (intent.framework, intent.pins) == ("megatron", {"tp": 2})
    assert intent.fabric == {"bytes_per_second_per_gpu": 5e10}
    assert intent.node_labels == job["spec"]["nodeSelector"]


@pytest.mark.parametrize(
    ("shape", "architecture", "sequence_length"),
    [
        ({}, None, None),
        ({"seqLen": 4096, "microBatchSize": 2, "activationCheckpointing": True}, None, 4096),
        (dict.fromkeys(SHAPE, 0), None, None),
        ({"numHeads": 4}, {"num_heads": 4, "num_kv_heads": 4}, None),
        (
            {"numHeads": 8, "numKVHeads": 0, "paramsBillions": 0.5},
            {"params": 500_000_000, "num_heads": 8, "num_kv_heads": 8},
            None,
        ),
    ],
)
def test_zero_is_an_unset_field(shape: Any, architecture: Any, sequence_length: Any) -> None:
    intent = wanted(auto_job(modelSpec=shape))
    assert intent.architecture == architecture
    assert intent.sequence_length == sequence_length


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"subresource": "status"}, "subresource"),
        ({"operation": "DELETE"}, "not-a-creation"),
        ({"operation": "UPDATE"}, "not-a-creation"),
        ({"job": {"metadata": {"deletionTimestamp": "now"}, "spec": {"a": 1}}}, "deleting"),
        ({"job": {"spec": "text"}}, "no-spec"),
        ({"job": {}}, "no-spec"),
    ],
)
def test_reasons_to_skip(given: dict[str, Any], reason: str) -> None:
    wish = ADAPTER.wish(review(given.pop("job", auto_job()), **given))
    assert isinstance(wish, Skip)
    assert wish.reason == reason


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [(False, True, True), (True, True, False), (True, False, False), (False, False, False)],
)
def test_an_update_that_asks_for_a_plan_is_told_it_is_late(
    before: bool, now: bool, told: bool
) -> None:
    job, old = auto_job(autoParallelism=now), auto_job(autoParallelism=before)
    wish = ADAPTER.wish(review(job, old))
    assert isinstance(wish, Skip)
    assert bool(wish.warnings) == told


@pytest.mark.parametrize(
    "job",
    [
        auto_job(),
        auto_job(modelSpec={"seqLen": 4096}),
        auto_job(checkpoint={"enabled": True, "storagePath": "/c"}),
    ],
)
def test_a_planned_job_satisfies_the_operators_own_schema(job: dict[str, Any]) -> None:
    """kubernetes-sigs/kueue#14722: no field is unknown to the schema, and none is missing."""
    assert problems(created(job)) == []


def test_what_we_filled_in_is_not_read_as_the_authors() -> None:
    stored_job = created(auto_job())
    assert wanted(stored_job) == wanted(auto_job())
    other = copy.deepcopy(stored_job)
    other["spec"]["model"] = "qwen2.5-7b"
    again = created(other)
    assert again["spec"]["modelSpec"]["numLayers"] == 28
    assert json.loads(notes(again)["plan"])["model"] == "qwen2.5-7b"


def test_a_value_the_author_changes_afterwards_is_the_authors() -> None:
    job = created(auto_job())
    job["spec"]["modelSpec"]["seqLen"] = 4096
    assert wanted(job).sequence_length == 4096


def test_a_copy_of_a_planned_job_gets_a_plan_of_its_own() -> None:
    """A manifest exported from the cluster and created again: nothing of the old plan remains."""
    copied = created(auto_job())
    copied["metadata"] = {
        "name": "copy",
        "namespace": "research",
        "annotations": copied["metadata"]["annotations"] | {PREFIX + "global-batch-size": "64"},
    }
    again = created(copied)
    fresh = auto_job()
    fresh["metadata"]["annotations"] = {PREFIX + "global-batch-size": "64"}
    assert variables(again) == variables(created(fresh))
    assert notes(again) == notes(created(fresh))
    assert again["spec"]["tpDegree"] == created(fresh)["spec"]["tpDegree"]


def test_variables_the_operator_sets_are_left_to_it() -> None:
    assert not variables(created(auto_job())).keys() & OPERATOR_VARIABLES


@pytest.mark.parametrize("listed", ["not json", "{}", "[3]", '[{"name": 1}]', '[{"name": "A"}]'])
def test_a_damaged_list_of_variables_is_not_believed(listed: str) -> None:
    job = auto_job(env=[{"name": "NCCL_DEBUG", "value": "TRACE"}])
    job["metadata"]["annotations"] = {PREFIX + "environment": listed}
    assert variables(created(job))["NCCL_DEBUG"] == "TRACE"


def test_annotations_say_what_was_set_and_why() -> None:
    job = created(auto_job())
    listed = json.loads(notes(job)["environment"])
    assert {each["name"]: each["value"] for each in listed} == variables(job)
    assert all(each["reason"] and each["source"] for each in listed)
    assert not any(character in notes(job)["auto-parallelism-reason"] for character in "\n\r")
    recorded = json.loads(notes(job)["plan"])
    assert recorded["layout"]["tp"] == job["spec"]["tpDegree"]
    assert recorded["estimate"]["memory_bytes"] < recorded["estimate"]["gpu_memory_bytes"]


def test_no_empty_value_is_written() -> None:
    """kubeflow/trainer#3888: a typed client drops empty values, so none may come from us."""
    for job in (auto_job(), manual_job(checkpoint={"enabled": True, "storagePath": "/c"})):
        values = [each["value"] for each in answered(review_of(job), shipped())["patch"]]
        assert without_zero_values(values) == values


PHASES = ("", "Pending", "Suspended", "PrologRunning", "Running", "Checkpointing", "Failed")


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(
    "write",
    [
        {"suspend": False},
        {"suspend": True},
        {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}},
        {"suspend": False, "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"}},
    ],
    ids=["unsuspend", "suspend", "place", "both"],
)
def test_a_queue_starts_and_stops_a_job_at_any_phase(phase: str, write: dict[str, Any]) -> None:
    """kubernetes-sigs/kueue#2691, #8296: one call or two, nothing is patched or refused."""
    old = created(auto_job(numNodes=2))
    old["status"] = {"phase": phase}
    new = copy.deepcopy(old)
    new["spec"].update(write)
    for door in ("mutate", "validate"):
        response = answered(review_of(new, old), shipped(), door=door)
        assert response["allowed"]
        assert "patch" not in response


def test_an_operators_typed_write_is_no_change_of_the_layout() -> None:
    """Go drops `false` and 0; the job still says what it said."""
    old = created(auto_job(numNodes=8))
    new = copy.deepcopy(old)
    new["spec"]["modelSpec"] = {k: v for k, v in new["spec"]["modelSpec"].items() if v}
    new["metadata"]["finalizers"] = [PREFIX + "checkpoint-protection"]
    assert answered(review_of(new, old), shipped(), door="validate") == {
        "uid": review_of(new)["request"]["uid"],
        "allowed": True,
    }


def test_an_old_error_does_not_block_another_change() -> None:
    """A job that was let in before a rule existed can still be edited."""
    old = manual_job(image="", gpusPerNode=6, numNodes=1)
    new = copy.deepcopy(old)
    new["spec"]["env"] = [{"name": "A", "value": "1"}]
    assert answered(review_of(new, old), shipped(), door="validate")["allowed"]
    new["spec"]["precision"] = "int4"
    refused = answered(review_of(new, old), shipped(), door="validate")
    fields = [each["field"] for each in refused["status"]["details"]["causes"]]
    assert fields == ["spec.precision"]


@pytest.mark.parametrize("phase", ["Running", "Checkpointing"])
@pytest.mark.parametrize(
    ("field", "value"),
    [("tpDegree", 4), ("ppDegree", 2), ("cpDegree", 2), ("numNodes", 4), ("gpusPerNode", 4)],
)
def test_the_shape_of_a_running_job_is_frozen(phase: str, field: str, value: int) -> None:
    old = created(manual_job(numNodes=2))
    old["status"] = {"phase": phase}
    new = copy.deepcopy(old)
    new["spec"][field] = value
    refused = answered(review_of(new, old), shipped(), door="validate")
    assert refused["status"]["details"]["causes"][0]["field"] == f"spec.{field}"


def test_a_variable_that_contradicts_the_plan_is_told_without_its_value() -> None:
    job = created(auto_job(env=[{"name": "MICRO_BATCH_SIZE", "value": "77"}]))
    assert variables(job)["MICRO_BATCH_SIZE"] == "77"
    (told,) = [
        each
        for each in answered(review_of(job), shipped(), door="validate")["warnings"]
        if "MICRO_BATCH_SIZE" in each
    ]
    assert "77" not in told


@pytest.mark.parametrize(
    "layout",
    [{"tp": 2, "pp": 1, "junk": 1}, {"tp": "2", "pp": 1}, {"tp": 2, "pp": 1, "stage_layers": 3}],
)
def test_a_damaged_plan_is_not_believed(layout: dict[str, Any]) -> None:
    job = manual_job()
    job["metadata"]["annotations"] = {PREFIX + "plan": json.dumps({"layout": layout})}
    declared = ADAPTER.declared_layout(job)
    assert declared is not None
    assert declared.fields == {"tp": 2, "pp": 1}


def test_a_manifest_in_yaml_reads_the_same() -> None:
    job = yaml.safe_load(yaml.safe_dump(auto_job()))
    assert created(job) == created(auto_job())
