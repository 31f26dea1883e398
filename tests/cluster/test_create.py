"""A TrainJob is created: what is stored, what kubectl prints, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.api_server import ApiServer
from tests.cluster.jobs import (
    QUEUE_LABEL,
    environment,
    kubeflow_auto_job,
    kubeflow_job,
    vsr_auto_job,
    vsr_job,
)

CONFIG = "training.vsr.dev/auto-parallelism-config"
Job = dict[str, Any]
AUTO = pytest.mark.parametrize(
    "auto_job", [vsr_auto_job, kubeflow_auto_job], ids=["vsr", "kubeflow"]
)


USER_ENV = [{"name": "NCCL_DEBUG", "value": "INFO"}]
REAPPLIED = pytest.mark.parametrize(
    ("auto_job", "env"),
    [
        pytest.param(vsr_auto_job, [], id="vsr"),
        pytest.param(kubeflow_auto_job, [], id="kubeflow"),
        pytest.param(vsr_auto_job, USER_ENV, id="vsr-env"),
        pytest.param(kubeflow_auto_job, USER_ENV, id="kubeflow-env"),
    ],
)


def planned_spec(job: Job) -> Job:
    """The fields of the spec and the annotations, without what only this object has."""
    return {"spec": job["spec"], "annotations": job["metadata"]["annotations"]}


def test_a_job_that_asks_for_a_plan_is_stored_with_one(cluster: ApiServer, namespace: str) -> None:
    stored = cluster.create(namespace, vsr_auto_job()).document
    spec = stored["spec"]
    degrees = spec["tpDegree"] * spec["ppDegree"] * spec["cpDegree"]
    assert 64 % degrees == 0
    assert spec["precision"] == "bf16"
    assert spec["modelSpec"]["microBatchSize"] >= 1
    line = stored["metadata"]["annotations"][CONFIG]
    assert line.startswith(f"TP={spec['tpDegree']} PP={spec['ppDegree']} FSDP={64 // degrees} ")


def test_a_kubeflow_job_is_stored_with_its_plan_as_environment(
    cluster: ApiServer, namespace: str
) -> None:
    job = kubeflow_auto_job()
    stored = cluster.create(namespace, job).document
    variables = environment(stored)
    degrees = [int(variables[f"{axis}_DEGREE"]) for axis in ("TP", "PP", "CP", "DP")]
    product = 1
    for degree in degrees:
        product *= degree
    assert product == 32
    assert variables["NCCL_DEBUG"] == "INFO"
    assert "" not in variables.values()
    assert stored["spec"]["trainer"]["numProcPerNode"] == 8
    assert stored["spec"]["trainer"]["args"] == job["spec"]["trainer"]["args"]


def test_a_job_with_its_own_layout_keeps_it_and_gets_defaults(
    cluster: ApiServer, namespace: str
) -> None:
    spec = cluster.create(namespace, vsr_job(tpDegree=8, ppDegree=2)).document["spec"]
    assert (spec["tpDegree"], spec["ppDegree"], spec["cpDegree"]) == (8, 2, 1)
    assert spec["precision"] == "bf16"
    assert spec["checkpoint"] == {
        "enabled": True,
        "storagePath": "/checkpoints",
        "intervalMinutes": 30,
        "retainCount": 3,
    }
    assert "suspend" not in spec


def test_a_queued_job_starts_suspended(cluster: ApiServer, namespace: str) -> None:
    stored = cluster.create(namespace, vsr_job(labels=QUEUE_LABEL)).document
    assert stored["spec"]["suspend"] is True


@AUTO
def test_kubectl_prints_the_plan_as_a_warning(
    cluster: ApiServer, namespace: str, auto_job: Callable[..., Job]
) -> None:
    warnings = cluster.create(namespace, auto_job()).warnings
    headline = warnings[0]
    assert headline.startswith("TP=")
    assert " of 80 G" in headline
    assert all(len(warning) <= 256 for warning in warnings)
    assert len(headline) <= 120


@AUTO
def test_a_dry_run_shows_the_plan_and_stores_nothing(
    cluster: ApiServer, namespace: str, auto_job: Callable[..., Job]
) -> None:
    job = auto_job()
    rehearsed = cluster.create(namespace, job, "--dry-run=server").document
    assert cluster.http.get(cluster.path(namespace, job)).status_code == 404
    assert planned_spec(rehearsed) == planned_spec(cluster.create(namespace, job).document)


@AUTO
def test_the_same_job_twice_is_the_same_twice(
    cluster: ApiServer, namespace: str, auto_job: Callable[..., Job]
) -> None:
    first, second = (cluster.create(namespace, auto_job()).document for _ in range(2))
    assert planned_spec(first) == planned_spec(second)


def with_user_env(job: Job, env: list[Job]) -> Job:
    """The job with the environment its author writes; an empty list is left out."""
    holder = job["spec"].get("trainer", job["spec"])
    holder.pop("env", None)
    if env:
        holder["env"] = env
    return job


@REAPPLIED
def test_applied_again_nothing_changes(
    cluster: ApiServer, namespace: str, auto_job: Callable[..., Job], env: list[Job]
) -> None:
    """What `kubectl apply` and `kubectl diff` see after us: no drift, nothing of the plan lost."""
    job = with_user_env(auto_job(), env)
    apply = ("apply", "-n", namespace, "-f", "-")
    assert "created" in cluster.kubectl(*apply, stdin=job).stdout
    planned = cluster.get(namespace, job)
    cluster.kubectl(*apply, stdin=job)
    assert cluster.get(namespace, job)["spec"] == planned["spec"]
    assert cluster.kubectl("diff", "-n", namespace, "-f", "-", stdin=job).stdout == ""


@REAPPLIED
def test_server_side_apply_leaves_our_fields_alone(
    cluster: ApiServer, namespace: str, auto_job: Callable[..., Job], env: list[Job]
) -> None:
    job = with_user_env(auto_job(), env)
    apply = ("apply", "--server-side", "--field-manager=gitops", "-n", namespace, "-o", "json")
    first = cluster.kubectl(*apply, "-f", "-", stdin=job).document
    second = cluster.kubectl(*apply, "-f", "-", stdin=job).document
    assert planned_spec(first) == planned_spec(second)
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    assert any(key.startswith("training.vsr.dev/") for key in first["metadata"]["annotations"])


def test_applied_again_with_another_value_of_its_authors(
    cluster: ApiServer, namespace: str
) -> None:
    """A list that did change: the author's part is new, ours is as it was, and kubectl says so."""
    job = with_user_env(vsr_auto_job(), USER_ENV)
    apply = ("apply", "-n", namespace, "-f", "-")
    cluster.kubectl(*apply, stdin=job)
    planned = cluster.get(namespace, job)["spec"]["env"]
    theirs = [{"name": "NCCL_DEBUG", "value": "WARN"}, {"name": "RUN", "value": "2"}]
    again = cluster.kubectl(*apply, stdin=with_user_env(job, theirs))
    assert cluster.get(namespace, job)["spec"]["env"] == [*theirs, *planned[1:]]
    assert any("variables of ours" in each for each in again.warnings)


def test_without_our_record_our_variables_go(cluster: ApiServer, namespace: str) -> None:
    """The way out of what we keep: the annotation that lists it."""
    job = with_user_env(vsr_auto_job(), USER_ENV)
    name = job["metadata"]["name"]
    apply = ("apply", "-n", namespace, "-f", "-")
    cluster.kubectl(*apply, stdin=job)
    kind = "trainjobs.training.vsr.dev"
    record = "training.vsr.dev/environment-"
    cluster.kubectl("annotate", kind, name, record, "-n", namespace)
    cluster.kubectl(*apply, stdin=job)
    assert cluster.get(namespace, job)["spec"]["env"] == USER_ENV


@AUTO
def test_a_generated_name_is_planned_too(
    cluster: ApiServer, namespace: str, auto_job: Callable[..., Job]
) -> None:
    job = auto_job(labels=QUEUE_LABEL)
    del job["metadata"]["name"]
    job["metadata"]["generateName"] = "nightly-"
    stored = cluster.create(namespace, job).document
    assert stored["metadata"]["name"].startswith("nightly-")
    assert any(key.startswith("training.vsr.dev/") for key in stored["metadata"]["annotations"])


def test_an_unknown_model_is_refused_with_the_reason(cluster: ApiServer, namespace: str) -> None:
    job = vsr_auto_job(model="lama-3-70b")
    refused = cluster.create(namespace, job, check=False)
    assert refused.code == 1
    assert refused.stderr.startswith(f'The TrainJob "{job["metadata"]["name"]}" is invalid')
    assert "lama-3-70b" in refused.stderr
    assert "llama-3-70b" in refused.stderr
    assert cluster.http.get(cluster.path(namespace, job)).status_code == 404


def test_a_job_that_cannot_fit_is_told_by_how_much(cluster: ApiServer, namespace: str) -> None:
    job = vsr_auto_job(model="llama-3-405b", numNodes=1)
    answer = cluster.http.post(cluster.path(namespace, {**job, "metadata": {}}), json=job)
    assert answer.status_code == 422
    assert "denied the request" in answer.json()["message"]
    printed = cluster.create(namespace, job, check=False).stderr
    for text in (answer.json()["message"], printed):
        assert "GiB too much" in text
        assert "12 nodes instead of 1 would fit" in text


def test_every_mistake_is_named_at_once(cluster: ApiServer, namespace: str) -> None:
    job = vsr_job(tpDegree=16, ppDegree=3, gpusPerNode=8, precision="fp7", maxRuntime="soon")
    refused = cluster.create(namespace, job, check=False)
    assert refused.code == 1
    for name in ("tpDegree", "ppDegree", "precision", "maxRuntime"):
        assert name in refused.stderr, refused.stderr


@AUTO
def test_fields_we_do_not_know_pass_through(
    cluster: ApiServer, namespace: str, auto_job: Callable[..., Job]
) -> None:
    """Foreign keys survive, with the character JSON pointers escape."""
    odd = {"example.org/a.b-c_d": "e", "training.vsr.dev.example/f": ""}
    stored = cluster.create(namespace, auto_job(annotations=odd)).document
    assert stored["metadata"]["annotations"].items() >= odd.items()


def test_a_job_without_our_label_is_untouched(cluster: ApiServer, namespace: str) -> None:
    job = kubeflow_job()
    created = cluster.create(namespace, job)
    assert created.document["spec"]["trainer"] == job["spec"]["trainer"]
    assert "annotations" not in created.document["metadata"]
    assert created.warnings == []


def test_the_plan_is_in_the_audit_log(cluster: ApiServer, namespace: str) -> None:
    job = vsr_auto_job()
    headline = cluster.create(namespace, job).warnings[0]
    (event,) = cluster.audit(job["metadata"]["name"])
    assert headline in [
        value for key, value in event["annotations"].items() if key.endswith("/plan")
    ]
