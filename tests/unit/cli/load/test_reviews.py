"""The reviews of a load: what they are, and that our own doors answer them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

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
def test_every_fixed_kind_is_allowed(magazine: Magazine, kind: str) -> None:
    shot = magazine.shot(kind)
    mutate, validate = open_webhooks(None, None)
    webhook = validate if shot.request.startswith(b"POST /validate") else mutate
    answer = webhook(body(shot))
    assert answer["response"]["allowed"] is True
    assert magazine.shot(kind) is shot


def test_cold_reviews_ask_different_questions(magazine: Magazine) -> None:
    specs = [
        orjson.loads(body(each))["request"]["object"]["spec"] for each in magazine.questions(64)
    ]
    assert len({(spec["model"], spec["numNodes"]) for spec in specs}) > 60


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
