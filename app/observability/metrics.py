"""Every metric of the service, on a registry of its own, so that two apps never share a counter.

Label values come from the closed sets below; nothing a user wrote ever becomes one. The table for
people is docs/metrics.md, and a test compares the two.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

NAMESPACE = "trainjob_advisor"

CRDS = ("training.vsr.dev/v1alpha1", "trainer.kubeflow.org/v1alpha1", "other", "none")
"""API of the reviewed object: `other` is one we do not serve, `none` a body that names none."""
OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT", "none")
OUTCOMES = ("patched", "unchanged", "skipped", "denied", "malformed", "late", "failed")
RELOADS = ("loaded", "rejected")

# Around the latency budget, and no further than the longest webhook timeout.
REVIEW_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 2.5, 10, 30)
SEARCH_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1)
CANDIDATES = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000)


Family = TypeVar("Family", Counter, Gauge, Histogram)


class Series(dict[tuple[str, ...], Family], Generic[Family]):
    """The series of one family by their label values, each looked up there once."""

    def __init__(self, family: Family) -> None:
        super().__init__()
        self._family: Family = family

    def __missing__(self, labels: tuple[str, ...]) -> Family:
        found: Family = self._family.labels(*labels)
        self[labels] = found
        return found


class Metrics:
    """The instruments. One object per app."""

    def __init__(
        self, *, version: str, planner: str, catalog_version: str, worker: int = 0
    ) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # untyped upstream
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.reviews = Counter(
            "admission_reviews",
            "Admission reviews answered, by API, operation and outcome.",
            ("crd", "operation", "outcome"),
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.review_duration = Histogram(
            "admission_review_duration_seconds",
            "Seconds from the last byte of a review to its answer.",
            ("crd",),
            namespace=NAMESPACE,
            buckets=REVIEW_SECONDS,
            registry=self.registry,
        )
        self.search_duration = Histogram(
            "plan_search_duration_seconds",
            "Seconds one search for a plan took; answers from the cache are not counted.",
            namespace=NAMESPACE,
            buckets=SEARCH_SECONDS,
            registry=self.registry,
        )
        self.candidates = Histogram(
            "plan_candidates",
            "Layouts one search evaluated in full.",
            namespace=NAMESPACE,
            buckets=CANDIDATES,
            registry=self.registry,
        )
        self.cache_lookups = Counter(
            "plan_cache_lookups",
            "Questions put to the plan cache, by whether it knew the answer.",
            ("result",),
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.cache_entries = Gauge(
            "plan_cache_entries",
            "Plans the cache holds now.",
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.answer_lookups = Counter(
            "answer_lookups",
            "Reviews compared with those answered before, by whether there was an equal one.",
            ("result",),
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.http_requests = Counter(
            "http_requests",
            "HTTP requests answered, by route template, method and status.",
            ("route", "method", "status"),
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.certificate_not_after = Gauge(
            "certificate_not_after_seconds",
            "Unix time at which the certificate being served ends; 0 while none is served.",
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.certificate_reloads = Counter(
            "certificate_reloads",
            "Certificate files read again because they changed, by whether the new pair was taken.",
            ("result",),
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.certificate_rejected = Gauge(
            "certificate_files_rejected",
            "1 while the certificate files on disk are not fit to serve, otherwise 0.",
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.ready = Gauge(
            "ready",
            "1 while this process takes reviews, otherwise 0.",
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self._describe(version=version, planner=planner, worker=worker, catalog=catalog_version)
        self._start_at_zero()

    def _describe(self, *, version: str, planner: str, worker: int, catalog: str) -> None:
        build = Info(
            "build",
            "Version of this program, form of its planner, and number of this worker process.",
            namespace=NAMESPACE,
            registry=self.registry,
        )
        build.info({"version": version, "planner": planner, "worker": str(worker)})
        facts = Info(
            "catalog", "Version of the catalog in use.", namespace=NAMESPACE, registry=self.registry
        )
        facts.info({"version": catalog})

    def _start_at_zero(self) -> None:
        """Create the series whose first increment must be visible to `rate()`."""
        for result in ("hit", "miss"):
            self.cache_lookups.labels(result)
            self.answer_lookups.labels(result)
        for result in RELOADS:
            self.certificate_reloads.labels(result)
        for crd in CRDS[:2]:
            for operation in OPERATIONS[:2]:
                for outcome in OUTCOMES:
                    self.reviews.labels(crd, operation, outcome)

    def exposition(self) -> bytes:
        """All of it in the Prometheus text format."""
        return generate_latest(self.registry)
