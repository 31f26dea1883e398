"""What a load says: latencies by kind, and throughputs as ratios."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.advisor.bench import spread
from app.cli.load.client import Sample
from app.cli.load.reviews import SHARES

BUCKET_SECONDS: Final = tuple(step * 10.0**power for power in range(-4, 2) for step in (1, 2, 5))
"""Upper bounds of the histogram: 1, 2, 5 in each decade from 0.1 ms to 50 s."""

REFERENCE: Final = "ours, plans known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """One server at saturation. `cpu_seconds` is the server's processor time, where known."""

    reviews: int
    errors: int
    seconds: float
    cpu_seconds: float | None

    @property
    def per_second(self) -> float:
        """Reviews answered in a second."""
        return (self.reviews - self.errors) / self.seconds if self.seconds else 0.0


def server_report(
    samples: Sequence[Sample],
    *,
    rate: float,
    seconds: float,
    connections: int,
    first: float,
    busy: float,
    server_busy: float | None,
) -> dict[str, Any]:
    """The report of `bench server`.

    `first` is the latency of the first review of all, `busy` and `server_busy` the processor time
    of client and server as shares of the run. The reached rate counts from the first arrival due to
    the last answer.
    """
    ended = max((each.due + each.seconds for each in samples), default=0.0)
    answered = [each for each in samples if each.outcome != "error"]
    lasted = max(seconds, ended)
    return {
        "rate": rate,
        "seconds": seconds,
        "connections": connections,
        "rate_reached": len(answered) / lasted if lasted else 0.0,
        "first_seconds": first,
        "client_cpu_share": busy,
        "server_cpu_share": server_busy,
        "all": tally(samples),
        "by_kind": {
            kind: tally([each for each in samples if each.kind == kind]) for kind in SHARES
        },
        "histogram": histogram([each.seconds for each in answered]),
    }


def tally(samples: Sequence[Sample]) -> dict[str, float]:
    """Latencies of what was answered, and how many were not, or were denied."""
    outcomes = Counter(each.outcome for each in samples)
    answered = spread([each.seconds for each in samples if each.outcome != "error"])
    return {**answered, "errors": outcomes["error"], "denied": outcomes["denied"]}


def histogram(seconds: Sequence[float]) -> list[dict[str, float]]:
    """How many took at most `le_seconds` and more than the bucket before; the ends are filled."""
    counts = Counter(
        min(bisect_left(BUCKET_SECONDS, each), len(BUCKET_SECONDS) - 1) for each in seconds
    )
    if not counts:
        return []
    return [
        {"le_seconds": BUCKET_SECONDS[index], "count": counts[index]}
        for index in range(min(counts), max(counts) + 1)
    ]


def ratio_report(paces: Mapping[str, Pace], *, connections: int) -> dict[str, Any]:
    """Throughput of each server at saturation, and as a share of ours with its plans known."""
    ours = paces[REFERENCE].per_second
    return {
        "connections": connections,
        "reviews_per_second": {name: pace.per_second for name, pace in paces.items()},
        "ratios": {name: pace.per_second / ours if ours else 0.0 for name, pace in paces.items()},
        "server_cpu_seconds_per_review": {
            name: pace.cpu_seconds / pace.reviews if pace.cpu_seconds and pace.reviews else None
            for name, pace in paces.items()
        },
        "errors": {name: pace.errors for name, pace in paces.items()},
    }
