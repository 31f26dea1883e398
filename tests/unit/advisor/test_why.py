"""A layout against the plan: terms that sum up, rules by name, single changes that work."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from app.advisor.advise import Desk
from app.advisor.errors import Refusal
from app.advisor.why import Comparison, answer_explain, works
from app.catalog.loader import load_catalog
from app.planner.search import plan

DESK = Desk(
    catalog=load_catalog(),
    planner=plan,
    clock=itertools.count().__next__,
    allowed_precisions=("bf16", "fp16"),
)
JOB = {"model": "llama-3-70b", "gpu": "H100-SXM5-80GB", "nodes": 8}


def explained(layout: dict[str, Any], **more: Any) -> Comparison:
    answer = answer_explain(JOB | more | {"layout": layout}, DESK)
    assert isinstance(answer, Comparison), answer
    return answer


def test_the_plan_itself_is_the_plan() -> None:
    best = explained({}).body["plan"]["layout"]
    body = explained(best).body
    assert body["changed_fields"] == []
    assert body["works"]
    assert body["verdict"].endswith("is the plan.")


def test_terms_sum_to_the_difference_of_the_steps() -> None:
    body = explained({"tp": 8, "pp": 4}).body
    lost = body["estimate"]["step_time_seconds"] - body["plan"]["estimate"]["step_time_seconds"]
    assert sum(row["difference_seconds"] for row in body["time"]) == pytest.approx(lost)


def test_a_layout_of_other_gpus_is_not_compared_by_term() -> None:
    body = explained({"pp": 3}).body
    assert body["time"] == body["memory"] == []
    assert body["changed_fields"]
    assert body["verdict"].endswith("on other numbers of GPUs, terms are not compared")


def test_a_broken_rule_is_the_verdict() -> None:
    body = explained({"tp": 3}).body
    assert not body["works"]
    assert "not legal" in body["verdict"]
    assert any(one["field"] == "tp" and one["to"] == 2 for one in body["remedies"]) or any(
        one["field"] == "tp" for one in body["remedies"]
    )


def test_what_does_not_fit_says_by_how_much_and_what_would() -> None:
    answer = explained({"tp": 1, "recompute": "none"})
    assert answer.body["short_by_bytes"] > 0
    assert answer.remedies
    assert all(works(answer.request, one.estimate) for one in answer.remedies)
    distances = [one.distance for one in answer.remedies]
    assert distances == sorted(distances)


def test_a_bad_field_is_refused_where_it_is() -> None:
    answer = answer_explain(JOB | {"layout": {"tp": 0}}, DESK)
    assert isinstance(answer, Refusal)
    assert answer.errors[0].path == "layout.tp"
