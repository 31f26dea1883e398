"""A TrainJob that exists is updated, started, reported on, deleted: nothing is planned again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.api_server import ApiServer
from tests.cluster.jobs import (
    KUEUE,
    QUEUE_LABEL,
    kubeflow_auto_job,
    node_selection,
    vsr_auto_job,
    without_zero_values,
)

Job = dict[str, Any]
AUTO = pytest.mark.parametrize(
    "auto_job", [vsr_auto_job, kubeflow_auto_job], ids=["vsr", "kubeflow"]
)
MERGE = {"Content-Type": "application/merge-patch+json"}


def patched(
    cluster: ApiServer, namespace: str, job: Job, change: Job, *, subresource: str = ""
) -> Any:
    """PATCHes as Kueue's service account does, and returns what is stored then."""
    headers = {**MERGE, "Impersonate-User": KUEUE, "Impersonate-Group": "system:masters"}
    path = "/".join(filter(None, [cluster.path(namespace, job), subresource]))
    return cluster.http.patch(path, json=change, headers=headers).raise_for_status().json()


def replaced(cluster: ApiServer, namespace: str, job: Job) -> Any:
    """PUTs a whole object as a typed client does: zero values dropped."""
    body = without_zero_values(job)
    headers = {"Impersonate-User": KUEUE, "Impersonate-Group": "system:masters"}
    answer = cluster.http.put(cluster.path(namespace, job), json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def queued(cluster: ApiServer, namespace: str, auto_job: Callable[..., Job]) -> Job:
    """A planned job that waits in a queue."""
    stored = cluster.create(namespace, auto_job(labels=QUEUE_LABEL, suspend=True)).document
    assert stored["spec"]["suspend"] is True
    return stored


def plan_of(job: Job) -> Job:
    """Everything of a job that a plan decides."""
    spec = {key: value for key, value in job["spec"].items() if key not in NOT_PLANNED}
    return {"spec": spec, "annotations": job["metadata"]["annotations"]}


NOT_PLANNED = {"suspend", "nodeSelector", "runtimePatches"}


@AUTO
def test_kueue_unsuspends_by_patch(
    cluster: ApiServer, namespace: str, auto_job: Callable[..., Job]
) -> None:
    job = queued(cluster, namespace, auto_job)
    after = patched(cluster, namespace, job, {"spec": {"suspend": False}})
    assert after["spec"]["suspend"] is False
    assert plan_of(after) == plan_of(job)


@AUTO
def test_kueue_unsuspends_by_replacing_the_object(
    cluster: ApiServer, namespace: str, auto_job: Callable[..., Job]
) -> None:
    """Nothing we wrote has a zero value, so a typed client writes back what it read."""
    job = queued(cluster, namespace, auto_job)
    changed = copy.deepcopy(job)
    changed["spec"]["suspend"] = False
    after = replaced(cluster, namespace, changed)
    assert not after["spec"].get("suspend")
    assert plan_of(after) == plan_of(job)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([{"place", "start"}], id="both-at-once"),
        pytest.param([{"place"}, {"start"}], id="place-then-start"),
        pytest.param([{"start"}, {"place"}], id="start-then-place"),
    ],
)
@AUTO
def test_kueue_places_and_starts_in_any_order(
    cluster: ApiServer, namespace: str, auto_job: Callable[..., Job], steps: list[set[str]]
) -> None:
    """Placement may name another GPU than the plan's: that is the queue's business."""
    job = queued(cluster, namespace, auto_job)
    flavor = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    if "trainer" in job["spec"]:
        added = node_selection("2.3", flavor, manager="kueue.x-k8s.io/manager")["runtimePatches"]
        placed = {"runtimePatches": [*job["spec"]["runtimePatches"], *added]}
    else:
        placed = {"nodeSelector": flavor}
    changes = {"place": placed, "start": {"suspend": False}}
    for step in steps:
        spec = {key: value for word in step for key, value in changes[word].items()}
        after = patched(cluster, namespace, job, {"spec": spec})
    assert after["spec"]["suspend"] is False
    assert plan_of(after) == plan_of(job)


@AUTO
def test_a_preempted_job_goes_back_to_its_queue(
    cluster: ApiServer, namespace: str, auto_job: Callable[..., Job]
) -> None:
    job = queued(cluster, namespace, auto_job)
    for suspend in (False, True, False):
        after = patched(cluster, namespace, job, {"spec": {"suspend": suspend}})
    assert plan_of(after) == plan_of(job)


@AUTO
def test_labelling_a_job_does_not_touch_its_plan(
    cluster: ApiServer, namespace: str, auto_job: Callable[..., Job]
) -> None:
    job = cluster.create(namespace, auto_job()).document
    after = patched(cluster, namespace, job, {"metadata": {"labels": {"team": "nlp"}}})
    assert after["metadata"]["labels"]["team"] == "nlp"
    assert plan_of(after) == plan_of(job)


@AUTO
def test_a_status_write_is_stored_and_seen_by_no_webhook(
    cluster: ApiServer, namespace: str, auto_job: Callable[..., Job]
) -> None:
    job = cluster.create(namespace, auto_job()).document
    status = (
        {"phase": "Running", "currentStep": 12}
        if "model" in job["spec"]
        else {"trainerStatus": {"lastUpdatedTime": "2026-07-19T02:31:10Z"}}
    )
    calls = cluster.webhook_calls()
    after = patched(cluster, namespace, job, {"status": status}, subresource="status")
    assert after["status"] == status
    assert after["spec"] == job["spec"]
    assert cluster.webhook_calls() == calls


def test_a_running_jobs_layout_cannot_be_changed(cluster: ApiServer, namespace: str) -> None:
    job = cluster.create(namespace, vsr_auto_job()).document
    patched(cluster, namespace, job, {"status": {"phase": "Running"}}, subresource="status")
    refused = cluster.kubectl(
        *("patch", "trainjobs.training.vsr.dev", job["metadata"]["name"], "-n", namespace),
        *("--type=merge", "-p", '{"spec": {"numNodes": 16}}'),
        check=False,
    )
    assert refused.code == 1
    assert "spec.numNodes: must stay 8" in refused.stderr


@AUTO
def test_a_job_is_deleted_and_its_finalizer_removed(
    cluster: ApiServer, namespace: str, auto_job: Callable[..., Job]
) -> None:
    """Even when the object would not be admitted today, nothing holds it back."""
    job = auto_job()
    job["metadata"]["finalizers"] = ["tests.example/hold"]
    stored = cluster.create(namespace, job).document
    path = cluster.path(namespace, stored)
    cluster.http.delete(path).raise_for_status()
    assert "deletionTimestamp" in cluster.get(namespace, stored)["metadata"]
    patched(cluster, namespace, stored, {"metadata": {"finalizers": None}})
    assert cluster.http.get(path).status_code == 404
