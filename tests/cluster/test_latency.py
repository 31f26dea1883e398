"""What admission costs a user: the time one create takes with us and without us. Only reported."""

from __future__ import annotations

import statistics
import time
from typing import Any

import pytest

from tests.cluster.api_server import ApiServer
from tests.cluster.jobs import fresh_name, kubeflow_auto_job, kubeflow_job

ROUNDS = 100


def create_seconds(cluster: ApiServer, namespace: str, job: dict[str, Any]) -> float:
    """Seconds one POST took, kubectl left out."""
    path = cluster.path(namespace, {**job, "metadata": {}})
    started = time.perf_counter()
    answer = cluster.http.post(path, json=job)
    elapsed = time.perf_counter() - started
    assert answer.status_code == 201, answer.text
    return elapsed


def webhook_seconds(cluster: ApiServer) -> dict[str, float]:
    """Mean seconds of one call of each of our webhooks, as the API server measures them."""
    name = "apiserver_admission_webhook_admission_duration_seconds"
    sums, counts = (cluster.metrics(f"{name}_{part}") for part in ("sum", "count"))
    totals: dict[str, tuple[float, float]] = {}
    for labels, count in counts.items():
        webhook = dict(labels)["name"]
        seconds, calls = totals.get(webhook, (0.0, 0.0))
        totals[webhook] = (seconds + sums[labels], calls + count)
    ours = {webhook["name"] for webhook in cluster.our_webhooks()} & totals.keys()
    return {
        f"mean {name.partition('.')[0]} call": totals[name][0] / totals[name][1]
        for name in sorted(ours)
    }


def test_latency_added_to_a_create(
    cluster: ApiServer, namespace: str, record_property: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both kinds alternate, so that a busy machine slows both."""
    pairs = [
        (
            create_seconds(cluster, namespace, kubeflow_job(name=fresh_name("without"))),
            create_seconds(cluster, namespace, kubeflow_auto_job(name=fresh_name("with"))),
        )
        for _ in range(ROUNDS)
    ]
    without, with_us = (sorted(column) for column in zip(*pairs, strict=True))
    added = statistics.median(with_us) - statistics.median(without)
    lines = {
        **webhook_seconds(cluster),
        "median without": statistics.median(without),
        "median with": statistics.median(with_us),
        "p95 without": without[int(0.95 * ROUNDS)],
        "p95 with": with_us[int(0.95 * ROUNDS)],
        "added at the median": added,
    }
    for name, seconds in lines.items():
        record_property(name, seconds)
    with capsys.disabled():
        print("\ncreate of a Kubeflow TrainJob, ms:")  # noqa: T201 (this is the report)
        for name, seconds in lines.items():
            print(f"  {name:22} {1000 * seconds:6.2f}")  # noqa: T201
