"""Each release of Kubeflow Trainer has its own TrainJob schema: our patch suits all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.advisor import Advisor
from tests.cluster.api_server import ApiServer, api_server
from tests.cluster.conftest import prepared
from tests.cluster.jobs import (
    QUEUE_LABEL,
    RELEASES,
    environment,
    fresh_name,
    kubeflow_auto_job,
    without_zero_values,
)


@pytest.fixture(scope="module", params=RELEASES[:-1])
def release(request: pytest.FixtureRequest) -> str:
    """A release of Kubeflow Trainer; the newest is what the other tests run on."""
    return str(request.param)


@pytest.fixture(scope="module")
def older(
    release: str, programs: Path, advisor: Advisor, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServer]:
    """An API server with that release's schema, and our plain-Secret overlay."""
    folder = tmp_path_factory.mktemp("overlay")
    with api_server(programs) as server:
        yield prepared(server, advisor, "plain-secret", release=release, folder=folder)


def test_a_plan_suits_the_schema(older: ApiServer, release: str) -> None:
    """Nothing we wrote is pruned or refused, whatever fields that release has."""
    namespace = fresh_name("team")
    older.kubectl("create", "namespace", namespace)
    job = kubeflow_auto_job(release=release)
    created = older.create(namespace, job)
    variables = environment(created.document)
    assert variables.keys() >= {"TP_DEGREE", "PP_DEGREE", "DP_DEGREE", "NCCL_DEBUG"}
    assert created.document["spec"]["trainer"]["numProcPerNode"] == 8
    assert not [warning for warning in created.warnings if "unknown field" in warning]


def test_kueue_can_start_the_planned_job(older: ApiServer, release: str) -> None:
    namespace = fresh_name("team")
    older.kubectl("create", "namespace", namespace)
    job = kubeflow_auto_job(release=release, labels=QUEUE_LABEL, suspend=True)
    stored = older.create(namespace, job).document
    started = without_zero_values({**stored, "spec": {**stored["spec"], "suspend": False}})
    answer = older.http.put(older.path(namespace, stored), json=started)
    assert answer.status_code == 200, answer.text
    assert answer.json()["spec"]["trainer"] == stored["spec"]["trainer"]
