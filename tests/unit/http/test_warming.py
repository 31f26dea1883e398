"""What is answered before a process is ready reaches all that real reviews do."""

from __future__ import annotations

from collections import Counter

from structlog.typing import EventDict

from app.admission.decide import mutate, validate
from app.admission.review import parse_review
from app.catalog.loader import Catalog
from app.http.warming import answer_samples, samples
from app.main import Service, warm_up
from tests.counting import counting


def test_samples_are_planned_judged_and_skipped(service: Service, catalog: Catalog) -> None:
    deps = service.deps.admission
    reviews = [parse_review(each) for each in samples(catalog)]
    planned = Counter(each.group for each in reviews if mutate(each, deps).headline)
    assert planned == {"training.vsr.dev": 1, "trainer.kubeflow.org": 1}
    outcomes = {mutate(each, deps).outcome for each in reviews}
    assert outcomes == {"patched", "skipped"}
    assert not [each for each in reviews if not validate(each, deps).allowed]
    with counting() as calls:
        assert answer_samples(catalog, deps) == 2 * len(reviews)
    assert {
        "KnownVerdicts.__call__",
        "mutate",
        "validate",
        "KnownEnvironments.__call__",
        "response_bytes",
    } <= set(calls)


def test_warming_up_is_neither_counted_nor_logged(service: Service, lines: list[EventDict]) -> None:
    warm_up(service.deps)
    assert service.deps.health.warm
    assert not [line for line in lines if line["event"] == "review"]
    assert b'outcome="patched"} 1' not in service.deps.metrics.exposition()
