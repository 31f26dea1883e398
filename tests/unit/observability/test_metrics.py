"""The metrics: named by the conventions, documented, and apart for each app."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.observability.metrics import NAMESPACE, Metrics

PAGE = Path(__file__).parents[3] / "docs/metrics.md"
BASE_UNITS = ("_seconds", "_bytes", "_total", "_info")


def fresh() -> Metrics:
    return Metrics(version="1.2.3", planner="pure Python", catalog_version="abc", worker=2)


def own_families(metrics: Metrics) -> dict[str, str]:
    """Name as a query writes it -> help."""
    families = text_string_to_metric_families(metrics.exposition().decode())
    suffix = {"counter": "_total", "info": "_info"}
    return {
        family.name.removesuffix("_info") + suffix.get(family.type, "")
        if family.type == "info"
        else family.name + suffix.get(family.type, ""): family.documentation
        for family in families
        if family.name.startswith(NAMESPACE)
    }


def documented() -> set[str]:
    return set(re.findall(r"^\| `(trainjob_advisor_\w+)` \|", PAGE.read_text(), re.MULTILINE))


def test_the_page_lists_exactly_the_metrics_there_are() -> None:
    assert documented() == set(own_families(fresh()))


def test_help_is_a_sentence() -> None:
    for name, text in own_families(fresh()).items():
        assert text[0].isupper() or text[0].isdigit(), name
        assert text.endswith("."), name


def test_two_apps_count_apart() -> None:
    first, second = fresh(), fresh()
    first.cache_lookups.labels("hit").inc()
    sample = "trainjob_advisor_plan_cache_lookups_total"
    assert first.registry.get_sample_value(sample, {"result": "hit"}) == 1
    assert second.registry.get_sample_value(sample, {"result": "hit"}) == 0


def test_what_is_built_and_loaded_is_told() -> None:
    text = fresh().exposition().decode()
    assert 'trainjob_advisor_build_info{planner="pure Python",version="1.2.3",worker="2"} 1' in text
    assert 'trainjob_advisor_catalog_info{version="abc"} 1' in text


@pytest.mark.parametrize("outcome", ["patched", "denied", "failed"])
def test_a_series_exists_before_its_first_event(outcome: str) -> None:
    """Otherwise `rate()` misses the first one."""
    labels = {"crd": "training.vsr.dev/v1alpha1", "operation": "CREATE", "outcome": outcome}
    sample = "trainjob_advisor_admission_reviews_total"
    assert fresh().registry.get_sample_value(sample, labels) == 0
