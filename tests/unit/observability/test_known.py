"""What is remembered: once for equal things, never for different ones, and only so much."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
import pytest

from app.admission.decide import mutate
from app.admission.decision import Decision
from app.admission.judge import judged
from app.admission.review import Review, parse_review
from app.catalog.loader import load_catalog
from app.observability.known import (
    ANSWERS_KEPT,
    CONTEXT_BYTES,
    DECIDING_BYTES,
    INTENT_BYTES,
    KnownAnswers,
    KnownEnvironments,
    KnownIntents,
    KnownVerdicts,
    Remembered,
    kept,
)
from app.observability.metrics import Metrics
from app.planner.intent import TrainIntent, Unresolved
from app.planner.request import OutOfTime, Plan, PlanRequest, Stop
from app.planner.search import plan
from app.trainjobs.adapter import CollectiveContext, DeclaredLayout
from app.trainjobs.collectives import Rules
from tests.vsr.reviews import auto_job, review_of, shipped


def test_what_is_kept_has_the_size_of_its_content() -> None:
    written = orjson.dumps("x" * 700)
    tracemalloc.start()
    try:
        copies = [kept(written) for _ in range(100)]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert copies[0] == written
    assert held < 100 * (len(written) + 100)


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


def test_an_environment_is_remembered_for_what_the_rules_see() -> None:
    rules = Rules.from_rows(load_catalog().collective_rules)
    known = KnownEnvironments(rules, size=4)
    context = CollectiveContext(nodes=2, gpus_per_node=8, instance_type="p5.48xlarge")
    first = known(context, None)
    assert first == rules.environment(context, None)
    assert known(replace(context, user_env={"RUN": "7"}, command="train"), None) is first
    other = replace(context, user_env={"NCCL_DEBUG": "INFO"})
    assert known(other, None) == rules.environment(other, None)
    for nodes in range(3, 20):
        known(replace(context, nodes=nodes), None)
    assert len(known) == 4
    long = replace(context, instance_type="x" * CONTEXT_BYTES)
    assert known(long, None) is not known(long, None)


def test_each_plan_has_its_environment() -> None:
    known = KnownEnvironments(Rules.from_rows(load_catalog().collective_rules), size=4)
    wide, narrow = (
        plan(request)
        for request in (
            load_catalog().resolve(replace(INTENT, pins=pins)) for pins in ({"tp": 8}, {"tp": 1})
        )
        if isinstance(request, PlanRequest)
    )
    assert isinstance(wide, Plan)
    assert isinstance(narrow, Plan)
    context = CollectiveContext(nodes=2, gpus_per_node=8)
    answers = [known(context, each) for each in (wide, narrow, wide, None)]
    assert answers[0] is answers[2]
    assert len({id(each) for each in answers}) == 3


DECLARED = DeclaredLayout(
    intent=INTENT, fields={"tp": 8, "pp": 1}, paths={"tp": "spec.tpDegree", "pp": "spec.ppDegree"}
)


def test_a_verdict_is_remembered_for_what_is_stated(known: KnownIntents) -> None:
    verdicts = KnownVerdicts(known, size=4)
    first = verdicts(DECLARED, known=set())
    assert first == judged(DECLARED, known, known=set())
    again = replace(DECLARED, intent=replace(INTENT), fields=dict(DECLARED.fields))
    assert verdicts(again, known=set()) is first
    others = [
        (replace(DECLARED, fields={"tp": 3, "pp": 1}), set[str]()),
        (replace(DECLARED, fields={"tp": 16, "pp": 1}), {"spec.tpDegree"}),
        (replace(DECLARED, fields={"tp": 3, "pp": 1}, paths={}), set[str]()),
        (replace(DECLARED, intent=replace(INTENT, nodes=4)), set[str]()),
        (replace(DECLARED, intent=replace(INTENT, model="nobody-knows")), set[str]()),
        (replace(DECLARED, fields={"tp": 2**70}), set[str]()),
    ]
    for _ in range(2):
        for other, errors in others:
            verdict = verdicts(other, known=errors)
            assert verdict == judged(other, known, known=errors)
            assert verdict != first or other.intent.nodes == 4
    assert len(verdicts) == 4


def test_a_verdict_on_what_is_unknown_or_too_long_is_not_kept(known: KnownIntents) -> None:
    verdicts = KnownVerdicts(known, size=4)
    verdicts(replace(DECLARED, intent=replace(INTENT, model="nobody-knows")), known=set())
    verdicts(replace(DECLARED, fields={"tp": 2**70}), known=set())
    verdicts(replace(DECLARED, paths={"tp": "x" * INTENT_BYTES}), known=set())
    assert len(verdicts) == 0


def parsed(document: Any) -> Review:
    return parse_review(orjson.dumps(document))


def test_an_answer_is_remembered_for_jobs_of_another_name() -> None:
    decided: list[Review] = []

    def decide(review: Review, *, stop: Stop) -> Decision:
        decided.append(review)
        return mutate(review, shipped(), stop=stop)

    answers = KnownAnswers(decide, Metrics(version="", planner="", catalog_version=""))
    first = answers(parsed(review_of(auto_job())))
    job = auto_job()
    job["metadata"] |= {"name": "another", "uid": "2", "managedFields": [{"manager": "kubectl"}]}
    assert answers(parsed(review_of(job, uid="2", dryRun=True))) is first
    assert len(decided) == 1
    assert answers(parsed(review_of(auto_job(numNodes=2)))) is not first


def test_answers_are_bounded_in_number_and_length() -> None:
    answers = KnownAnswers(
        lambda _, stop: Decision(outcome="unchanged"),  # noqa: ARG005 - it never takes long
        Metrics(version="", planner="", catalog_version=""),
    )
    for number in range(ANSWERS_KEPT + 100):
        answers(parsed(review_of(auto_job(model=f"model-{number}"))))
    assert len(answers) == ANSWERS_KEPT
    before = len(answers)
    long = parsed(review_of(auto_job(args=["x" * DECIDING_BYTES])))
    assert answers(long) is not answers(long)
    assert len(answers) == before


def test_a_search_that_was_given_up_leaves_nothing() -> None:
    answers = KnownAnswers(
        partial(mutate, deps=shipped()), Metrics(version="", planner="", catalog_version="")
    )
    review = parsed(review_of(auto_job(numNodes=777)))
    with pytest.raises(OutOfTime):
        answers(review, lambda: True)
    assert len(answers) == 0
    assert answers(review).decision.outcome in {"patched", "denied"}
