"""What a review costs, in counts: a busy machine changes times, and these not."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from starlette.types import Message

from app.catalog.loader import Catalog
from app.http.admission import admission_routes
from app.http.deps import Deps
from app.http.settings import Settings
from app.main import Service, compose
from app.trainjobs.kubeflow import RuntimeReference
from tests.counting import counting
from tests.kubeflow.jobs import job as kubeflow_job
from tests.kubeflow.reviews import review_of as kubeflow_review
from tests.vsr.reviews import auto_job, manual_job, review_of

LOADS = "orjson.loads"
FIELDS = {f"f:padding-{number:05}": {"f:name": {}, "f:value": {}} for number in range(400)}


def numbered(job: dict[str, Any], number: int) -> bytes:
    """The review of a job that has to be decided by itself, though it asks what others ask."""
    job["spec"]["maxRuntime"] = f"{number + 1}s"
    job["metadata"]["name"] = f"run-{number}"
    return orjson.dumps(review_of(job, uid=f"{number}"))


class Door:
    """A door of a service, without a port: `/mutate` if not said."""

    def __init__(self, deps: Deps, path: str = "/mutate") -> None:
        (self._route,) = [each for each in admission_routes(deps) if each.path == path]

    def answer(self, body: bytes) -> dict[str, Any]:
        """What the review in `body` is answered."""
        return orjson.loads(asyncio.run(self._answer(body)))["response"]

    def answer_all(self, bodies: Iterable[bytes]) -> None:
        """Answer one after the other."""

        async def serve() -> None:
            for body in bodies:
                await self._answer(body)

        asyncio.run(serve())

    def cost(self, body: bytes) -> Counter[str]:
        """How often each function is called for it."""

        async def counted() -> Counter[str]:
            with counting() as calls:
                await self._answer(body)
            return calls

        return asyncio.run(counted())

    async def _answer(self, body: bytes) -> bytes:
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "query_string": b"", "headers": headers}
        await self._route.app(scope, receive, send)
        return sent[1]["body"]


@pytest.fixture
def door(catalog: Catalog) -> Door:
    return Door(compose(Settings(), catalog).deps)


def test_a_body_is_parsed_once(door: Door) -> None:
    for body in (numbered(auto_job(), 0), numbered(manual_job(), 1)):
        assert door.cost(body)[LOADS] == 1


def test_a_body_is_parsed_once_where_runtimes_are_read(service: Service) -> None:
    read: list[RuntimeReference] = []

    async def prepare(review: Any, seconds: float) -> None:
        read.append((review.uid, seconds))

    door = Door(replace(service.deps, prepare=prepare))
    body = orjson.dumps(kubeflow_review(kubeflow_job()))
    annotations = len(kubeflow_job()["metadata"].get("annotations", {}))
    assert door.cost(body)[LOADS] <= 1 + 3 * annotations
    assert len(read) == 1


def test_a_kubeflow_job_is_read_once(door: Door) -> None:
    """Its wish, its network and its patch are of one reading; another review is another."""
    for nodes in (2, 3):
        job = kubeflow_job()
        job["spec"]["trainer"]["numNodes"] = nodes
        cost = door.cost(orjson.dumps(kubeflow_review(job)))
        assert (cost["mutate"], cost["read_question"]) == (1, 1)


def test_a_stated_layout_is_judged_once(catalog: Catalog) -> None:
    """What it leaves open is estimated every way there is, for the first job that states it."""
    door = Door(compose(Settings(), catalog).deps, "/validate")
    first = door.cost(numbered(manual_job(), 0))
    again = door.cost(numbered(manual_job(), 1))
    assert first["judged"] == 1
    assert not {"judged", "complete", "get_close_matches"} & set(again)
    assert again["validate"] == 1


def test_a_known_plan_is_not_searched_nor_written_again(door: Door) -> None:
    door.cost(numbered(auto_job(), 0))
    again = door.cost(numbered(auto_job(), 1))
    written = {"best_layout", "explained", "resolve", "plan_json", "reason_line", "config_line"}
    assert not written & set(again)


def test_an_equal_review_is_not_decided_again(door: Door) -> None:
    """Nor another job that differs in nothing that decides."""
    job = auto_job(args=["--lr=1e-5"], env=[{"name": "RUN", "value": "1"}])
    job["metadata"]["labels"] = {"run": "1"}
    first = numbered(job, 0)
    door.cost(first)
    named = orjson.loads(first)
    named["request"]["object"]["metadata"] |= {"name": "another", "labels": {"run": "2"}}
    named["request"]["object"]["spec"] |= {
        "args": ["--lr=2e-5"],
        "env": [{"name": "RUN", "value": "2"}],
        "image": "registry.example/train:2",
    }
    named["request"]["uid"] = "another"
    again = door.cost(orjson.dumps(named))
    assert again["mutate"] == 0
    assert again.total() < 300
    assert door.answer(orjson.dumps(named)) == door.answer(first) | {"uid": "another"}


def test_the_number_of_nodes_costs_nothing(door: Door) -> None:
    totals = []
    for nodes in (2, 64, 2048):
        door.answer(numbered(auto_job(numNodes=nodes), 0))
        totals.append(door.cost(numbered(auto_job(numNodes=nodes), 1)).total())
    assert max(totals) - min(totals) < 0.02 * min(totals)
    assert max(totals) < 1800


def test_bytes_that_are_not_ours_cost_their_parsing_only(door: Door) -> None:
    """1 MiB of `managedFields` are not walked, copied or written."""
    plain, padded = auto_job(), auto_job()
    entry = {"manager": "kubectl", "fieldsV1": {"f:spec": FIELDS}}
    padded["metadata"]["managedFields"] = [entry] * 60
    door.answer(numbered(auto_job(), 0))
    small = door.cost(numbered(plain, 1)).total()
    body = numbered(padded, 2)
    assert len(body) > 1024 * 1024
    assert abs(door.cost(body).total() - small) < 0.02 * small


def test_a_large_body_is_not_searched_for_garbage(door: Door) -> None:
    """The collector would go through its hundred thousand objects a hundred times."""
    padded = auto_job()
    padded["metadata"]["managedFields"] = [{"fieldsV1": {"f:spec": FIELDS}}] * 60
    body, rounds = numbered(padded, 0), []
    gc.callbacks.append(lambda phase, _: rounds.append(phase))
    try:
        door.answer(body)
    finally:
        gc.callbacks.pop()
    assert gc.isenabled()
    assert len(rounds) < 10


def test_reviews_leave_nothing_behind(door: Door) -> None:
    """Names, runs and questions come and go; what is kept of them is bounded."""

    def objects_after(numbers: range) -> int:
        door.answer_all(numbered(auto_job(numNodes=1 + each % 2), each) for each in numbers)
        gc.collect()
        return len(gc.get_objects())

    filled = objects_after(range(1200))
    assert abs(objects_after(range(1200, 1800)) - filled) < 0.01 * filled
