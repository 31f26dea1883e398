"""What the reports of a load count."""

from __future__ import annotations

import pytest

from app.cli.load.client import Outcome, Sample
from app.cli.load.report import (
    BUCKET_SECONDS,
    REFERENCE,
    Pace,
    histogram,
    ratio_report,
    server_report,
)


def sample(seconds: float, outcome: Outcome = "allowed", kind: str = "auto warm") -> Sample:
    return Sample(kind=kind, due=1.0, seconds=seconds, outcome=outcome)


def test_errors_are_counted_and_not_timed() -> None:
    samples = [sample(0.001), sample(0.003, "denied", "auto cold"), sample(9.0, "error")]
    report = server_report(
        samples, rate=1, seconds=10, connections=2, first=0.1, busy=0.2, server_busy=None
    )
    assert report["all"]["count"] == 2
    assert report["all"]["errors"] == 1
    assert report["all"]["denied"] == 1
    assert report["all"]["max_seconds"] == 0.003
    assert report["by_kind"]["auto warm"]["errors"] == 1
    assert report["rate_reached"] == 0.2


def test_the_reached_rate_counts_the_time_until_the_last_answer() -> None:
    report = server_report(
        [sample(9.0), sample(3.0)],
        rate=1,
        seconds=2,
        connections=1,
        first=0,
        busy=0,
        server_busy=0.5,
    )
    assert report["rate_reached"] == 0.2


def test_histogram_holds_every_answer_once() -> None:
    seconds = [0.0001, 0.00011, 0.004, 0.005, 1000.0]
    buckets = histogram(seconds)
    assert sum(each["count"] for each in buckets) == len(seconds)
    assert buckets[0] == {"le_seconds": BUCKET_SECONDS[0], "count": 1}
    assert buckets[-1]["le_seconds"] == BUCKET_SECONDS[-1]
    assert {each["le_seconds"]: each["count"] for each in buckets}[0.005] == 2
    assert histogram([]) == []


def test_ratios_are_of_ours_with_plans_known() -> None:
    ours = Pace(reviews=100, errors=0, seconds=1.0, cpu_seconds=0.5)
    bare = Pace(reviews=410, errors=10, seconds=1.0, cpu_seconds=None)
    report = ratio_report({REFERENCE: ours, "bare": bare}, connections=4)
    assert report["ratios"] == {REFERENCE: pytest.approx(1.0), "bare": pytest.approx(4.0)}
    assert report["server_cpu_seconds_per_review"] == {REFERENCE: 0.005, "bare": None}
    assert report["errors"]["bare"] == 10
