"""Our service is not there: who can still create jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.advisor import Advisor
from tests.cluster.api_server import ApiServer
from tests.cluster.jobs import kubeflow_auto_job, kubeflow_job, vsr_auto_job, vsr_job

Job = dict[str, Any]
FAIL_OPEN = "apiserver_admission_webhook_fail_open_count_total"


@pytest.fixture(scope="class")
def outage(cluster: ApiServer, advisor: Advisor) -> Iterator[ApiServer]:
    """The API server while nothing answers its webhook calls."""
    with advisor.down():
        yield cluster


class TestOutage:
    """Nothing answers the API server's calls."""

    @pytest.mark.parametrize("auto_job", [vsr_auto_job, kubeflow_auto_job], ids=["vsr", "kubeflow"])
    def test_a_job_that_asked_for_a_plan_waits_for_us(
        self, outage: ApiServer, namespace: str, auto_job: Callable[..., Job]
    ) -> None:
        """Better refused than started without the plan it counts on."""
        job = auto_job()
        refused = outage.create(namespace, job, check=False)
        assert refused.code == 1
        assert "failed calling webhook" in refused.stderr
        assert outage.http.get(outage.path(namespace, job)).status_code == 404

    @pytest.mark.parametrize("job", [vsr_job, kubeflow_job], ids=["vsr", "kubeflow"])
    def test_every_other_job_is_created(
        self, outage: ApiServer, namespace: str, job: Callable[..., Job]
    ) -> None:
        """Defaulting and judging are left out, nothing else changes."""
        created = job()
        stored = outage.create(namespace, created).document
        assert (
            stored["spec"].items()
            >= {key: value for key, value in created["spec"].items() if key != "runtimeRef"}.items()
        )

    def test_the_api_server_counts_what_it_let_through(
        self, outage: ApiServer, namespace: str
    ) -> None:
        """An operator can alert on it."""
        before = sum(outage.metrics(FAIL_OPEN).values())
        outage.create(namespace, vsr_job())
        assert sum(outage.metrics(FAIL_OPEN).values()) > before

    def test_other_workloads_do_not_notice(self, outage: ApiServer, namespace: str) -> None:
        """What is none of our business works as ever."""
        outage.kubectl("create", "job", "noop", "-n", namespace, "--image=none")
        outage.kubectl("create", "deployment", "web", "-n", namespace, "--image=none")


@pytest.mark.parametrize("auto_job", [vsr_auto_job, kubeflow_auto_job], ids=["vsr", "kubeflow"])
def test_jobs_that_exist_can_be_deleted_and_resumed(
    cluster: ApiServer, advisor: Advisor, namespace: str, auto_job: Callable[..., Job]
) -> None:
    """An outage never holds a running job, its queue or its owner."""
    job = cluster.create(namespace, auto_job(suspend=True)).document
    path = cluster.path(namespace, job)
    patch = {"Content-Type": "application/merge-patch+json"}
    with advisor.down():
        resumed = cluster.http.patch(path, json={"spec": {"suspend": False}}, headers=patch)
        assert resumed.status_code == 200, resumed.text
        assert cluster.http.delete(path).status_code == 200
    assert cluster.http.get(path).status_code == 404


def test_meanwhile_no_update_loses_what_a_job_counts_on(
    cluster: ApiServer, advisor: Advisor, namespace: str
) -> None:
    """Only a list of variables that changes waits for us: lost ones would not come back."""
    job = vsr_auto_job(env=[{"name": "MINE", "value": "1"}])
    stored = cluster.create(namespace, job).document
    apply = ("apply", "-n", namespace, "-f", "-")
    with advisor.down():
        refused = cluster.kubectl(*apply, stdin=job, check=False)
        assert "failed calling webhook" in refused.stderr
    assert cluster.get(namespace, job)["spec"] == stored["spec"]
    cluster.kubectl(*apply, stdin=job)
    assert cluster.get(namespace, job)["spec"] == stored["spec"]


def test_after_the_outage_jobs_are_planned_again(
    cluster: ApiServer, advisor: Advisor, namespace: str
) -> None:
    with advisor.down():
        pass
    assert cluster.create(namespace, vsr_auto_job()).document["spec"]["tpDegree"] >= 1
