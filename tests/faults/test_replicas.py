"""kill -9 of one of two replicas under load, with clients that try once more elsewhere."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.faults.pairs import TestAuthority, write_pair
from tests.faults.service import review, serving

CLIENTS = 10
PAUSE_SECONDS = 0.05


@dataclass(slots=True)
class Count:
    """Reviews over all clients."""

    sent: int = 0
    answered: int = 0
    retried: int = 0


async def one_review(connections: list[httpx.AsyncClient], first: int, count: Count) -> int:
    """Send a review, once more to the other replica if the connection fails; who answered."""
    count.sent += 1
    try:
        answer, by = await connections[first].post("/mutate", json=review()), first
    except httpx.TransportError:
        count.retried += 1
        by = 1 - first
        answer = await connections[by].post("/mutate", json=review())
    body = answer.json()["response"]
    assert body["uid"] == review()["request"]["uid"]
    assert body["allowed"]
    assert body["patch"]
    count.answered += 1
    return by


async def caller(
    urls: list[str], trust: ssl.SSLContext, first: int, count: Count, stop: asyncio.Event
) -> None:
    """One review after the other over kept connections."""
    connections = [httpx.AsyncClient(base_url=url, verify=trust, timeout=10) for url in urls]
    try:
        while not stop.is_set():
            first = await one_review(connections, first, count)
            await asyncio.sleep(PAUSE_SECONDS)
    finally:
        for each in connections:
            await each.aclose()


@pytest.mark.asyncio
async def test_a_killed_replica_costs_no_review(tmp_path: Path, authority: TestAuthority) -> None:
    """The second attempt reaches the other replica, which stays ready."""
    for name in ("a", "b"):
        write_pair(tmp_path / name, authority.pair())
    with serving(tmp_path / "a", authority) as one, serving(tmp_path / "b", authority) as other:
        count, stop = Count(), asyncio.Event()
        callers = [
            asyncio.create_task(caller([one.url, other.url], one.trust, each % 2, count, stop))
            for each in range(CLIENTS)
        ]
        await asyncio.sleep(1.5)
        before = count.answered
        one.process.kill()
        await asyncio.to_thread(one.process.wait)
        await asyncio.sleep(1.5)
        stop.set()
        await asyncio.gather(*callers)
        assert other.is_ready()
    assert count.answered == count.sent
    assert 1 <= count.retried <= CLIENTS
    assert before >= CLIENTS
    assert count.answered - before >= CLIENTS
