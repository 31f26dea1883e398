"""What is remembered: once for equal things, never for different ones, and only so much."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from app.catalog.loader import load_catalog
from app.observability.known import INTENT_BYTES, KnownIntents, Remembered
from app.planner.intent import TrainIntent, Unresolved
from app.planner.request import PlanRequest

INTENT = TrainIntent(
    model="llama-3-8b", node_labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, nodes=2
)


@pytest.fixture
def known() -> KnownIntents:
    return KnownIntents(partial(load_catalog().resolve, allowed_precisions=("bf16",)), size=4)


def test_a_value_is_worked_out_once() -> None:
    asked: list[object] = []
    function = Remembered(lambda value: asked.append(value) or len(asked), size=4)
    one, other = [1], [1]
    assert [function(one), function(other), function(one)] == [1, 2, 1]


def test_what_is_remembered_is_bounded() -> None:
    function = Remembered(str, size=4)
    values = [object() for _ in range(100)]
    for value in values:
        assert function(value) == str(value)
        assert len(function) <= 4


def test_an_intent_that_was_resolved_has_one_request(known: KnownIntents) -> None:
    first = known(INTENT)
    assert isinstance(first, PlanRequest)
    assert known(replace(INTENT)) is first
    assert known(replace(INTENT, paths={"model": "spec.model"})) is first


@pytest.mark.parametrize(
    "change",
    [
        {"model": "llama-3-70b"},
        {"nodes": 4},
        {"node_labels": {"nvidia.com/gpu.product": "NVIDIA-H200"}},
        {"sequence_length": 4096},
        {"pins": {"tp": 8}},
        {"pins": {"sequence_parallel": True}},
        {"fabric": "infiniband-400"},
        {"architecture": {"num_layers": 30, "hidden_size": 4096, "num_heads": 32}},
    ],
    ids=str,
)
def test_another_intent_is_another_question(known: KnownIntents, change: dict[str, Any]) -> None:
    first, other = known(INTENT), known(replace(INTENT, **change))
    assert isinstance(other, PlanRequest)
    assert first != other
    assert known(replace(INTENT, **change)) is other


def test_wrong_intents_are_told_where_their_author_wrote(known: KnownIntents) -> None:
    wrong = replace(INTENT, model="nobody-knows")
    for path in ("spec.model", "metadata.annotations[model]"):
        answer = known(replace(wrong, paths={"model": path}))
        assert isinstance(answer, Unresolved)
        assert [error.path for error in answer.errors] == [path]
    assert len(known) == 0


def test_beyond_json_is_resolved_all_the_same(known: KnownIntents) -> None:
    assert isinstance(known(replace(INTENT, nodes=2**70)), Unresolved)


def test_intents_are_bounded_in_number_and_length(known: KnownIntents) -> None:
    for nodes in range(1, 20):
        known(replace(INTENT, nodes=nodes))
    assert len(known) == 4
    long = replace(INTENT, node_labels={**INTENT.node_labels, "note": "x" * INTENT_BYTES})
    assert isinstance(known(long), PlanRequest)
    assert known(long) is not known(long)
