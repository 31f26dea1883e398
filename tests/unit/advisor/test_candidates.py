"""`/v1/candidates`: a bounded sample, with the plan in it, that yields to others."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

import pytest

from app.advisor.advise import Desk, PlanAnswer, answer_plan
from app.advisor.candidates import BUDGET, SHOWN, SLICE, answer_candidates, evenly, scattered
from app.advisor.choices import choices_body
from app.advisor.errors import Refusal
from app.catalog.loader import Catalog, load_catalog
from app.planner.search import plan

T = TypeVar("T")
SMALL = {"model": "llama-3-8b", "gpu": "H100-SXM5-80GB", "nodes": 1}
LARGE = {
    "model": "deepseek-v3", "gpu": "H100-SXM5-80GB", "nodes": 256, "framework": "megatron",
}  # fmt: skip
HOPELESS = {"model": "llama-3-70b", "gpu": "A10", "nodes": 1}
questions = pytest.mark.parametrize("question", [SMALL, LARGE], ids=["small", "large"])


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module")
def desk(catalog: Catalog) -> Desk:
    return Desk(
        catalog=catalog, planner=plan, clock=lambda: 0.0, allowed_precisions=("bf16", "fp16")
    )


def run(steps: Generator[None, None, T]) -> tuple[T, int]:
    """What the steps return, and how often they paused."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


def answered(question: dict[str, Any], desk: Desk) -> dict[str, Any]:
    answer, _ = run(answer_candidates(question, desk))
    assert not isinstance(answer, Refusal)
    return answer


@questions
def test_the_work_is_bounded_and_pauses(question: dict[str, Any], desk: Desk) -> None:
    answer, pauses = run(answer_candidates(question, desk))
    assert not isinstance(answer, Refusal)
    assert answer["evaluated"] <= BUDGET + 1
    assert len(answer["candidates"]) <= SHOWN + 1
    assert pauses >= (answer["evaluated"] - 1) // SLICE - 1


@questions
def test_the_plan_is_there_and_on_the_front(question: dict[str, Any], desk: Desk) -> None:
    best = answer_plan(question, desk)
    assert isinstance(best, PlanAnswer)
    candidates = answered(question, desk)["candidates"]
    shown = [one for one in candidates if one["layout"] == best.body["layout"]]
    assert any(one["pareto"] and one["within_limit"] for one in shown)
    usable = [one["step_time_seconds"] for one in candidates if one["within_limit"]]
    assert min(usable) == best.body["estimate"]["step_time_seconds"]


@questions
def test_no_other_beats_one_of_the_front(question: dict[str, Any], desk: Desk) -> None:
    candidates = answered(question, desk)["candidates"]
    for one in candidates:
        beaten = any(
            other["step_time_seconds"] <= one["step_time_seconds"]
            and other["memory_bytes"] < one["memory_bytes"]
            for other in candidates
        )
        assert not (one["pareto"] and beaten)


@questions
def test_no_layout_is_drawn_twice(question: dict[str, Any], desk: Desk) -> None:
    layouts = [str(one["layout"]) for one in answered(question, desk)["candidates"]]
    assert len(set(layouts)) >= len(layouts) - 1  # the plan may be in the sample too


def test_where_nothing_fits_there_is_a_picture_too(desk: Desk) -> None:
    candidates = answered(HOPELESS, desk)["candidates"]
    assert candidates
    assert not any(one["within_limit"] for one in candidates)


@pytest.mark.parametrize(
    ("question", "code"),
    [({"modle": 1}, "invalid_request"), (SMALL | {"model": "lama-3-8b"}, "unresolved")],
    ids=["unknown key", "unknown model"],
)
def test_a_wrong_question_is_refused(question: dict[str, Any], code: str, desk: Desk) -> None:
    answer, _ = run(answer_candidates(question, desk))
    assert isinstance(answer, Refusal)
    assert answer.code == code


@pytest.mark.parametrize("size", [1, 2, 3, 6, 30, 97, 1000])
def test_a_scattered_order_holds_each_number_once(size: int) -> None:
    assert sorted(scattered(size)) == list(range(size))


@pytest.mark.parametrize(("size", "count"), [(0, 5), (3, 5), (5, 5), (11, 5), (1000, 7)])
def test_even_places_are_at_most_as_many_as_wanted(size: int, count: int) -> None:
    places = evenly(size, count)
    assert len(places) <= count
    assert all(0 <= place < size for place in places)


def test_every_choice_is_one_a_question_may_make(catalog: Catalog, desk: Desk) -> None:
    choices = choices_body(desk)
    assert [one["name"] for one in choices["models"]] == list(catalog.models)
    assert [one["name"] for one in choices["gpus"]] == list(catalog.gpus)
    assert choices["frameworks"] == list(catalog.frameworks)
    for gpu in choices["gpus"]:
        if gpu["node_label"]:
            key, value = gpu["node_label"]
            assert catalog.gpu_of_labels({key: value}) == catalog.gpus[gpu["name"]]
