"""The bench of the search: which combinations, and what the report counts."""

from __future__ import annotations

from itertools import count

import pytest

from app.advisor.bench import (
    GPUS_PER_NODE,
    NODES,
    combinations,
    growth,
    percentile,
    question,
    search_report,
    timed,
)
from app.catalog.loader import Catalog, load_catalog


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def test_grid_is_every_model_gpu_and_size_once(catalog: Catalog) -> None:
    grid = list(combinations(catalog))
    assert len(grid) == len(catalog.models) * len(catalog.gpus) * len(NODES) * len(GPUS_PER_NODE)
    assert len(set(grid)) == len(grid)


def test_sample_is_the_start_of_a_larger_one(catalog: Catalog) -> None:
    few, more = list(combinations(catalog, 20)), list(combinations(catalog, 50))
    assert more[:20] == few
    assert len({each.model for each in more}) > 10


def test_every_sampled_combination_resolves(catalog: Catalog) -> None:
    assert all(question(catalog, each) for each in combinations(catalog, 50))


def test_report_counts_what_was_searched(catalog: Catalog) -> None:
    ticks = count()
    measured = list(timed(catalog, 12, lambda: float(next(ticks))))
    report = search_report(measured, [], form="pure Python")
    assert report["search"] == {
        "count": 12,
        "median_seconds": 1.0,
        "p99_seconds": 1.0,
        "max_seconds": 1.0,
    }
    assert report["plan"]["count"] + report["refusal"]["count"] == 12
    assert report["configurations_per_second"] == report["configurations"] / 12
    assert 0 < report["pruned_share"] < 1
    assert len(report["slowest"]) == 10


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, 0.0), ([1.0], 0.99, 1.0), ([1.0, 2.0, 3.0], 0.5, 2.0)],
)
def test_percentile(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


def test_growth_counts_every_size(catalog: Catalog) -> None:
    """GPUs, layers and experts, each from small to large; a dense model has no experts."""
    ticks = count()
    rows = growth(catalog, lambda: float(next(ticks)))
    assert {(each["model"], each["axis"]) for each in rows} == {
        ("llama-3-70b", "GPUs"),
        ("llama-3-70b", "layers"),
        ("qwen3-30b-a3b", "GPUs"),
        ("qwen3-30b-a3b", "layers"),
        ("qwen3-30b-a3b", "experts"),
    }
    assert max(each["size"] for each in rows if each["axis"] == "GPUs") == 65_536
    assert all(0 <= each["evaluated"] <= 0.01 * each["configurations"] + 20 for each in rows)
