"""The reviews of a load: what they are, and that our own doors answer them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import orjson
import pytest

from app.catalog.loader import load_catalog
from app.cli.desk import open_webhooks
from app.cli.load.reviews import LARGE_BYTES, SHARES, Magazine, Shot


@pytest.fixture(scope="module")
def magazine() -> Magazine:
    return Magazine(load_catalog().models, seed=1)


def body(shot: Shot) -> bytes:
    """What the server parses."""
    head, _, rest = shot.request.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(rest)}".encode() in head
    return rest


@pytest.mark.parametrize("kind", [kind for kind in SHARES if kind != "auto cold"])
def test_every_warm_kind_is_allowed(magazine: Magazine, kind: str) -> None:
    shot = magazine.shot(kind)
    mutate, validate = open_webhooks(None, None)
    webhook = validate if shot.request.startswith(b"POST /validate") else mutate
    answer = webhook(body(shot))
    assert answer["response"]["allowed"] is True
    same = kind == "large object"
    assert (magazine.shot(kind).request == shot.request) is same


def specs_of(shots: Iterable[Shot]) -> list[dict[str, Any]]:
    return [orjson.loads(body(each))["request"]["object"]["spec"] for each in shots]


def test_cold_reviews_ask_different_questions(magazine: Magazine) -> None:
    specs = specs_of(magazine.shot("auto cold") for _ in range(64))
    assert len({(spec["model"], spec["numNodes"]) for spec in specs}) > 60


def test_jobs_differ_and_ask_questions_in_turn(magazine: Magazine) -> None:
    shots = magazine.jobs(96, questions=32)
    assert len({each.request for each in shots}) == 96
    asked = [(spec["model"], spec["numNodes"]) for spec in specs_of(shots)]
    assert asked[:32] == asked[32:64] == asked[64:]
    assert all(first != second for first, second in pairwise(asked))


def test_a_server_settles_without_cold_reviews(magazine: Magazine) -> None:
    settling = magazine.settling(2)
    assert {each.kind for each in settling} == SHARES.keys() - {"auto cold"}


def test_large_object_has_its_size(magazine: Magazine) -> None:
    assert LARGE_BYTES <= len(body(magazine.shot("large object"))) < 1.1 * LARGE_BYTES


def test_arrivals_follow_the_rate_and_the_shares(magazine: Magazine) -> None:
    arrivals = list(magazine.arrivals(rate=500, seconds=4))
    assert 1800 < len(arrivals) < 2200
    assert all(first.due < second.due for first, second in pairwise(arrivals))
    counts = Counter(each.shot.kind for each in arrivals)
    total = sum(SHARES.values())
    for kind, share in SHARES.items():
        assert abs(counts[kind] / len(arrivals) - share / total) < 0.05
