"""Both ways in, the rules every answer meets, and the count of what was sent."""

from __future__ import annotations

import base64
import gc
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpx
import jsonpatch
import orjson
from structlog.testing import capture_logs

from app.admission.decide import mutate, validate
from app.admission.large import read_part
from app.admission.response import answer_of, response_bytes
from app.admission.review import LARGE_BYTES, MalformedReview, parse_review
from app.http.app import create_app
from app.http.settings import Settings
from app.main import compose
from tests.property.planner_strategies import catalog
from tests.unit.http.client import Client
from tests.vsr.reviews import shipped

TALLY: Counter[str] = Counter()
DECIDERS = {"mutate": mutate, "validate": validate}
MAX_CPU_SECONDS = 1.0
"""For one input, of this process: a busy neighbour on the machine is no fault of ours."""
WARNING_BUDGET = 4096
"""Characters in all warnings of one answer before the API server begins to cut."""
FIELDS = {"uid", "allowed", "status", "patch", "patchType", "warnings", "auditAnnotations"}


def through_admission(body: bytes, door: str) -> dict[str, Any] | None:
    """The checked response of the deciders, None if the body is no review."""
    TALLY[f"reviews through app.admission, {door}"] += 1
    deps = shipped()
    with promptly():
        try:
            review = parse_review(body)
        except MalformedReview:
            return None
        answer = response_bytes(review, answer_of(DECIDERS[door](review, deps)))
    return checked(orjson.loads(answer), as_read(body), door)


def through_http(body: bytes, door: str, **more: Any) -> httpx.Response:
    """The checked answer of the application: a review, or an error of our shape."""
    TALLY[f"reviews through the application, {door}"] += 1
    http = client()
    headers = {"Content-Type": "application/json", **more.pop("headers", {})}
    with promptly(), capture_logs():
        answer = http.post(f"/{door}", content=body, headers=headers, **more)
    if answer.status_code == httpx.codes.OK:
        checked(answer.json(), as_read(body), door)
    else:
        check_error(answer, hurried="params" in more)
    return answer


def as_read(body: bytes) -> Any:
    """The document in `body`, as much as is read of a large one."""
    return orjson.loads(read_part(body) if len(body) > LARGE_BYTES else body)


@cache
def client() -> Client:
    """Of the application with the built-in catalog."""
    return Client(create_app(compose(Settings(), catalog()).deps))


@contextmanager
def promptly(most: float = MAX_CPU_SECONDS) -> Iterator[None]:
    """One input takes less than a second of its own.

    The garbage of this process is that of the tools that make the inputs, half a million objects
    by the end: collecting it takes most of a second, and is put off.
    """
    gc.disable()
    started = time.process_time()
    try:
        yield
        assert time.process_time() - started < most
    finally:
        gc.enable()


def check_error(answer: httpx.Response, *, hurried: bool = False) -> None:
    """The request's fault, told in the one shape there is; or no time, for who gave none."""
    late = hurried and answer.status_code == httpx.codes.GATEWAY_TIMEOUT
    assert late or 400 <= answer.status_code < 500, answer.text
    assert answer.json().keys() == {"error"}
    error = answer.json()["error"]
    assert error.keys() == {"code", "message", "path"}
    assert error["code"]
    assert error["message"]


def checked(answer: dict[str, Any], asked: dict[str, Any], door: str) -> dict[str, Any]:
    """The response in `answer`, if the API server would take it."""
    assert answer.keys() == {"apiVersion", "kind", "response"}
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: dict[str, Any] = answer["response"]
    assert response.keys() <= FIELDS
    assert response["uid"] == asked["request"]["uid"]
    assert isinstance(response["allowed"], bool)
    if not response["allowed"]:
        assert 400 <= response["status"]["code"] < 500
        assert response["status"]["message"]
        assert "patch" not in response
    _check_texts(response)
    _check_patch(response, asked["request"], door)
    return response


def _check_texts(response: dict[str, Any]) -> None:
    warnings = response.get("warnings", [])
    assert all(isinstance(each, str) and each.isprintable() and each for each in warnings)
    assert sum(map(len, warnings)) <= WARNING_BUDGET
    audit = response.get("auditAnnotations", {})
    assert all(isinstance(each, str) for each in audit.values())


def _check_patch(response: dict[str, Any], request: dict[str, Any], door: str) -> None:
    assert ("patch" in response) == ("patchType" in response)
    if "patch" not in response:
        return
    assert door == "mutate"
    assert request["operation"] != "DELETE"
    assert response["patchType"] == "JSONPatch"
    operations = orjson.loads(base64.b64decode(response["patch"], validate=True))
    assert operations
    jsonpatch.apply_patch(request["object"], operations)
