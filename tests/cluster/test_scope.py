"""Which requests reach us: match conditions and selectors, seen from the API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.api_server import ApiServer
from tests.cluster.jobs import kubeflow_auto_job, kubeflow_job, vsr_auto_job, vsr_job
from tests.cluster.neighbour import LABEL, neighbour

Job = dict[str, Any]
AUTO = pytest.mark.parametrize(
    "auto_job", [vsr_auto_job, kubeflow_auto_job], ids=["vsr", "kubeflow"]
)


def ours(cluster: ApiServer, job: Job) -> list[Any]:
    """The calls of our mutating webhooks for the job."""
    return [
        call
        for call in cluster.mutations(job["metadata"]["name"])
        if "neighbour" not in call.webhook
    ]


@pytest.mark.parametrize(
    "job",
    [vsr_auto_job, vsr_job, kubeflow_auto_job],
    ids=["vsr-auto", "vsr-defaults", "kubeflow-auto"],
)
def test_one_webhook_mutates_each_job_once(
    cluster: ApiServer, namespace: str, job: Callable[..., Job]
) -> None:
    """Planning and defaulting are two registrations; no job is sent to both."""
    created = job()
    cluster.create(namespace, created)
    assert [(call.verb, call.round, call.mutated) for call in ours(cluster, created)] == [
        ("create", 0, True)
    ]


def test_a_kubeflow_job_that_did_not_opt_in_is_sent_to_nobody(
    cluster: ApiServer, namespace: str
) -> None:
    calls = cluster.webhook_calls()
    cluster.create(namespace, kubeflow_job())
    assert cluster.webhook_calls() == calls


@pytest.mark.parametrize("job", [vsr_job, kubeflow_auto_job], ids=["vsr", "kubeflow"])
@pytest.mark.parametrize("excluded", ["kube-system", "trainjob-advisor"])
def test_excluded_namespaces_are_sent_to_nobody(
    cluster: ApiServer, job: Callable[..., Job], excluded: str
) -> None:
    calls = cluster.webhook_calls()
    cluster.create(excluded, job())
    assert cluster.webhook_calls() == calls


def test_other_objects_are_sent_to_nobody(cluster: ApiServer, namespace: str) -> None:
    calls = cluster.webhook_calls()
    cluster.kubectl("create", "configmap", "settings", "-n", namespace, "--from-literal=a=b")
    cluster.kubectl("create", "job", "noop", "-n", namespace, "--image=none")
    assert cluster.webhook_calls() == calls


@AUTO
def test_no_mutating_webhook_hears_of_an_update_that_leaves_env_alone(
    cluster: ApiServer, namespace: str, auto_job: Callable[..., Job]
) -> None:
    """A label, a queue that starts the job: nobody is asked, so nobody can be in the way."""
    job = auto_job(suspend=True)
    cluster.create(namespace, job)
    kind, name = "trainjobs." + job["apiVersion"].partition("/")[0], job["metadata"]["name"]
    cluster.kubectl("label", kind, name, "-n", namespace, "team=nlp")
    start = '{"spec":{"suspend":false}}'
    cluster.kubectl("patch", kind, name, "-n", namespace, "--type=merge", "-p", start)
    assert [call.verb for call in ours(cluster, job)] == ["create"]


def test_an_update_that_lost_our_variables_is_mended_once(
    cluster: ApiServer, namespace: str
) -> None:
    job = vsr_auto_job(env=[{"name": "MINE", "value": "1"}])
    cluster.create(namespace, job)
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=job)
    calls = [(call.verb, call.round, call.mutated) for call in ours(cluster, job)]
    assert calls == [("create", 0, True), ("patch", 0, True)]


@AUTO
def test_called_again_after_a_neighbour_we_change_nothing(
    cluster: ApiServer, namespace: str, auto_job: Callable[..., Job]
) -> None:
    """`reinvocationPolicy: IfNeeded`: the second call carries no patch."""
    alone = cluster.create(namespace, auto_job()).document
    with neighbour(cluster):
        job = auto_job()
        beside = cluster.create_until(
            namespace, job, lambda stored: LABEL in stored["metadata"].get("labels", {})
        )
    calls = [(call.round, call.mutated) for call in ours(cluster, beside)]
    assert calls == [(0, True), (1, False)]
    assert beside["spec"] == alone["spec"]
    assert beside["metadata"]["annotations"] == alone["metadata"]["annotations"]


def test_every_registration_is_narrow(cluster: ApiServer) -> None:
    """Only our resource of our two groups, no wildcard, bounded time, no side effects."""
    groups, seen = {"training.vsr.dev", "trainer.kubeflow.org"}, set()
    for webhook in cluster.our_webhooks():
        assert webhook["sideEffects"] == "None"
        assert webhook["timeoutSeconds"] <= 10
        assert webhook["namespaceSelector"] or webhook["matchConditions"]
        for rule in webhook["rules"]:
            assert set(rule["apiGroups"]) <= groups
            assert rule["resources"] == ["trainjobs"]
            assert set(rule["operations"]) <= {"CREATE", "UPDATE"}
            seen |= set(rule["apiGroups"])
    assert seen == groups
