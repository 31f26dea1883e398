"""Search against enumeration on real combinations. `EXHAUSTIVE_SAMPLE` says how many to try."""

from __future__ import annotations

import os

from app.advisor.bench import combinations, question
from app.catalog.loader import load_catalog
from app.planner.estimate import limit_bytes
from app.planner.request import PlanRequest
from app.planner.search import best_layout
from tests.planner_sums import sums

NEAR = 1e-9
SAMPLE = int(os.environ.get("EXHAUSTIVE_SAMPLE", "100"))
LARGEST = 20_000


def enumerated(request: PlanRequest) -> tuple[int, float]:
    """Size of the space, and the least step of all that fit, every leaf looked at."""
    limit, count, least = limit_bytes(request), 0, float("inf")
    host_limit = float(request.cluster.host_memory_bytes_per_node)
    for each in sums(request):
        count += 1
        if each.device_bytes <= limit and (not host_limit or each.host_bytes <= host_limit):
            least = min(least, each.seconds)
    return count, least


def test_equals_enumeration_on_real_combinations() -> None:
    """On every sampled model, GPU and size the search finds the least step, or there is none.

    The kernel's sums are held to the reference by the property tests. The largest spaces are left
    to those, too, so that this ends in minutes.
    """
    catalog, tried = load_catalog(), 0
    for combination in combinations(catalog, SAMPLE):
        request = question(catalog, combination)
        assert request is not None, combination
        best = best_layout(request)
        if best.configurations > LARGEST:
            continue
        tried += 1
        count, least = enumerated(request)
        assert best.configurations == count, combination
        if best.layout is None:
            assert least == float("inf"), combination
        else:
            assert abs(best.seconds - least) <= NEAR * least, combination
    assert tried > SAMPLE // 2
