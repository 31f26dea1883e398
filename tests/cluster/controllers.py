"""What the controllers of a cluster do, played where there is only an API server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.cluster.api_server import ApiServer

NAMESPACE = "/api/v1/namespaces/trainjob-advisor"
DEPLOYMENT = "/apis/apps/v1/namespaces/trainjob-advisor/deployments/trainjob-advisor"
STATUS = {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}


@contextmanager
def rolling_out(server: ApiServer) -> Iterator[None]:
    """The Deployment controller: whatever is applied is rolled out at once."""

    def report() -> None:
        found = server.http.get(DEPLOYMENT)
        if found.status_code == 200:
            item = found.json()
            generation = item["metadata"]["generation"]
            item["status"] = {**STATUS, "observedGeneration": generation}
            server.http.put(f"{DEPLOYMENT}/status", json=item)

    with _again_and_again(report):
        yield


@contextmanager
def ending_namespaces(server: ApiServer) -> Iterator[None]:
    """The namespace controller: ours is gone soon after it is deleted."""

    def finish() -> None:
        found = server.http.get(NAMESPACE)
        if found.status_code == 200 and "deletionTimestamp" in found.json()["metadata"]:
            server.http.put(f"{NAMESPACE}/finalize", json={**found.json(), "spec": {}})

    with _again_and_again(finish):
        yield


@contextmanager
def _again_and_again(act: Callable[[], None]) -> Iterator[None]:
    done = threading.Event()

    def loop() -> None:
        while not done.wait(0.2):
            act()

    controller = threading.Thread(target=loop, daemon=True)
    controller.start()
    try:
        yield
    finally:
        done.set()
        controller.join()
