"""Rules of a `training.vsr.dev` TrainJob, a row each, and all errors at once."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import pytest

from app.planner.hardware import MAX_NODES
from app.trainjobs import misspelt
from app.trainjobs.misspelt import CHECKED_NAMES, meant
from app.trainjobs.vsr_rules import (
    LISTED_ENTRIES,
    duration_seconds,
    job_errors,
    job_warnings,
)
from tests.vsr.reviews import auto_job, manual_job

PREFIX = "training.vsr.dev/"


def noted(job: dict[str, Any], **notes: Any) -> dict[str, Any]:
    """The job with annotations of ours, `_` standing for `-`."""
    job["metadata"]["annotations"] = {
        PREFIX + name.replace("_", "-"): value for name, value in notes.items()
    }
    return job


def paths(job: dict[str, Any]) -> list[str]:
    """Where the job is wrong."""
    return [each.path for each in job_errors(job)]


def test_an_ordinary_job_has_no_errors() -> None:
    assert job_errors(manual_job()) == job_errors(auto_job()) == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", ""),
        ("model", 8),
        ("model", None),
        ("image", " "),
        ("image", None),
        ("numNodes", 0),
        ("numNodes", "2"),
        ("numNodes", True),
        ("numNodes", 10**30),
        ("numNodes", 2.5),
        ("gpusPerNode", 6),
        ("gpusPerNode", 0),
        ("tpDegree", 0),
        ("tpDegree", None),
        ("tpDegree", -2),
        ("tpDegree", 3),
        ("ppDegree", 0),
        ("cpDegree", -1),
        ("cpDegree", "1"),
        ("precision", "int4"),
        ("precision", 8),
        ("autoParallelism", "true"),
        ("modelSpec", [1]),
        ("nodeSelector", {"a": 1}),
        ("checkpoint", "on"),
        ("maxRuntime", "soon"),
        ("maxRuntime", "-5m"),
        ("maxRuntime", 36),
        ("command", "torchrun"),
        ("args", [1]),
        ("env", {"A": "1"}),
        ("env", ["A=1"]),
        ("suspend", "no"),
        ("skipProlog", 1),
        ("metricsConfig", True),
    ],
)
def test_a_wrong_field_is_named(field: str, value: Any) -> None:
    assert f"spec.{field}" in paths(manual_job(**{field: value}))


@pytest.mark.parametrize(
    ("parent", "field", "value"),
    [
        ("modelSpec", "paramsBillions", -1),
        ("modelSpec", "paramsBillions", 1e300),
        ("modelSpec", "hiddenDim", 1.5),
        ("modelSpec", "numLayers", -4),
        ("modelSpec", "seqLen", 2**60),
        ("modelSpec", "microBatchSize", -1),
        ("modelSpec", "activationCheckpointing", 1),
        ("checkpoint", "enabled", "yes"),
        ("checkpoint", "intervalMinutes", -1),
        ("checkpoint", "storagePath", 3),
        ("checkpoint", "retainCount", 1.5),
    ],
)
def test_a_wrong_inner_field_is_named(parent: str, field: str, value: Any) -> None:
    assert paths(manual_job(**{parent: {field: value}})) == [f"spec.{parent}.{field}"]


def test_all_errors_come_at_once() -> None:
    job = manual_job(
        image="",
        gpusPerNode=6,
        tpDegree=4,
        precision="int4",
        maxRuntime="2h",
        env=[{"value": "1"}, {"name": "A", "value": 3}],
    )
    assert paths(job) == [
        "spec.image",
        "spec.precision",
        "spec.gpusPerNode",
        "spec.tpDegree",
        "spec.checkpoint.enabled",
        "spec.env[0].name",
        "spec.env[1].value",
    ]


def test_degrees_must_divide_the_gpus_and_are_said() -> None:
    (error,) = job_errors(manual_job(numNodes=3, tpDegree=8, ppDegree=2, cpDegree=1))
    assert "8 * 2 * 1 = 16" in error.message
    assert "24 GPUs" in error.message


@pytest.mark.parametrize(
    ("runtime", "checkpoint", "expected"),
    [
        ("1h", {"enabled": False}, []),
        ("61m", {"enabled": False}, ["enabled"]),
        ("61m", {"enabled": True, "storagePath": "/c"}, ["intervalMinutes"]),
        ("61m", {"enabled": True, "storagePath": "/c", "intervalMinutes": 0}, ["intervalMinutes"]),
        ("61m", {"enabled": True, "storagePath": "/c", "intervalMinutes": 5}, []),
        ("10m", {"enabled": True, "storagePath": ""}, ["storagePath"]),
        ("10m", {"enabled": True}, ["storagePath"]),
    ],
)
def test_long_runs_checkpoint(runtime: str, checkpoint: Any, expected: list[str]) -> None:
    job = manual_job(maxRuntime=runtime, checkpoint=checkpoint)
    assert paths(job) == [f"spec.checkpoint.{name}" for name in expected]


def test_what_our_own_pass_fills_in_is_not_missed_before_it() -> None:
    job = auto_job(maxRuntime="36h", checkpoint={"enabled": True, "storagePath": "/c"})
    assert job_errors(job) == ()
    assert any("/mutate" in each for each in job_warnings(job))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("168h0m0s", 604800.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("-90s", -90.0),
        ("100ms", 0.1),
        ("0", 0.0),
        ("", None),
        ("h", None),
        ("1", None),
        ("1d", None),
        ("1h ", None),
        ("٣h", None),
        ("9" * 100 + "h", None),
        (5, None),
    ],
)
def test_durations_are_those_of_go(text: Any, seconds: float | None) -> None:
    found = duration_seconds(text)
    assert found == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("notes", "path"),
    [
        ({"sequence_length": "4k"}, f"metadata.annotations[{PREFIX}sequence-length]"),
        ({"sequence_length": "0"}, f"metadata.annotations[{PREFIX}sequence-length]"),
        ({"global_batch_size": "-8"}, f"metadata.annotations[{PREFIX}global-batch-size]"),
        ({"global_batch_size": "9" * 5000}, f"metadata.annotations[{PREFIX}global-batch-size]"),
        ({"task": "LoRA"}, f"metadata.annotations[{PREFIX}task]"),
        ({"lora_rank": "65537"}, f"metadata.annotations[{PREFIX}lora-rank]"),
        ({"lora_rank": "r16"}, f"metadata.annotations[{PREFIX}lora-rank]"),
        ({"optimizer": "adam"}, f"metadata.annotations[{PREFIX}optimizer]"),
        ({"offload": "true"}, f"metadata.annotations[{PREFIX}offload]"),
        ({"fabric": "{"}, f"metadata.annotations[{PREFIX}fabric]"),
        ({"pins": "tp=8"}, f"metadata.annotations[{PREFIX}pins]"),
        ({"pins": "[8]"}, f"metadata.annotations[{PREFIX}pins]"),
        ({"pins": "[" * 100_000}, f"metadata.annotations[{PREFIX}pins]"),
        ({"pins": '{"tp": 0}'}, f"metadata.annotations[{PREFIX}pins].tp"),
        ({"pins": '{"tensor": 8}'}, f"metadata.annotations[{PREFIX}pins].tensor"),
        ({"pins": '{"recompute": "some"}'}, f"metadata.annotations[{PREFIX}pins].recompute"),
        ({"pins": '{"dp_shard": 1.5}'}, f"metadata.annotations[{PREFIX}pins].dp_shard"),
    ],
)
def test_a_wrong_annotation_is_named(notes: dict[str, str], path: str) -> None:
    assert paths(noted(auto_job(), **notes)) == [path]


@pytest.mark.parametrize(
    "notes",
    [
        {"sequence_length": "4096", "global_batch_size": "512"},
        {"fabric": "infiniband-400"},
        {"task": "qlora", "lora_rank": "64", "optimizer": "adamw_8bit", "offload": "optimizer"},
        {"fabric": '{"bytes_per_second_per_gpu": 5e10}'},
        {"pins": '{"tp": 8, "precision": "bf16", "sequence_parallel": true}'},
        {"pins": ""},
    ],
)
def test_a_right_annotation_is_no_error(notes: dict[str, str]) -> None:
    assert paths(noted(auto_job(), **notes)) == []


def test_two_sequence_lengths_must_agree() -> None:
    job = noted(auto_job(modelSpec={"seqLen": 8192}), sequence_length="4096")
    assert paths(job) == [f"metadata.annotations[{PREFIX}sequence-length]"]
    assert paths(noted(auto_job(modelSpec={"seqLen": 4096}), sequence_length="4096")) == []


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (manual_job(precision="fp32"), "fp32"),
        (manual_job(skipProlog=True, numNodes=65), "skipProlog"),
        (manual_job(env=[{"name": "A", "value": "1"}] * 2), "more than once"),
        (manual_job(env=[{"name": "TP_DEGREE", "value": "4"}]), "TP_DEGREE"),
        (noted(manual_job(), pins='{"tp": 8}'), "no effect"),
        (noted(manual_job(), global_batchsize="7"), f"did you mean `{PREFIX}global-batch-size`"),
        (noted(manual_job(), taks="lora"), f"did you mean `{PREFIX}task`"),
        (noted(manual_job(), owner="ann"), f"nothing reads `{PREFIX}owner`; {PREFIX} has"),
    ],
)
def test_a_warning_is_no_error(job: dict[str, Any], words: str) -> None:
    assert job_errors(job) == ()
    assert any(words in each for each in job_warnings(job))


@pytest.mark.parametrize(
    "job",
    [
        manual_job(),
        manual_job(skipProlog=True, numNodes=64),
        noted(manual_job(), pins="not json"),
        noted(manual_job(), plan="not json"),
        noted(manual_job(), task="lora", plan_result="not json"),
        noted(manual_job(), plan="[" * 100_000),
        manual_job(env="text"),
        manual_job(env=["A=1", {"name": 3}]),
    ],
)
def test_most_jobs_get_no_warning(job: dict[str, Any]) -> None:
    assert job_warnings(job) == ()


def test_a_flood_is_answered_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of hundreds of thousands of wrong entries or names only the first are looked up."""
    looked_up: list[str] = []

    def near(name: str, *rest: Any) -> list[str]:
        looked_up.append(name)
        return get_close_matches(name, *rest)

    monkeypatch.setattr(misspelt, "get_close_matches", near)
    meant.cache_clear()
    job = manual_job(env=[{"name": 1}] * 200_000)
    job["spec"].update({f"modl{index}": 1 for index in range(100_000)})
    assert len(job_errors(job)) == LISTED_ENTRIES
    assert len(job_warnings(job)) <= CHECKED_NAMES
    assert len(looked_up) <= CHECKED_NAMES


@pytest.mark.parametrize(("field", "most"), [("numNodes", MAX_NODES), ("gpusPerNode", 8)])
def test_no_job_is_larger_than_what_can_be_planned(field: str, most: int) -> None:
    """The same number at every door: a job that is let in by the rules has an answer."""
    assert not job_errors(auto_job(**{field: most}))
    (error, *_) = job_errors(auto_job(**{field: most + 1}))
    assert error.path == f"spec.{field}"
