"""Clients that send reviews at a rate over kept connections, and note what went wrong."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field

import httpx

from tests.faults.service import review


@dataclass(slots=True)
class Tally:
    """What the clients saw."""

    seconds: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    told_to_close: int = 0

    def percentile(self, share: float) -> float:
        """Seconds that `share` of the answers took at most."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def client(
    url: str,
    trust: ssl.SSLContext,
    tally: Tally,
    stop: asyncio.Event,
    *,
    pause_seconds: float,
    fresh_connections: bool = False,
) -> None:
    """Send one review after the other until told to stop, or to close by the server."""
    kept = 0 if fresh_connections else 1
    limits = httpx.Limits(max_connections=1, max_keepalive_connections=kept)
    loop = asyncio.get_running_loop()
    async with httpx.AsyncClient(base_url=url, verify=trust, limits=limits, timeout=10) as http:
        while not stop.is_set():
            started = loop.time()
            try:
                answer = await http.post("/mutate", json=review())
            except httpx.HTTPError as problem:
                tally.problems.append(repr(problem))
                return
            tally.seconds.append(loop.time() - started)
            if answer.status_code != httpx.codes.OK or "response" not in answer.json():
                tally.problems.append(f"{answer.status_code} {answer.text}")
            if answer.headers.get("connection") == "close":
                tally.told_to_close += 1
                return
            await asyncio.sleep(pause_seconds)
