"""Problems that other webhooks had with TrainJobs, by the thread that tells them."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest

from tests.kubeflow.jobs import A100, PREFIX, env, env_of, job, patch, patched, worker
from tests.kubeflow.reviews import answered, fixed_deps, read_review, review_of, stored
from tests.kubeflow.schema import RELEASES, problems, without_zero_values

DEPS = fixed_deps()
CREATIONS = ("01", "02")


def replaced(review, created):
    """`review` of another object."""
    other = copy.deepcopy(review)
    other["request"]["object"] = created
    return other


@pytest.mark.parametrize("case", CREATIONS)
def test_a_second_call_adds_nothing(case):
    """kubernetes-sigs/kueue#15210: a defaulter that is called again appended its entry again."""
    review = read_review(case)
    first = answered(review, DEPS)
    second = answered(replaced(review, stored(review, first)), DEPS)
    assert first["patch"]
    assert "patch" not in second
    assert second["allowed"]


@pytest.mark.parametrize("case", CREATIONS)
def test_our_names_with_other_values_stay_the_authors(case):
    """kubernetes-sigs/kueue#15210, second half: no duplicate, and the author's value wins."""
    review = read_review(case)
    created = copy.deepcopy(review["request"]["object"])
    ours = env(TP_DEGREE="1", PRECISION="fp32", TORCH_NCCL_DUMP_ON_TIMEOUT="0")
    created["spec"]["trainer"]["env"] = ours
    changed = replaced(review, created)
    result = stored(changed, answered(changed, DEPS))
    assert result["spec"]["trainer"]["env"][:3] == ours
    assert len(env_of(result)) == len(result["spec"]["trainer"]["env"])


@pytest.mark.parametrize("case", CREATIONS)
def test_a_typed_client_writes_the_trainer_back_unchanged(case):
    """kubeflow/trainer#3888: zero values vanish in Kueue's write, and immutability refuses it."""
    review = read_review(case)
    trainer = stored(review, answered(review, DEPS))["spec"]["trainer"]
    assert without_zero_values(trainer) == trainer


def test_an_empty_value_in_a_queued_job_is_told_at_creation():
    """kubeflow/trainer#3888, as far as the author can prevent it."""
    created = job(
        trainer=worker(env=env(HF_TOKEN="")), labels={"kueue.x-k8s.io/queue-name": "gpus"}
    )
    warnings = answered(review_of(created), DEPS)["warnings"]
    assert any("HF_TOKEN has an empty value" in each for each in warnings)


@pytest.mark.parametrize(("case", "releases"), [("01", ("2.1",)), ("02", ("2.2", "2.3"))])
def test_no_field_that_a_release_lacks(case, releases):
    """kubernetes-sigs/kueue#14722, #11931: what a CRD does not have is dropped in silence."""
    review = read_review(case)
    result = stored(review, answered(review, DEPS))
    for release in releases:
        assert problems(review["request"]["object"], release) == []
        assert problems(result, release) == []


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_takes_the_patched_job(release):
    """kubernetes-sigs/kueue#14722, #11931."""
    review = review_of(job(release=release))
    assert problems(stored(review, answered(review, DEPS)), release) == []


@pytest.mark.parametrize("case", CREATIONS)
def test_unknown_fields_survive_at_every_level(case):
    """kubernetes-sigs/kueue#2878: fields newer than the webhook were removed."""
    review = read_review(case)
    created = copy.deepcopy(review["request"]["object"])
    for part in (created, created["metadata"], created["spec"], created["spec"]["trainer"]):
        part["x-new"] = {"deep": [None, "", {}, {"a/b~c": 1}]}
    response = answered(replaced(review, created), DEPS)
    result = stored(replaced(review, created), response)
    for part in (result, result["metadata"], result["spec"], result["spec"]["trainer"]):
        assert part["x-new"] == {"deep": [None, "", {}, {"a/b~c": 1}]}
    assert {each["op"] for each in response["patch"]} == {"add"}


def test_nothing_happens_outside_the_scope():
    """kubernetes-sigs/kueue#13374: defaults applied before the scope was looked at."""
    review = review_of(job())
    excluded = fixed_deps(excluded_namespaces=frozenset({"team"}))
    assert answered(review, excluded) == {"uid": review["request"]["uid"], "allowed": True}
    plain = copy.deepcopy(review)
    del plain["request"]["object"]["metadata"]["labels"]
    assert answered(plain, DEPS) == {"uid": review["request"]["uid"], "allowed": True}
    assert answered(plain, DEPS, door="validate")["allowed"]


PLACED = {"nodeSelector": {"nvidia.com/gpu.product": A100}}
KUEUE_PATCH = patch(PLACED, manager="kueue.x-k8s.io/manager")
EMPTY_PATCH = {
    "manager": "kueue.x-k8s.io/manager",
    "trainingRuntimeSpec": {"template": {"spec": {}}},
}


def phase(*, suspend, placed, status=None):
    """A planned job at one moment of its life."""
    now = patched(job(gpu_label=None, say={"model": "m", "gpu": "H100"}))
    now["spec"]["suspend"] = suspend
    now["spec"]["runtimePatches"] = [KUEUE_PATCH if placed else EMPTY_PATCH]
    if status:
        now["status"] = {"conditions": [{"type": status, "status": "True"}]}
    return now


WAITING = phase(suspend=True, placed=False)
RUNNING = phase(suspend=False, placed=True)


def untouched(new, old):
    """The mutating answer, after both doors let the update through without a patch."""
    review = review_of(new, old)
    response = answered(review, DEPS)
    for each in (response, answered(review, DEPS, door="validate")):
        assert each["allowed"]
        assert "patch" not in each
    return response


@pytest.mark.parametrize("status", [None, "Suspended", "Running", "Failed", "Complete"])
def test_eviction_is_let_through(status):
    """kubernetes-sigs/kueue#2691, jobset#624: the update that suspends a job was refused."""
    evicted = phase(suspend=True, placed=False, status=status)
    untouched(evicted, phase(suspend=False, placed=True, status=status))


@pytest.mark.parametrize(
    "moments",
    [
        (WAITING, phase(suspend=True, placed=True), RUNNING),
        (WAITING, phase(suspend=False, placed=False), RUNNING),
        (WAITING, RUNNING),
    ],
    ids=["patch, then unsuspend", "unsuspend, then patch", "both at once"],
)
def test_every_order_of_starting_a_job_is_let_through(moments):
    """kubernetes-sigs/kueue#8296, kubeflow/trainer#3043: the moment in between is visible."""
    for old, new in pairwise(moments):
        untouched(new, old)


def test_kueues_other_gpu_is_told_and_not_refused():
    """A flavor is chosen when the trainer can no longer change."""
    (warning,) = untouched(RUNNING, WAITING)["warnings"]
    assert A100 in warning


def test_the_removal_of_a_finalizer_is_let_through_whatever_the_spec():
    """ome-projects/ome#846 and others: a refused update leaves an object terminating for ever."""
    broken = job(trainer=worker(numNodes=-1, env=env(TP_DEGREE="x")))
    broken["metadata"]["deletionTimestamp"] = "2026-07-19T02:44:58Z"
    untouched(broken, broken)


@pytest.mark.parametrize(
    ("resources", "processes", "told"),
    [
        ({"limits": {"nvidia.com/gpu": "8"}}, 8, ""),
        ({"limits": {"nvidia.com/gpu": 8}, "requests": {"cpu": 64}}, 8, ""),
        ({"limits": {"nvidia.com/gpu": 8, "nvidia.com/gpumem": 40000}}, None, "gpumem"),
        ({"limits": {"memory": "1Ti"}}, None, "training.vsr.dev/gpus-per-node"),
        ({"limits": {"nvidia.com/mig-3g.40gb": 8}}, None, "training.vsr.dev/gpus-per-node"),
        (None, None, "training.vsr.dev/gpus-per-node"),
    ],
)
def test_processes_only_from_a_certain_count(resources, processes, told):
    """kubeflow/trainer PR #3974, NVIDIA/aicr#2280: four GPUs, one process."""
    review = review_of(job(trainer=worker(resourcesPerNode=resources)))
    response = answered(review, DEPS)
    assert response["allowed"]
    assert stored(review, response)["spec"]["trainer"].get("numProcPerNode") == processes
    assert told in " ".join(response["warnings"])


@pytest.mark.parametrize("stated", [None, {}, {"a/b": "1", "c~d": "2"}])
@pytest.mark.parametrize("listed", [None, [], env(A="1")])
def test_missing_parents_are_created_and_present_ones_kept(stated, listed):
    """kubernetes/kubernetes#129459: a missing parent fails the request even under Ignore."""
    created = job(trainer=worker(env=listed), gpu_label=None, say={"model": "m", "gpu": "H100"})
    ours = created["metadata"]["annotations"]
    created["metadata"]["annotations"] = {**ours, **(stated or {})}
    review = review_of(created)
    result = stored(review, answered(review, DEPS))
    assert result["metadata"]["annotations"].items() >= {**ours, **(stated or {})}.items()
    assert result["spec"]["trainer"]["env"][: len(listed or [])] == (listed or [])


@pytest.mark.parametrize("trainer", [None, "odd", {}])
def test_a_trainer_that_is_absent_or_bare_is_not_made_up(trainer):
    """Trainer sets its torch variables only for a job that has a trainer."""
    created = job(trainer=trainer)
    review = review_of(created)
    response = answered(review, DEPS)
    assert response["allowed"]
    assert "patch" not in response
    assert response["warnings"]


@pytest.mark.parametrize("case", ["04", "06"])
def test_recorded_updates_get_no_patch(case):
    response = answered(read_review(case), DEPS)
    assert response["allowed"]
    assert "patch" not in response
    warnings = " ".join(response.get("warnings", []))
    assert (A100 in warnings) == (case == "04")


def test_the_debug_level_of_the_author_stays():
    review = read_review("01")
    assert env_of(stored(review, answered(review, DEPS)))["NCCL_DEBUG"] == "INFO"


def test_every_error_of_a_new_job_is_listed_at_once():
    created = job(
        trainer=worker(numNodes=0, env=env(TP_DEGREE="x", PRECISION="half")),
        say={"model": "m", "sequence_length": "long"},
    )
    for door in ("mutate", "validate"):
        response = answered(review_of(created), DEPS, door=door)
        assert not response["allowed"]
        assert response["status"]["code"] == 422
        assert {each["field"] for each in response["status"]["details"]["causes"]} == {
            "spec.trainer.numNodes",
            "spec.trainer.env[0].value",
            "spec.trainer.env[1].value",
            f"metadata.annotations[{PREFIX}sequence-length]",
        }
