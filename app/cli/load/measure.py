"""The two measurements: latency at a rate, and throughput at saturation as ratios."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter, process_time
from typing import Any, Final

from app.cli.load.client import Load, Sample, at_once, without_pause
from app.cli.load.process import BARE, OURS, Server, planner_form, started
from app.cli.load.report import REFERENCE, Pace, ratio_report, server_report
from app.cli.load.reviews import FIRST, Magazine, Shot
from app.observability.known import ANSWERS_KEPT

QUESTIONS: Final = 64
"""Different questions of a saturated server, so that a cache of one plan never knows the answer."""
JOBS: Final = 3 * ANSWERS_KEPT
"""Jobs that come in turn: more than a server remembers answers, where each has one of its own."""
SETTLE_ROUNDS: Final = 4
"""How often each question is asked before it is timed."""
BARE_PATH: Final = b"POST /raw"

Tick = Callable[[str, float], None]
"""Told which part is running and how much of it is done, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How hard and how long."""

    rate: float
    seconds: float
    connections: int


@contextmanager
def load(server: Server, connections: int) -> Iterator[Load]:
    """Open connections to a server; closed afterwards."""
    made = Load(server.target, connections=connections, clock=perf_counter)
    try:
        yield made
    finally:
        made.close()


def latencies(server: Server, magazine: Magazine, effort: Effort, tick: Tick) -> dict[str, Any]:
    """The mix at its rate, after one review alone and some rounds of all kinds but the cold one."""
    arrivals = list(magazine.arrivals(rate=effort.rate, seconds=effort.seconds))
    settling = magazine.settling(SETTLE_ROUNDS)
    with load(server, effort.connections) as client:
        (first,) = client.run(at_once([magazine.shot(FIRST)], number=1))
        client.run(at_once(settling, number=len(settling)))
        used, spent = process_time(), server.cpu_seconds()
        samples = client.run(
            iter(arrivals), lambda now: tick("reviews at their rate", now / effort.seconds)
        )
        busy = (process_time() - used) / effort.seconds
        ended = server.cpu_seconds()
    return {
        "url": server.url,
        "planner": planner_form(server),
        **server_report(
            samples,
            rate=effort.rate,
            seconds=effort.seconds,
            connections=effort.connections,
            first=first.seconds,
            busy=busy,
            server_busy=None
            if spent is None or ended is None
            else (ended - spent) / effort.seconds,
        ),
    }


def ratios(magazine: Magazine, effort: Effort, tick: Tick) -> dict[str, Any]:
    """Servers started one after the other, each as fast as it can with the same reviews."""
    jobs = magazine.jobs(JOBS, questions=QUESTIONS)
    anew = magazine.jobs(JOBS, questions=QUESTIONS, anew=True)
    raw = [Shot(kind=each.kind, request=to_raw(each.request)) for each in jobs]
    paces: dict[str, Pace] = {}
    form = ""
    for name, arguments, settings, asked in (
        (REFERENCE, OURS, {}, jobs),
        ("ours, decided anew", OURS, {}, anew),
        ("ours, every plan searched", OURS, {"plan_cache_size": 1}, anew),
        ("ours, no plan asked for", OURS, {}, magazine.plain_jobs(JOBS)),
        ("bare FastAPI, bytes", BARE, {}, raw),
        ("bare FastAPI, mappings", BARE, {}, jobs),
    ):
        with started(arguments, settings) as server:
            form = form or planner_form(server)
            paces[name] = saturated(server, asked, effort, partial(tick, name))
    return {"planner": form, **ratio_report(paces, connections=effort.connections)}


def saturated(
    server: Server, shots: list[Shot], effort: Effort, tick: Callable[[float], None]
) -> Pace:
    """How many of the shots the server answers when every connection always has one."""
    with load(server, effort.connections) as client:
        client.run(at_once(shots, number=SETTLE_ROUNDS * QUESTIONS))
        cpu, began = server.cpu_seconds(), perf_counter()
        endless = without_pause(shots, seconds=effort.seconds, clock=perf_counter)
        samples: list[Sample] = client.run(endless, lambda now: tick(now / effort.seconds))
        lasted, used = perf_counter() - began, server.cpu_seconds()
    return Pace(
        reviews=len(samples),
        errors=sum(each.outcome == "error" for each in samples),
        seconds=lasted,
        cpu_seconds=used - cpu if used is not None and cpu is not None else None,
    )


def to_raw(request: bytes) -> bytes:
    """The request, to the bare server's other handler."""
    return BARE_PATH + request[request.index(b"?") :]
