"""SIGTERM, idle connections, and workers that die."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import httpx
import pytest

from tests.faults.load import Tally, client
from tests.faults.pairs import TestAuthority, write_pair
from tests.faults.service import Service, review, serving, wait_for

CONNECTIONS = 20
RATE_PER_SECOND = 200.0
IDLE_SECONDS = 60.0


@pytest.mark.asyncio
@pytest.mark.parametrize("workers", [1, 2], ids=["one-worker", "two-workers"])
async def test_sigterm_under_load_resets_nobody(
    tmp_path: Path, authority: TestAuthority, workers: int
) -> None:
    """Kept connections are answered, told to close, and the process ends in time."""
    write_pair(tmp_path / "tls", authority.pair())
    with serving(tmp_path / "tls", authority, workers=workers, drain_seconds=5) as service:
        tally, stop = Tally(), asyncio.Event()
        pause = CONNECTIONS / RATE_PER_SECOND
        clients = [
            asyncio.create_task(
                client(service.url, service.trust, tally, stop, pause_seconds=pause)
            )
            for _ in range(CONNECTIONS)
        ]
        await asyncio.sleep(2)
        before, started = len(tally.seconds), time.monotonic()
        service.process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(service.process.wait, 30)
        took = time.monotonic() - started
        stop.set()
        await asyncio.gather(*clients)
    assert tally.problems == []
    assert before > RATE_PER_SECOND / 2
    assert tally.told_to_close == CONNECTIONS
    assert code == 0
    assert took < 5


def test_a_request_in_flight_at_sigterm_is_answered(
    tmp_path: Path, authority: TestAuthority
) -> None:
    """Its body comes slowly, over the end of the draining."""
    write_pair(tmp_path / "tls", authority.pair())
    with serving(tmp_path / "tls", authority, drain_seconds=0.5) as service:
        body = json.dumps(review()).encode()

        def slowly() -> object:
            yield body[:100]
            service.process.send_signal(signal.SIGTERM)
            time.sleep(1.5)
            yield body[100:]

        answer = httpx.post(
            f"{service.url}/mutate",
            content=slowly(),
            headers={"Content-Type": "application/json"},
            verify=service.trust,
        )
        assert answer.status_code == 200
        assert answer.json()["response"]["uid"] == review()["request"]["uid"]
        assert answer.headers["connection"] == "close"
        assert service.process.wait(timeout=10) == 0


def test_while_draining_the_process_is_not_ready(tmp_path: Path, authority: TestAuthority) -> None:
    write_pair(tmp_path / "tls", authority.pair())
    with (
        serving(tmp_path / "tls", authority, drain_seconds=3) as service,
        httpx.Client(base_url=service.url, verify=service.trust) as http,
    ):
        assert http.get("/healthz").status_code == 200
        service.process.send_signal(signal.SIGTERM)
        wait_for(lambda: service.probe("/readyz").status_code == 503, 2, "still ready")
        assert http.get("/healthz").headers["connection"] == "close"
        assert service.process.wait(timeout=10) == 0


def test_without_connections_the_end_is_quick(tmp_path: Path, authority: TestAuthority) -> None:
    write_pair(tmp_path / "tls", authority.pair())
    with serving(tmp_path / "tls", authority, drain_seconds=20) as service:
        started = time.monotonic()
        assert service.stop() == 0
        assert time.monotonic() - started < 3


def test_an_idle_connection_is_still_good_after_a_minute(
    tmp_path: Path, authority: TestAuthority
) -> None:
    """The API server keeps connections for 90 seconds; we must not close them first."""
    write_pair(tmp_path / "tls", authority.pair())
    with (
        serving(tmp_path / "tls", authority) as service,
        httpx.Client(
            base_url=service.url,
            verify=service.trust,
            limits=httpx.Limits(max_connections=1, keepalive_expiry=600),
        ) as http,
    ):
        first = http.post("/mutate", json=review())
        stream = first.extensions["network_stream"].get_extra_info("socket").getsockname()
        time.sleep(IDLE_SECONDS)
        second = http.post("/mutate", json=review())
        assert second.status_code == 200
        again = second.extensions["network_stream"].get_extra_info("socket").getsockname()
        assert again == stream


def worker_ids(service: Service) -> set[int]:
    children = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children")
    return {int(number) for number in children.read_text().split()}


def test_a_worker_that_dies_is_replaced(tmp_path: Path, authority: TestAuthority) -> None:
    write_pair(tmp_path / "tls", authority.pair())
    with serving(tmp_path / "tls", authority, workers=2) as service:
        before = worker_ids(service)
        os.kill(min(before), signal.SIGKILL)
        wait_for(lambda: len(worker_ids(service) - before) == 1, 10, "not replaced", service.log)
        wait_for(
            lambda: all(_is_ready(service, worker) for worker in (0, 1)), 10, "not ready again"
        )
        with httpx.Client(base_url=service.url, verify=service.trust) as http:
            assert http.post("/mutate", json=review()).status_code == 200


def test_workers_do_not_outlive_their_supervisor(tmp_path: Path, authority: TestAuthority) -> None:
    write_pair(tmp_path / "tls", authority.pair())
    with serving(tmp_path / "tls", authority, workers=2) as service:
        service.process.kill()
        service.process.wait()
        wait_for(lambda: not service.is_open(), 10, "still open", service.log)


def _is_ready(service: Service, worker: int) -> bool:
    try:
        return service.probe("/readyz", worker=worker).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
