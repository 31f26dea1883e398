"""What admission does with `training.vsr.dev` TrainJobs, with the built-in catalog and planner."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from app.admission.decide import mutate
from app.admission.review import MalformedReview, parse_review
from tests.kubeflow.reviews import answered, stored
from tests.vsr.reviews import auto_job, manual_job, review_of, shipped

QUEUE = {"kueue.x-k8s.io/queue-name": "research"}
PINS = "training.vsr.dev/pins"


def admitted(job: dict[str, Any], **request: Any) -> dict[str, Any]:
    """The job as it is stored."""
    review = review_of(job, **request)
    response = answered(review, shipped())
    assert response["allowed"], response
    return stored(review, response)


def patch_of(job: dict[str, Any], old: dict[str, Any] | None = None, **request: Any) -> list[Any]:
    """The patch of a review, empty if there is none."""
    response = answered(review_of(job, old, **request), shipped())
    assert response["allowed"], response
    return response.get("patch", [])


def denial(job: dict[str, Any], *, door: str = "mutate", old: Any = None) -> dict[str, Any]:
    """The status of a refusal."""
    response = answered(review_of(job, old), shipped(), door=door)
    assert not response["allowed"]
    assert "patch" not in response
    return response["status"]


def test_a_plan_overwrites_what_the_author_set_and_says_so() -> None:
    job = auto_job(tpDegree=8, ppDegree=4, precision="fp32")
    response = answered(review_of(job), shipped())
    spec = stored(review_of(job), response)["spec"]
    assert spec["tpDegree"] * spec["ppDegree"] <= 8
    assert spec["precision"] == "bf16"
    assert any("pin to keep" in each for each in response["warnings"])


def test_pins_keep_the_degrees_of_the_author() -> None:
    job = auto_job()
    job["metadata"]["annotations"] = {PINS: '{"tp": 4, "recompute": "full"}'}
    spec = admitted(job)["spec"]
    assert spec["tpDegree"] == 4
    assert spec["modelSpec"]["activationCheckpointing"] is True


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {"precision": "bf16", "cpDegree": 1}),
        ({"precision": "fp32"}, {"precision": "fp32"}),
        ({"nodeSelector": {"nvidia.com/gpu.product": "Tesla-T4"}}, {"precision": "fp16"}),
        (
            {"checkpoint": {"enabled": True, "storagePath": "/c"}},
            {
                "checkpoint": {
                    "enabled": True,
                    "storagePath": "/c",
                    "intervalMinutes": 30,
                    "retainCount": 3,
                }
            },
        ),
        ({"checkpoint": {"enabled": False}}, {"checkpoint": {"enabled": False}}),
    ],
    ids=["layout", "kept", "no-bf16", "checkpoint", "no-checkpoint"],
)
def test_defaults(spec: dict[str, Any], expected: dict[str, Any]) -> None:
    result = admitted(manual_job(**spec))["spec"]
    assert {name: result[name] for name in expected} == expected
    assert (result["tpDegree"], result["ppDegree"]) == (2, 1)


@pytest.mark.parametrize(
    ("labels", "suspend", "expected"),
    [(QUEUE, None, True), (QUEUE, False, False), (QUEUE, True, True), ({}, None, None)],
)
def test_a_queued_job_starts_suspended(labels: Any, suspend: Any, expected: Any) -> None:
    job = manual_job() if suspend is None else manual_job(suspend=suspend)
    job["metadata"]["labels"] = labels
    assert admitted(job)["spec"].get("suspend") == expected


@pytest.mark.parametrize("annotations", [None, {}, {"a/b~c": "x"}], ids=["absent", "empty", "keys"])
@pytest.mark.parametrize(
    "env", [None, [], [{"name": "A", "value": "1"}]], ids=["absent", "empty", "items"]
)
@pytest.mark.parametrize("shape", [None, {}, {"seqLen": 4096}], ids=["absent", "empty", "seqLen"])
def test_missing_parents_are_made(annotations: Any, env: Any, shape: Any) -> None:
    job = auto_job()
    if annotations is not None:
        job["metadata"]["annotations"] = annotations
    if env is not None:
        job["spec"]["env"] = env
    if shape is not None:
        job["spec"]["modelSpec"] = shape
    result = admitted(job)
    assert result["metadata"]["annotations"].items() >= (annotations or {}).items()
    assert result["spec"]["env"][: len(env or [])] == (env or [])
    assert result["spec"]["modelSpec"].items() >= (shape or {}).items()
    assert patch_of(result) == []


def test_a_variable_of_the_author_is_never_doubled_nor_changed() -> None:
    env = [{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "NCCL_DEBUG", "value": "TRACE"}]
    listed = admitted(auto_job(env=env))["spec"]["env"]
    assert [each for each in listed if each["name"] == "NCCL_DEBUG"] == env


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "llama-9"}, "not in the catalog"),
        ({"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H300"}}, "NVIDIA-H300"),
        ({"nodeSelector": {}}, "spec.nodeSelector"),
        ({"model": "llama-3-405b"}, "would fit"),
    ],
    ids=["model", "gpu", "no-gpu", "nothing-fits"],
)
def test_a_job_that_cannot_be_planned_is_told_why(change: dict[str, Any], words: str) -> None:
    status = denial(auto_job(**change))
    assert status["code"] == 422
    assert words in status["message"]
    assert status["details"]["causes"]


def test_a_refusal_names_what_was_assumed_and_the_annotations_that_help() -> None:
    """What a manifest says by annotations is planned, and a refusal says which."""
    job = auto_job(model="llama-3-70b")
    status = denial(job)
    messages = [each["message"] for each in status["details"]["causes"]]
    assumed = "assuming full training with AdamW"
    assert f"{assumed}; annotation `training.vsr.dev/task: lora` says otherwise" in messages
    helps = [each for each in messages if "annotation `training.vsr.dev/o" in each]
    assert len(helps) == 2
    for remedy in helps:
        name, value = remedy.split("`")[1].split(": ")
        job["metadata"]["annotations"] = {name: value}
        assert answered(review_of(job), shipped())["allowed"], remedy
    job["metadata"]["annotations"] = {"training.vsr.dev/task": "lora"}
    assert answered(review_of(job), shipped())["allowed"]
    tight = auto_job(model="llama-3-405b")
    tight["metadata"]["annotations"] = {"training.vsr.dev/task": "lora"}
    assert assumed not in denial(tight)["message"]


def test_a_refusal_tells_of_the_annotation_that_was_misspelt() -> None:
    """The job never comes to /validate, and the slip may be what it is refused for."""
    job = auto_job(model="llama-3-70b")
    job["metadata"]["annotations"] = {"training.vsr.dev/taks": "lora"}
    for model in ("llama-3-70b", "llama-9"):
        job["spec"]["model"] = model
        response = answered(review_of(job), shipped())
        assert not response["allowed"]
        assert [
            "did you mean `training.vsr.dev/task`" in each for each in response["warnings"]
        ] == [True]


def test_a_planned_job_that_is_scaled_is_told_to_be_made_anew() -> None:
    job = admitted(auto_job())
    scaled = copy.deepcopy(job)
    scaled["spec"]["numNodes"] = 2
    (cause,) = denial(scaled, door="validate", old=job)["details"]["causes"]
    assert cause["field"] == "spec.numNodes"
    assert "plan of this job is for 8 GPUs" in cause["message"]
    assert "delete the job and create it anew" in cause["message"]
    assert answered(review_of(admitted(scaled)), shipped(), door="validate")["allowed"]


@pytest.mark.parametrize("door", ["mutate", "validate"])
@pytest.mark.parametrize(
    "request_",
    [
        {"subResource": "status"},
        {"operation": "DELETE", "object": None},
        {"operation": "CONNECT"},
    ],
    ids=["status", "delete", "connect"],
)
def test_other_requests_pass(door: str, request_: dict[str, Any]) -> None:
    job = auto_job(tpDegree=-1)
    review = review_of(job, job, **request_)
    response = answered(review, shipped(), door=door)
    assert response["allowed"]
    assert "patch" not in response


@pytest.mark.parametrize("door", ["mutate", "validate"])
def test_a_job_being_deleted_passes(door: str) -> None:
    job = auto_job(tpDegree=-1, image="")
    job["metadata"]["deletionTimestamp"] = "2026-11-30T00:00:00Z"
    response = answered(review_of(job, job), shipped(), door=door)
    assert response["allowed"]
    assert "patch" not in response


def test_updates_that_keep_our_variables_get_no_patch() -> None:
    old = admitted(auto_job())
    for change in (
        {"suspend": False},
        {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}},
        {"tpDegree": 1},
        {"env": [{"name": "MINE", "value": "1"}, *old["spec"]["env"]]},
    ):
        new = copy.deepcopy(old)
        new["spec"].update(change)
        assert patch_of(new, old) == []


@pytest.mark.parametrize("field", ["tpDegree", "ppDegree", "numNodes"])
def test_a_running_job_keeps_its_layout(field: str) -> None:
    old = admitted(manual_job(numNodes=2))
    old["status"] = {"phase": "Running"}
    new = copy.deepcopy(old)
    new["spec"][field] = 4
    assert f"spec.{field}" in denial(new, door="validate", old=old)["message"]
    queue = copy.deepcopy(old)
    queue["spec"]["suspend"] = True
    assert answered(review_of(queue, old), shipped(), door="validate")["allowed"]


def test_a_dry_run_is_answered_alike() -> None:
    job = auto_job()
    assert patch_of(job, dryRun=True) == patch_of(job) == patch_of(job)


def test_a_generated_name_is_no_obstacle() -> None:
    job = auto_job()
    job["metadata"] = {"generateName": "job-", "namespace": "research"}
    assert patch_of(job)


@pytest.mark.parametrize(
    "named",
    [
        {"kind": {"group": "training.vsr.dev", "version": "v1beta1", "kind": "TrainJob"}},
        {"kind": {"group": "training.vsr.dev", "version": "v1alpha1", "kind": "Other"}},
        {"kind": {"group": "", "version": "v1", "kind": "Pod"}},
    ],
    ids=["version", "kind", "pod"],
)
def test_what_we_do_not_serve_is_untouched(named: dict[str, Any]) -> None:
    assert patch_of(auto_job(), **named) == []


def test_an_excluded_namespace_is_untouched() -> None:
    assert patch_of(auto_job(), namespace="kube-system") == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "must be JSON"),
        (b"[]", "must be an AdmissionReview"),
        (b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"}', "v1"),
        (json.dumps(review_of({}, uid="")).encode(), "request.uid"),
        (json.dumps(review_of({}, operation="PATCH")).encode(), "CREATE"),
        (json.dumps(review_of({}, object=[])).encode(), "request.object"),
    ],
    ids=["text", "list", "v1beta1", "uid", "operation", "object"],
)
def test_a_malformed_review_is_named(body: bytes, words: str) -> None:
    with pytest.raises(MalformedReview, match=words.replace(".", r"\.")):
        parse_review(body)


@pytest.mark.parametrize("framework", ["fsdp", "megatron", "deepspeed", "composer"])
@pytest.mark.parametrize("model", ["llama-3-8b", "mixtral-8x7b", "qwen3-30b-a3b", "llama-3-70b"])
@pytest.mark.parametrize("nodes", [8, 32])
def test_our_own_plans_pass_validation(framework: str, model: str, nodes: int) -> None:
    job = auto_job(model=model, numNodes=nodes)
    job["metadata"]["annotations"] = {"training.vsr.dev/framework": framework}
    decision = mutate(parse_review(json.dumps(review_of(job)).encode()), shipped())
    if decision.outcome == "denied":
        assert decision.reason == "infeasible"
        return
    result = admitted(job)
    assert patch_of(result) == []
    verdict = answered(review_of(result), shipped(), door="validate")
    assert verdict["allowed"], verdict


def test_a_slip_of_the_pen_is_told() -> None:
    """A name nobody reads gets a warning: of the spec if it is nearly one of ours, else of ours."""
    job = manual_job(autoparallelism=True, seed=1)
    del job["spec"]["autoParallelism"]
    job["metadata"]["annotations"] = {
        "training.vsr.dev/seqence-length": "4096",
        "training.vsr.dev/owner": "ann",
    }
    told = " ".join(answered(review_of(job), shipped(), door="validate")["warnings"])
    assert "did you mean `autoParallelism`" in told
    assert "did you mean `training.vsr.dev/sequence-length`" in told
    assert "nothing reads `training.vsr.dev/owner`; training.vsr.dev/ has" in told
    assert "seed" not in told


@pytest.mark.parametrize("phase", [["Running"], {"Running": 1}, None, 1])
@pytest.mark.parametrize("door", ["mutate", "validate"])
def test_a_phase_that_is_no_text_is_no_running_job(door: str, phase: Any) -> None:
    old = {**manual_job(), "status": {"phase": phase}}
    assert answered(review_of(manual_job(numNodes=2), old), shipped(), door=door)["allowed"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("fabric", '{"bytes_per_second_per_gpu": 1e-320}', "bytes_per_second_per_gpu"),
        ("pins", '{"tp": "\\ud800"}', "pins"),
    ],
    ids=["no-rate", "lone-surrogate"],
)
def test_hostile_annotations_are_refused_with_a_reason(name: str, text: str, words: str) -> None:
    """Each of these was a 500 once."""
    job = auto_job(numNodes=4)
    job["metadata"]["annotations"] = {f"training.vsr.dev/{name}": text}
    assert words in denial(job)["message"]


@pytest.mark.parametrize(
    "plan", ['{"filled":{"x":1%s}}' % ("0" * 400), '{"layout":{"dp":1%s}}' % ("0" * 400)]
)
def test_a_forged_plan_is_no_fault_of_ours(plan: str) -> None:
    job = manual_job()
    job["metadata"]["annotations"] = {"training.vsr.dev/plan": plan}
    for door in ("mutate", "validate"):
        assert "allowed" in answered(review_of(job), shipped(), door=door)


def test_a_name_has_a_bound() -> None:
    """Plans keep the name, so a long one would fill the cache."""
    assert "253 characters" in denial(auto_job(model="x" * 1000))["message"]
