"""Which reviews are decided alike: never two that are not, and as many as can be."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonpatch
import orjson
import pytest

from app.admission.decide import Deps, mutate, told_apart, validate
from app.admission.review import LAST_APPLIED, MalformedReview, Review, parse_review
from app.catalog.loader import load_catalog
from app.observability.metrics import Metrics
from app.observability.planning import CachedPlanner
from app.planner.search import plan
from app.trainjobs.collectives import Rules
from app.trainjobs.labels import ENVIRONMENT, KUEUE_QUEUE, LORA_RANK, PREFIX, SEQUENCE_LENGTH
from app.trainjobs.patch import as_json
from tests.vsr.reviews import auto_job, manual_job, review_of, shipped

Document = dict[str, Any]
Place = tuple[Any, ...]

ABSENT: Final = object()
VALUES: Final = ("zzz", "1", "", None, 3, True, [], {}, ["zzz"], ABSENT)
"""What is put in every place of a review."""
RUN: Final = {"name": "RUN", "value": "1"}
TWO: Final = {"name": "RUN", "value": "2"}
DEBUG: Final = {"name": "NCCL_DEBUG", "value": "INFO"}
EXPERTS: Final = {"name": "EP_DEGREE", "value": "2"}


@cache
def deps() -> Deps:
    """Admission that searches once for a question."""
    metrics = Metrics(version="", planner="", catalog_version="")
    return replace(shipped(), plan=CachedPlanner(plan, metrics, size=64))


def parsed(document: Any) -> Review:
    return parse_review(orjson.dumps(document))


def key(document: Any) -> bytes:
    return told_apart(parsed(document), deps())


def full_job(**spec: Any) -> Document:
    """An auto job with a value in most places that a job can have one in."""
    job = auto_job(
        command=["torchrun"],
        args=["--lr=1e-5", "train.py"],
        checkpoint={"enabled": True, "storagePath": "/checkpoints/1"},
        maxRuntime="36h",
        env=[
            RUN,
            TWO,
            DEBUG,
            EXPERTS,
            {"name": "TP_DEGREE", "value": "2"},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "token"}}},
        ],
        **spec,
    )
    job["metadata"] |= {
        "labels": {"run": "1", KUEUE_QUEUE: "research"},
        "annotations": {
            SEQUENCE_LENGTH: "4096",
            f"{PREFIX}lora-rnk": "8",
            "example.org/owner": "ann",
            LAST_APPLIED: "{}",
        },
    }
    return job


def planned(job: Document) -> Document:
    """The job as it is stored after `/mutate`."""
    decision = mutate(parsed(review_of(job)), deps())
    stored = jsonpatch.apply_patch(job, as_json(decision.operations))
    assert isinstance(stored, dict)
    return stored


def changed(job: Document, **spec: Any) -> Document:
    """The job with another spec."""
    return {**job, "spec": {**job["spec"], **spec}}


def documents() -> dict[str, Document]:
    """Reviews of every kind: as the API server sent them, and of the jobs above."""
    golden = {
        path.parent.name: json.loads(path.read_text())
        for path in sorted((Path(__file__).parents[2] / "golden").glob("*/*/request.json"))
    }
    stored = planned(full_job())
    unrecorded = planned(full_job())
    del unrecorded["metadata"]["annotations"][ENVIRONMENT]
    recorded = full_job()
    recorded["metadata"]["annotations"][ENVIRONMENT] = '[{"name": "RUN", "value": "2"}]'
    manual = full_job(autoParallelism=False, tpDegree=2, ppDegree=1)
    running = {**manual_job(env=[RUN]), "status": {"phase": "Running"}}
    return golden | {
        "full": review_of(full_job()),
        "full, manual": review_of(manual),
        "another variable": review_of(changed(manual, env=[RUN]), old=changed(manual, env=[TWO])),
        "planned before": review_of(stored),
        "planned, and its record lost": review_of(unrecorded),
        "a record of its author's": review_of(recorded),
        "applied again": review_of(changed(stored, env=full_job()["spec"]["env"]), old=stored),
        "grown": review_of(changed(stored, numNodes=2), old=stored),
        "resized while running": review_of(changed(running, numNodes=2), old=running),
        "another variable while running": review_of(changed(running, env=[TWO]), old=running),
    }


DOCUMENTS = documents()
every_review = pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)


def places(node: Any, *path: Any) -> Iterator[Place]:
    """Paths of all values in a document, objects and lists among them."""
    children = node.items() if isinstance(node, dict) else enumerate(node)
    for name, value in children:
        yield (*path, name)
        if isinstance(value, dict | list):
            yield from places(value, *path, name)


def with_values(document: Document, paths: list[Place], value: Any) -> Document:
    """A copy with another value in some places, those that there are."""
    copied = copy.deepcopy(document)
    for path in paths:
        here: Any = copied
        try:
            for name in path[:-1]:
                here = here[name]
            if value is ABSENT:
                del here[path[-1]]
            else:
                here[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue
    return copied


def variants(document: Document) -> Iterator[Document]:
    """The review with one thing changed: in the job, in what it was, or in both alike."""
    for path in places(document["request"], "request"):
        sets = [[path]]
        if path[1] == "object" and document["request"].get("oldObject"):
            sets.append([path, ("request", "oldObject", *path[2:])])
        for paths in sets:
            for value in VALUES:
                yield with_values(document, paths, value)


@every_review
def test_reviews_that_look_alike_are_decided_alike(document: Document) -> None:
    """Whatever a review says anywhere: one that is not told apart has the same decision."""
    known, decisions = (
        key(document),
        [door(parsed(document), deps()) for door in (mutate, validate)],
    )
    alike = apart = 0
    for other in variants(document):
        try:
            same = key(other) == known
        except MalformedReview:
            continue
        if same:
            found = [door(parsed(other), deps()) for door in (mutate, validate)]
            assert found == decisions, other
            alike += 1
        else:
            apart += 1
    assert alike > 20
    assert apart > 20


def answered_as(job: Document) -> bytes:
    return key(review_of(job))


SAME_ANSWER = {
    "name": {"metadata": {"name": "other", "namespace": "research"}},
    "arguments": {"args": ["--lr=2e-5", "train.py"]},
    "image": {"image": "registry.example/train:2"},
    "place of checkpoints": {"checkpoint": {"enabled": True, "storagePath": "/checkpoints/2"}},
    "a variable": {"env": [TWO, DEBUG, EXPERTS]},
    "labels": {"labels": {"run": "2", "sweep": "7"}},
    "a foreign annotation": {"annotations": {"example.org/owner": "bob", LORA_RANK: "8"}},
}
ANOTHER_ANSWER = {
    "arguments that are none": {"args": ["--lr=1e-5", 3]},
    "arguments in one text": {"args": "--lr=1e-5"},
    "arguments that the rules know": {"args": ["source set_nccl_env", "train.py"]},
    "no image": {"image": " "},
    "no place of checkpoints": {"checkpoint": {"enabled": True, "storagePath": ""}},
    "a variable of the rules": {"env": [RUN, {**DEBUG, "value": "WARN"}, EXPERTS]},
    "a variable of the plan": {"env": [RUN, DEBUG, {**EXPERTS, "value": "4"}]},
    "a variable of another name": {"env": [{**RUN, "name": "TRIAL"}, DEBUG, EXPERTS]},
    "a variable that is a number": {"env": [{**RUN, "value": 1}, DEBUG, EXPERTS]},
    "a queue": {"labels": {"run": "1", KUEUE_QUEUE: "q"}},
    "an annotation of ours": {"annotations": {"example.org/owner": "ann", LORA_RANK: "16"}},
    "nodes": {"numNodes": 2},
}


def first_job(**changes: Any) -> Document:
    """A job, with changes to its spec, metadata, labels or annotations."""
    metadata = {
        "name": "job",
        "namespace": "research",
        "labels": changes.pop("labels", {"run": "1"}),
        "annotations": changes.pop("annotations", {"example.org/owner": "ann", LORA_RANK: "8"}),
        **changes.pop("metadata", {}),
    }
    spec = {
        "command": ["torchrun"],
        "args": ["--lr=1e-5", "train.py"],
        "checkpoint": {"enabled": True, "storagePath": "/checkpoints/1"},
        "env": [RUN, DEBUG, EXPERTS],
        **changes,
    }
    return {**auto_job(**spec), "metadata": metadata}


@pytest.mark.parametrize("changes", SAME_ANSWER.values(), ids=SAME_ANSWER)
def test_another_job_is_known_by_what_decides(changes: Document) -> None:
    assert answered_as(first_job(**changes)) == answered_as(first_job())


@pytest.mark.parametrize("changes", ANOTHER_ANSWER.values(), ids=ANOTHER_ANSWER)
def test_what_decides_makes_another_job(changes: Document) -> None:
    assert answered_as(first_job(**changes)) != answered_as(first_job())


def test_variables_that_are_refused_are_told_apart() -> None:
    """The refusal holds the list, so one user's values never stand in another's."""
    one, two = (first_job(env=[each, "DEBUG=1"]) for each in (RUN, TWO))
    assert answered_as(one) != answered_as(two)


def test_who_asks_counts_for_nothing() -> None:
    job = first_job()
    assert key(review_of(job, userInfo={"username": "bob"})) == answered_as(job)


def test_an_update_is_known_by_whether_what_is_judged_changed() -> None:
    """The image is judged, so its change is one, whatever it is; arguments are not."""
    first, image, other = first_job(), first_job(image="train:2"), first_job(image="train:3")
    arguments = first_job(args=["--lr=3e-5"])
    assert key(review_of(image, old=first)) == key(review_of(other, old=first))
    assert key(review_of(first, old=first)) == key(review_of(arguments, old=first))
    assert key(review_of(first, old=first)) != key(review_of(image, old=first))


def test_what_the_queue_and_the_phase_say_counts() -> None:
    jobs = [auto_job() for _ in range(4)]
    jobs[1]["metadata"]["labels"] = {KUEUE_QUEUE: "q"}
    jobs[2]["metadata"]["labels"] = {KUEUE_QUEUE: "other"}
    jobs[3]["status"] = {"phase": "Running"}
    assert len({answered_as(each) for each in jobs}) == 4


def test_a_command_that_the_rules_know_is_another() -> None:
    """All that they tell of it counts, and no more."""
    rules = Rules.from_rows(load_catalog().collective_rules)
    lines = ["torchrun train.py", "python train.py", "deepspeed train.py", "NCCL_ALGO=Tree sh -c x"]
    told = {each: answered_as(auto_job(args=each.split())) for each in lines}
    for one in lines:
        for other in lines:
            same = rules.told_of(one) == rules.told_of(other)
            assert (told[one] == told[other]) is same


def test_what_can_be_read_but_not_written_is_decided_each_time() -> None:
    body = json.dumps(review_of(auto_job(evalConfig={"deep": "here"})))
    deep = body.replace('"here"', "[" * 600 + "]" * 600).encode()
    assert told_apart(parse_review(deep), shipped()) == b""
