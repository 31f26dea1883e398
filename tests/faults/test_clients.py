"""Many clients, slow clients, half-open clients, and clients that send far too much."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.faults.load import Tally, client
from tests.faults.pairs import TestAuthority, write_pair
from tests.faults.service import Service, review, serving

MEBIBYTE = 1024 * 1024
BODY_SECONDS = 2.0
JSON = {"Content-Type": "application/json"}
LATE = 'operation="CREATE",outcome="late"'


@pytest.fixture
def service(tmp_path: Path, authority: TestAuthority) -> Iterator[Service]:
    write_pair(tmp_path / "tls", authority.pair())
    with serving(tmp_path / "tls", authority, body_seconds=BODY_SECONDS) as running:
        yield running


def secure(service: Service) -> ssl.SSLSocket:
    plain = socket.create_connection(("localhost", service.port), timeout=20)
    return service.trust.wrap_socket(plain, server_hostname="localhost")


@pytest.mark.asyncio
async def test_400_reviews_at_once(service: Service) -> None:
    """A mass start: every review is answered, none after the webhook's timeout."""
    limits = httpx.Limits(max_connections=100)
    trust = service.trust
    async with httpx.AsyncClient(base_url=service.url, verify=trust, limits=limits) as http:
        await asyncio.gather(*(http.get("/healthz") for _ in range(100)))
        answers = await asyncio.gather(
            *(
                http.post("/mutate?timeout=5s", json=review(numNodes=nodes), timeout=30)
                for nodes in (1, 8, 64, 512) * 100
            )
        )
    assert {answer.status_code for answer in answers} == {200}


@pytest.mark.asyncio
async def test_slow_and_half_open_clients_starve_nobody(service: Service) -> None:
    """100 that say nothing, 50 that stop in their headers, 50 that stop in their body."""
    quiet = [socket.create_connection(("localhost", service.port), timeout=20) for _ in range(100)]
    in_headers, in_body = ([secure(service) for _ in range(50)] for _ in range(2))
    for each in in_headers:
        each.send(b"POST /mutate HTTP/1.1\r\nHost: x\r\n")
    for each in in_body:
        each.send(
            b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000\r\n\r\n{"
        )
    tally, stop = Tally(), asyncio.Event()
    running = asyncio.create_task(
        client(service.url, service.trust, tally, stop, pause_seconds=0.01)
    )
    await asyncio.sleep(1)
    stop.set()
    await running
    assert not tally.problems
    assert tally.percentile(0.99) < 0.25
    for each in (in_headers[0], in_body[0]):
        answer = await asyncio.to_thread(_all_of, each)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_timeout"
    for each in (*quiet, *in_headers, *in_body):
        each.close()


def _all_of(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(65536):
        received += piece
    return received


def test_a_caller_that_gives_a_second_gets_its_answer_in_one(service: Service) -> None:
    """A body that comes too late for `timeout` is refused while the caller still listens."""

    def slowly() -> Iterator[bytes]:
        yield b"{"
        time.sleep(1.5)
        yield b"}"

    started = time.monotonic()
    answer = httpx.post(
        f"{service.url}/mutate?timeout=1s", content=slowly(), headers=JSON, verify=service.trust
    )
    assert answer.status_code == 408
    assert time.monotonic() - started < 2.5


def test_a_search_ends_when_its_caller_leaves(service: Service) -> None:
    """A tenth of the time a refusal takes: each is given up, and the next caller is served."""
    asked = {"model": "llama-3-405b", "gpusPerNode": 8}
    late = f'admission_reviews_total{{crd="training.vsr.dev/v1alpha1",{LATE}}}'
    with httpx.Client(base_url=service.url, verify=service.trust, timeout=20) as http:
        for nodes in range(2, 12):
            question = review(**asked, numNodes=nodes)
            answer = http.post("/mutate?timeout=2ms", json=question)
            assert answer.status_code in {504, 408}
            assert answer.json()["error"]["code"] in {"deadline_exceeded", "request_timeout"}
        assert service.metric(late) >= 1
        assert http.post("/mutate?timeout=10s", json=review()).json()["response"]["allowed"]


@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "chunked"])
def test_memory_stays_flat_under_bodies_that_are_too_large(
    service: Service, *, chunked: bool
) -> None:
    body = b" " * (8 * MEBIBYTE)
    with httpx.Client(base_url=service.url, verify=service.trust, timeout=20) as http:
        http.post("/mutate", content=body[:MEBIBYTE], headers=JSON)
        before = resident_bytes(service)
        for _ in range(20):
            started = time.monotonic()
            content = iter([body[:MEBIBYTE]] * 8) if chunked else body
            assert http.post("/mutate", content=content, headers=JSON).status_code == 413
            assert time.monotonic() - started < 2
    assert resident_bytes(service) - before < 48 * MEBIBYTE


@pytest.mark.asyncio
async def test_what_all_large_bodies_hold_is_bounded(service: Service) -> None:
    """40 clients stop just before the end of 6 MiB: some wait, the others are told to come back."""
    before = resident_bytes(service)
    piece = b" " * (6 * MEBIBYTE)
    head = (
        b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % (len(piece) + 1)
    )

    async def send() -> bytes:
        reader, writer = await asyncio.open_connection("localhost", service.port, ssl=service.trust)
        try:
            writer.write(head + piece)
            answer = await asyncio.wait_for(reader.readline(), 20)
        except ConnectionError:
            answer = b"cut"
        writer.close()
        return answer

    sending = [asyncio.create_task(send()) for _ in range(40)]
    await asyncio.sleep(1)
    async with httpx.AsyncClient(base_url=service.url, verify=service.trust) as http:
        small = await http.post("/mutate", json=review(), timeout=20)
    assert small.status_code == 200
    answers = set(await asyncio.gather(*sending))
    assert answers <= {
        b"HTTP/1.1 503 Service Unavailable\r\n",
        b"HTTP/1.1 408 Request Timeout\r\n",
        b"cut",
    }
    assert b"HTTP/1.1 503 Service Unavailable\r\n" in answers
    assert resident_bytes(service) - before < 160 * MEBIBYTE


def resident_bytes(service: Service) -> int:
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def test_what_is_not_http_is_answered_in_our_shape(service: Service) -> None:
    with secure(service) as connection:
        connection.send(b"\x16\x03\x01 nonsense\r\n\r\n")
        answer = _all_of(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_http"
