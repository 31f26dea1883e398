"""Processor time of one review inside the application, ours beside FastAPI's least handlers.

    python -m benchmarks.handlers [--rounds 300]

No sockets and no TLS, which cost all of them the same. The handlers take turns within one process,
and of the rounds the least counts, so that a busy machine changes the ratios little.
"""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from time import process_time

import uvloop
from starlette.types import ASGIApp

from app.catalog.loader import load_catalog
from app.cli.load.bare import bare_app
from app.cli.load.reviews import Magazine, Shot
from app.http.app import create_app
from app.http.settings import Settings
from app.main import compose, warm_up
from app.observability.known import ANSWERS_KEPT
from app.observability.logs import configure_logging
from app.planner import form
from benchmarks.soak import answer

QUESTIONS = 16
EACH = 10
LARGE = 1
"""Reviews of a round."""

Turn = tuple[str, ASGIApp, str, Iterator[bytes], int]


def body(shot: Shot) -> bytes:
    """What is parsed."""
    return shot.request.partition(b"\r\n\r\n")[2]


def turns(magazine: Magazine, ours: ASGIApp, bare: ASGIApp) -> list[Turn]:
    """Name, handler, path, endless bodies and how many of them make a round."""
    number = 2 * ANSWERS_KEPT
    jobs = [body(each) for each in magazine.jobs(number, questions=QUESTIONS)]
    anew = [body(each) for each in magazine.jobs(number, questions=QUESTIONS, anew=True)]
    plain = [body(each) for each in magazine.plain_jobs(number)]
    updates = [body(magazine.shot("update")) for _ in range(number)]
    large = [body(magazine.shot("large object"))]
    return [
        ("bare FastAPI, bytes", bare, "/raw", cycle(jobs), EACH),
        ("bare FastAPI, mappings", bare, "/mutate", cycle(jobs), EACH),
        ("ours, plans known", ours, "/mutate", cycle(jobs), EACH),
        ("ours, decided anew", ours, "/mutate", cycle(anew), EACH),
        ("ours, no plan asked for", ours, "/mutate", cycle(plain), EACH),
        ("ours, updates", ours, "/validate", cycle(updates), EACH),
        ("bare FastAPI, bytes, 1 MiB", bare, "/raw", cycle(large), LARGE),
        ("ours, 1 MiB", ours, "/mutate", cycle(large), LARGE),
    ]


async def measure(rounds: int) -> None:
    """Print the table."""
    catalog = load_catalog()
    service = compose(Settings(), catalog)
    warm_up(service.deps)
    each_turn = turns(Magazine(catalog.models, seed=1), create_app(service.deps), bare_app())
    gc.collect()
    gc.freeze()
    least: dict[str, float] = {}
    for _ in range(rounds):
        for name, app, path, bodies, number in each_turn:
            took = await timed(app, path, bodies, number)
            least[name] = min(least.get(name, took), took)
    print(f"planner {form()}")
    floor = least["bare FastAPI, bytes"]
    for name, seconds in least.items():
        print(f"{name:28} {seconds * 1e6:9.0f} us {seconds / floor:7.2f}")


async def timed(app: ASGIApp, path: str, bodies: Iterator[bytes], number: int) -> float:
    """Processor seconds of one review, of that many."""
    began = process_time()
    for _ in range(number):
        status = await answer(app, path, next(bodies))
        if status != 200:  # noqa: PLR2004 - HTTP
            raise SystemExit(f"HTTP {status}")
    return (process_time() - began) / number


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        configure_logging(level="info", form="json", stream=nowhere)
        uvloop.run(measure(rounds))


if __name__ == "__main__":
    main()
