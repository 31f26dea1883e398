"""A million reviews in one process: whether its memory stays where it is.

    python -m benchmarks.soak [--reviews 1000000]

The application is called as a server calls it, without sockets. Every review differs from all
others: in its name, and by turns in its time limit, its model, its sizes, its old object. The plan
cache holds 256 plans, so that it is full long before the end. Log lines are written and dropped.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import orjson
import uvloop
from starlette.types import ASGIApp, Message

from app.catalog.loader import load_catalog
from app.cli.load.reviews import auto_spec, plain_spec, review, update
from app.http.app import create_app
from app.http.settings import Settings
from app.main import compose, warm_up
from app.observability.logs import configure_logging
from app.planner import form

STEPS = 20
PLANS_KEPT = 256
MIX = (
    ("a plan for a model of its own", 1),
    ("a model nobody knows", 4),
    ("no review", 5),
    ("an update", 40),
    ("no plan asked for", 50),
    ("another job, a plan known", 100),
    ("the job of before under another name", 800),
)
"""Of a thousand reviews."""


def bodies(number: int) -> Iterator[tuple[str, bytes]]:
    """Paths and bodies of that many reviews, spread evenly."""
    kinds = [kind for kind, share in MIX for _ in range(share)]
    for index in range(number):
        # 7 and 1000 have no common factor: every kind has its share of each thousand.
        kind = kinds[index * 7 % len(kinds)]
        path = "/validate" if kind == "an update" else "/mutate"
        document = documented(kind, index)
        document["request"]["uid"] = f"{index:036}"
        document["request"]["object"]["metadata"]["name"] = f"run-{index}"
        yield path, orjson.dumps(document if kind != "no review" else {"run": index})


def documented(kind: str, index: int) -> dict[str, Any]:
    """The review of one kind."""
    if kind == "a plan for a model of its own":
        shape = {"hiddenDim": 1024, "numLayers": 8 + index % 64, "numHeads": 8}
        return review({**auto_spec(model=f"own-{index}", nodes=1), "modelSpec": shape})
    if kind == "a model nobody knows":
        return review(auto_spec(model=f"unknown-{index}"))
    if kind == "another job, a plan known":
        return review({**auto_spec(nodes=1 + index % 8), **own(index)})
    if kind == "an update":
        return update({**plain_spec(), **own(index)})
    return review(plain_spec() if kind == "no plan asked for" else auto_spec())


def own(index: int) -> dict[str, str]:
    """A time limit that no other job has, so that each is decided by itself."""
    return {"maxRuntime": f"{index + 1}m"}


def resident_bytes() -> int:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def answer(app: ASGIApp, path: str, body: bytes) -> int:
    """The status a review is answered with."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "root_path": "",
        "query_string": b"timeout=10s",
        "headers": [(b"content-type", b"application/json")],
    }
    await app(scope, receive, send)
    return int(sent[0]["status"])


async def soak(number: int) -> None:
    """Answer them all, and print what is held after every twentieth part."""
    service = compose(Settings(plan_cache_size=PLANS_KEPT), load_catalog())
    warm_up(service.deps)
    app = create_app(service.deps)
    gc.collect()
    gc.freeze()
    print(f"planner {form()}")
    print(f"{'reviews':>10} {'resident MiB':>13} {'objects':>9} {'plans':>6} {'CPU us each':>12}")
    used = process_time()
    for index, (path, body) in enumerate(bodies(number), start=1):
        status = await answer(app, path, body)
        await asyncio.sleep(0)  # a loop that never turns keeps the timers of past reviews
        if status not in (200, 400):
            raise SystemExit(f"HTTP {status} to {body!r}")
        if index % (number // STEPS) == 0:
            gc.collect()
            plans = service.deps.metrics.registry.get_sample_value(
                "trainjob_advisor_plan_cache_entries"
            )
            each = (process_time() - used) / (number // STEPS)
            print(
                f"{index:>10,} {resident_bytes() / 2**20:>13.1f} {len(gc.get_objects()):>9,}"
                f" {plans or 0:>6.0f} {each * 1e6:>12.0f}",
                flush=True,
            )
            used = process_time()


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reviews", type=int, default=1_000_000)
    number = parser.parse_args().reviews
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        configure_logging(level="info", form="json", stream=nowhere)
        uvloop.run(soak(max(number, STEPS)))


if __name__ == "__main__":
    main()
