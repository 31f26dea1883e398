"""What is remembered: once for equal things, never for different ones, and only so much."""

from __future__ import annotations

import copy
import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from app.admission.decide import mutate, told_apart, validate
from app.admission.decision import Decision
from app.admission.judge import judged
from app.admission.review import LAST_APPLIED, UNREAD, Review, parse_review
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
from app.trainjobs.labels import KUEUE_QUEUE
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


REVIEWS = {
    path.parent.name: json.loads(path.read_text())
    for path in sorted((Path(__file__).parents[2] / "golden").glob("*/*/request.json"))
}
every_review = pytest.mark.parametrize("document", REVIEWS.values(), ids=REVIEWS)


def parsed(document: Any) -> Review:
    return parse_review(orjson.dumps(document))


def leaves(node: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """Paths of all values in a document."""
    children = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in children:
        if isinstance(value, dict | list) and value:
            yield from leaves(value, *path, key)
        else:
            yield (*path, key)


def with_value(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value at a path."""
    changed = copy.deepcopy(document)
    here = changed
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    return changed


def is_unread(path: tuple[Any, ...]) -> bool:
    """Whether no decision depends on what stands there."""
    head, *rest = path[1:]
    if head not in {"object", "oldObject"}:
        read = {"kind", "subResource", "operation", "namespace"}
        some = {"resource": "resource", "userInfo": "username"}
        return head not in read and (head not in some or rest[0] != some[head])
    return rest[:1] == ["metadata"] and (
        rest[1] in UNREAD or rest[1:] == ["annotations", LAST_APPLIED]
    )


def is_of_a_run(document: Any, path: tuple[Any, ...]) -> bool:
    """Whether what stands there only tells runs of a `training.vsr.dev` job apart."""
    if document["request"]["kind"]["group"] != "training.vsr.dev":
        return False
    parts = [("spec", "command"), ("spec", "args"), ("metadata", "labels"), ("status",)]
    return any(path[2:][: len(each)] == each for each in parts)


key = partial(told_apart, deps=shipped())


@every_review
def test_decisions_depend_on_nothing_that_is_left_out(document: Any) -> None:
    """Whatever a review says in a place that is not compared, it is decided alike."""
    review = parsed(document)
    checked = 0
    for path in leaves(document["request"], "request"):
        if not is_unread(path) and not is_of_a_run(document, path):
            continue
        changed = parsed(with_value(document, path, "zzz")) if path[1] != "uid" else review
        if is_of_a_run(document, path) and key(changed) != key(review):
            continue
        assert key(changed) == key(review), path
        for decide in (mutate, validate):
            assert decide(changed, shipped()) == decide(review, shipped()), path
        checked += 1
    assert checked >= 5


@every_review
def test_every_other_difference_is_another_review(document: Any) -> None:
    seen = {key(parsed(document))}
    paths = [
        each
        for each in leaves(document["request"], "request")
        if not is_unread(each) and not is_of_a_run(document, each)
    ]
    for path in paths:
        if path[1] in {"operation", "object", "oldObject"} and len(path) == 2:
            continue
        changed = key(parsed(with_value(document, path, "zzz")))
        assert changed not in seen, path
        seen.add(changed)
    assert len(paths) > 10


@pytest.mark.parametrize(
    ("change", "alike"),
    [
        ({"args": ["--lr=2e-5"]}, True),
        ({"args": ["--lr=1e-5", "--seed=3"], "command": ["torchrun"]}, False),
        ({"args": ["--lr=1e-5", 3]}, False),
        ({"args": "--lr=1e-5"}, False),
        ({"args": None}, False),
        ({"env": [{"name": "LR", "value": "1e-5"}]}, False),
        ({"image": "train:2"}, False),
    ],
    ids=str,
)
def test_another_run_of_a_job_is_known(change: dict[str, Any], *, alike: bool) -> None:
    """It differs in its arguments, labels and status alone."""
    first = auto_job(args=["--lr=1e-5"])
    first["metadata"]["labels"], first["status"] = {"run": "1"}, {"phase": "Pending"}
    second = copy.deepcopy(first)
    second["spec"] |= change
    second["metadata"]["labels"] = {"run": "2", "sweep": "7"}
    second["status"] |= {"startTime": "2026-11-30T10:00:00Z"}
    assert (key(parsed(review_of(first))) == key(parsed(review_of(second)))) is alike


def test_what_the_queue_and_the_phase_say_counts() -> None:
    documents = [review_of(auto_job()) for _ in range(4)]
    jobs = [each["request"]["object"] for each in documents]
    jobs[1]["metadata"]["labels"] = {KUEUE_QUEUE: "q"}
    jobs[2]["metadata"]["labels"] = {KUEUE_QUEUE: "other"}
    jobs[3]["status"] = {"phase": "Running"}
    assert len({key(parsed(each)) for each in documents}) == 4


def test_a_command_that_the_rules_know_is_another() -> None:
    """All that they tell of it counts, and no more."""
    rules = Rules.from_rows(load_catalog().collective_rules)
    lines = ["torchrun train.py", "python train.py", "deepspeed train.py", "NCCL_ALGO=Tree sh -c x"]
    told = {each: key(parsed(review_of(auto_job(args=each.split())))) for each in lines}
    for one in lines:
        for other in lines:
            same = rules.told_of(one) == rules.told_of(other)
            assert (told[one] == told[other]) is same


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
        answers(parsed(review_of(auto_job(image=f"train:{number}"))))
    assert len(answers) == ANSWERS_KEPT
    before = len(answers)
    long = parsed(review_of(auto_job(args=["x" * DECIDING_BYTES])))
    assert answers(long) is not answers(long)
    assert len(answers) == before


def test_what_can_be_read_but_not_written_is_decided_each_time() -> None:
    body = json.dumps(review_of(auto_job(evalConfig={"deep": "here"})))
    deep = "[" * 600 + "]" * 600
    assert key(parse_review(body.replace('"here"', deep).encode())) == b""


def test_a_search_that_was_given_up_leaves_nothing() -> None:
    answers = KnownAnswers(
        partial(mutate, deps=shipped()), Metrics(version="", planner="", catalog_version="")
    )
    review = parsed(review_of(auto_job(numNodes=777)))
    with pytest.raises(OutOfTime):
        answers(review, lambda: True)
    assert len(answers) == 0
    assert answers(review).decision.outcome in {"patched", "denied"}
