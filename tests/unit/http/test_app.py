"""The routes: limits, one error shape, and what is a bug's answer."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.typing import EventDict

from app.advisor import requests as asked
from app.http import documents
from app.http.app import create_app, create_probe_app
from app.http.bodies import Budget
from app.http.errors import CODES, RequestError
from app.main import Service, warm_up
from app.planner.request import PlanRequest, Stop, never
from tests.counting import counting
from tests.faults.service import review
from tests.unit.http.client import Client

JSON = {"Content-Type": "application/json"}
BODIES = (
    "/mutate", "/validate", "/v1/plan", "/v1/estimate", "/v1/candidates", "/v1/environment",
)  # fmt: skip
REVIEWS = ("/mutate", "/validate")
QUESTION = {"model": "llama-3-8b", "gpu": "NVIDIA-H100-80GB-HBM3", "nodes": 1}

every_body = pytest.mark.parametrize("path", BODIES)


def error_of(answer: Any, status: int) -> dict[str, Any]:
    """The error of an answer, whose shape is checked on the way."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert {"code", "message", "path"} <= set(error) <= {"code", "message", "path", "details"}
    assert all(isinstance(error[key], str) for key in ("code", "message", "path"))
    assert error["code"]
    assert error["message"]
    return error


def test_an_unknown_route_is_not_found(http: Client) -> None:
    assert error_of(http.get("/nowhere"), 404)["code"] == "not_found"


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", path) for path in BODIES] + [("POST", "/healthz"), ("DELETE", "/metrics")],
)
def test_a_wrong_method_names_the_right_one(http: Client, method: str, path: str) -> None:
    answer = http.request(method, path)
    assert error_of(answer, 405)["code"] == "method_not_allowed"
    assert answer.headers["allow"] in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/metrics", "/v1/gpus", "/", "/openapi.json"]
)
def test_head_is_answered_as_get(http: Client, path: str) -> None:
    """As load balancers probe; the server leaves out the body."""
    asked, probed = http.get(path), http.request("HEAD", path)
    assert (probed.status_code, probed.headers["content-type"]) == (
        asked.status_code,
        asked.headers["content-type"],
    )


def test_head_is_counted_under_its_route(service: Service, http: Client) -> None:
    http.request("HEAD", "/healthz")
    labels = {"route": "/healthz", "method": "HEAD", "status": "200"}
    name = "trainjob_advisor_http_requests_total"
    assert service.deps.metrics.registry.get_sample_value(name, labels) == 1


def test_the_description_leaves_head_out(http: Client) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    assert not [path for path, operations in paths.items() if "head" in operations]


@every_body
@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/jsonp"},
        {"Content-Type": ""},
        {**JSON, "Content-Encoding": "gzip"},
    ],
    ids=["text", "form", "nearly-json", "none", "compressed"],
)
def test_only_plain_json_is_read(http: Client, path: str, headers: dict[str, str]) -> None:
    error_of(http.post(path, content=b"{}", headers=headers), 415)


@every_body
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
def test_a_body_over_the_limit_is_refused(http: Client, path: str, *, declared: bool) -> None:
    content = b" " * (256 * 1024 + 1)
    body: Any = content if declared else iter([content])
    assert error_of(http.post(path, content=body, headers=JSON), 413)["code"] == "body_too_large"


def test_a_body_of_the_limit_is_read(http: Client) -> None:
    padded = review()
    padded["request"]["object"]["metadata"]["managedFields"] = [{"manager": ""}]
    missing = 256 * 1024 - len(json.dumps(padded))
    padded["request"]["object"]["metadata"]["managedFields"][0]["manager"] = "m" * missing
    content = json.dumps(padded).encode()
    assert len(content) == 256 * 1024
    answer = http.post("/mutate", content=content, headers=JSON)
    assert answer.status_code == 200
    assert answer.json()["response"]["allowed"] is True


NOT_JSON = {
    "empty": b"",
    "half": b'{"a": ',
    "not-utf8": b'{"a": "\xff\xfe"}',
    "nan": b'{"a": NaN}',
    "infinity": b'{"a": -Infinity}',
    "too-large-a-number": b'{"a": 1e999}',
    "lone-surrogate": b'{"a": "\\ud800"}',
    "deep-lists": b"[" * 10_000 + b"]" * 10_000,
    "deep-objects": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "deep-and-open": b"[" * 100_000,
    "more-than-one": b"{}{}",
    "bom": b"\xef\xbb\xbf{}",
}


@every_body
@pytest.mark.parametrize("content", NOT_JSON.values(), ids=NOT_JSON)
def test_what_is_not_json_is_refused(http: Client, path: str, content: bytes) -> None:
    error_of(http.post(path, content=content, headers=JSON), 400)


@pytest.mark.parametrize("path", REVIEWS)
@pytest.mark.parametrize(
    "content",
    ["null", "1", '"text"', "[]", "{}", '{"kind": "AdmissionReview"}', "9" * 200],
)
def test_json_that_is_no_review_is_malformed(http: Client, path: str, content: str) -> None:
    error = error_of(http.post(path, content=content.encode(), headers=JSON), 400)
    assert error["code"] == "malformed_review"


@pytest.mark.parametrize("path", ["/v1/plan", "/v1/estimate"])
@pytest.mark.parametrize("content", ["null", "1", "[]", "{}", '{"model": 1, "gpus": 2}'])
def test_a_wrong_question_names_its_fields(http: Client, path: str, content: str) -> None:
    error_of(http.post(path, content=content.encode(), headers=JSON), 422)


def test_unknown_names_are_answered_with_near_ones(http: Client) -> None:
    error = error_of(http.post("/v1/plan", json=QUESTION | {"model": "lama-3-8b"}), 422)
    assert error["path"] == "model"
    assert "llama-3-8b" in error["message"]


def test_a_review_is_answered_with_a_patch(http: Client) -> None:
    answer = http.post("/mutate?timeout=10s", json=review())
    assert answer.status_code == 200
    response = answer.json()["response"]
    assert response["uid"] == review()["request"]["uid"]
    assert response["patchType"] == "JSONPatch"
    paths = {operation["path"] for operation in json.loads(base64.b64decode(response["patch"]))}
    assert {"/spec/tpDegree", "/spec/ppDegree"} <= paths


@pytest.mark.parametrize("door", ["mutate", "validate"])
def test_the_paths_of_existing_configurations_work(http: Client, door: str) -> None:
    old = http.post(f"/{door}-training-vsr-dev-v1alpha1-trainjob", json=review())
    new = http.post(f"/{door}", json=review())
    assert old.status_code == 200
    assert old.content == new.content


def test_only_reviews_go_past_the_framework(http: Client) -> None:
    for path, body, past in (("/mutate", review(), True), ("/v1/plan", QUESTION, False)):
        with counting() as calls:
            assert http.post(path, json=body).status_code == 200
        assert (calls["FastAPI.__call__"] == 0) is past


def test_plan_and_estimate_answer(http: Client) -> None:
    plan = http.post("/v1/plan", json=QUESTION).json()
    assert plan["layout"]["tp"] >= 1
    judged = http.post("/v1/estimate", json=QUESTION | {"layout": plan["layout"]}).json()
    assert judged["step_time_seconds"] == plan["estimate"]["step_time_seconds"]


def test_the_catalog_is_listed(http: Client) -> None:
    assert "llama-3-8b" in http.get("/v1/models").text
    assert "H100" in http.get("/v1/gpus").text


class Broken:
    """A planner with a bug."""

    def __init__(self, problem: Exception) -> None:
        self._problem = problem

    def __call__(self, request: PlanRequest, *, stop: Stop = never) -> Any:
        """Never anything but the bug."""
        del request, stop
        raise self._problem


@pytest.fixture(params=[RuntimeError("bug"), MemoryError(), RecursionError()], ids=repr)
def broken(service: Service, request: pytest.FixtureRequest) -> Client:
    planner = Broken(request.param)
    deps = replace(
        service.deps,
        admission=replace(service.deps.admission, plan=planner),
        desk=replace(service.deps.desk, planner=planner),
    )
    return Client(create_app(deps))


@pytest.mark.parametrize(
    ("path", "body"), [("/mutate", review()), ("/v1/plan", QUESTION)], ids=["mutate", "plan"]
)
def test_our_own_fault_is_a_500_and_never_a_denial(
    broken: Client, path: str, body: dict[str, Any]
) -> None:
    """So that the failure policy decides, and nobody reads our insides."""
    error = error_of(broken.post(path, json=body), 500)
    assert error["code"] == "internal_error"
    assert "bug" not in error["message"]
    assert broken.post(path, json=body | {"model": 1}).status_code in (422, 500)
    assert broken.get("/healthz").status_code == 200


class Turns:
    """A clock that goes on by a second whenever it is looked at."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        """Seconds so far."""
        self.looks += 1
        return float(self.looks)


LATE = "trainjob_advisor_admission_reviews_total"
LATE_LABELS = {"crd": "training.vsr.dev/v1alpha1", "operation": "CREATE", "outcome": "late"}


@pytest.mark.parametrize("timeout", [1, 10, 30])
def test_work_whose_answer_would_be_late_is_given_up(
    service: Service, lines: list[EventDict], timeout: int
) -> None:
    """Wherever it is by then. Nine tenths of the time are for work; no half answer, no denial."""
    clock = Turns()
    http = Client(create_app(replace(service.deps, clock=clock)))
    asked = review(model="llama-3-405b", numNodes=64)
    answer = http.post(f"/mutate?timeout={timeout}s", json=asked)
    assert error_of(answer, 504)["code"] == "deadline_exceeded"
    assert clock.looks <= timeout + 3
    assert service.deps.metrics.registry.get_sample_value(LATE, LATE_LABELS) == 1
    (line,) = (each for each in lines if each["event"] == "review")
    assert (line["outcome"], line["name"]) == ("late", "pretrain")
    assert Client(create_app(service.deps)).post("/mutate", json=asked).status_code == 200


def test_validation_that_would_be_late_is_not_begun(service: Service) -> None:
    http = Client(create_app(replace(service.deps, clock=Turns())))
    answer = http.post("/validate?timeout=1s", json=review())
    assert error_of(answer, 504)["code"] == "deadline_exceeded"


@pytest.mark.parametrize("timeout", ["", "soon", "-1s", "0s", "9" * 50, "1h", "30s"])
def test_an_unreadable_timeout_is_the_longest(http: Client, timeout: str) -> None:
    assert http.post("/mutate", params={"timeout": timeout}, json=review()).status_code == 200


def test_readiness_needs_a_certificate_and_a_warm_planner(service: Service) -> None:
    http = Client(create_probe_app(service.deps))
    error = error_of(http.get("/readyz"), 503)
    assert error["code"] == "not_ready"
    assert "certificate" in error["message"]
    assert "planner" in error["message"]
    warm_up(service.deps)
    assert "planner" not in error_of(http.get("/readyz"), 503)["message"]
    assert error_of(http.get("/mutate"), 404)
    assert http.get("/healthz").json() == {"status": "ok"}


def test_draining_asks_clients_to_close(service: Service, http: Client) -> None:
    assert "connection" not in http.get("/healthz").headers
    service.deps.health.draining = True
    assert http.get("/healthz").headers["connection"] == "close"
    assert error_of(http.get("/nowhere"), 404)


def test_the_page_of_the_api_needs_nothing_from_elsewhere(http: Client) -> None:
    page = http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "http://" not in page.text
    assert "https://" not in page.text


def test_the_description_lists_every_route(http: Client) -> None:
    document = http.get("/openapi.json").json()
    assert set(document["paths"]) == {
        "/mutate", "/validate", "/v1/plan", "/v1/estimate", "/v1/candidates", "/v1/environment",
        "/v1/choices", "/v1/explain", "/v1/launch", "/v1/cost", "/v1/models", "/v1/gpus",
        "/healthz", "/readyz",
    }  # fmt: skip
    for path in BODIES:
        content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        assert content["schema"]["$ref"].rpartition("/")[2] in document["components"]["schemas"]


@pytest.mark.parametrize(
    ("described", "read"),
    [
        (documents.PLAN_KEYS, asked.PLAN_FIELDS),
        (documents.WORKLOAD_KEYS, asked.WORKLOAD_FIELDS),
        (documents.LAYOUT_KEYS, asked.PIN_FIELDS),
        (
            documents.ESTIMATE_REQUEST["properties"]["layout"]["properties"],
            asked.LAYOUT_FIELDS,
        ),
    ],
    ids=["plan", "workload", "pins", "layout"],
)
def test_the_description_has_the_keys_that_are_read(described: Any, read: Any) -> None:
    assert set(described) == set(read)


def test_large_bodies_share_a_budget() -> None:
    budget = Budget(limit_bytes=10)
    budget.take(6)
    with pytest.raises(RequestError) as caught:
        budget.take(5)
    assert caught.value.status == 503
    assert caught.value.headers["Retry-After"] == "1"
    assert budget.held_bytes == 6


def test_every_code_is_on_the_page_for_operators() -> None:
    page = Path(__file__).parents[3] / "docs/operations.md"
    text = page.read_text()
    assert not [code for code in CODES.values() if f"`{code}`" not in text]


def test_candidates_and_environment_answer(http: Client) -> None:
    candidates = http.post("/v1/candidates", json=QUESTION).json()["candidates"]
    assert {"layout", "memory_bytes", "step_time_seconds", "pareto"} <= set(candidates[0])
    layout = http.post("/v1/plan", json=QUESTION).json()["layout"]
    answer = http.post("/v1/environment", json=QUESTION | {"layout": layout}).json()
    assert answer["layout"] == layout
    assert {"name", "value", "reason", "source"} == set(answer["environment"][0])


SWEEP = {"model": "llama-3-8b", "tokens": 10**11, "gpu": "H100-SXM5-80GB", "max_gpus": 32}
LINES = {"Accept": "application/x-ndjson"}


def test_a_sweep_says_how_far_it_is(http: Client) -> None:
    """Progress rises, and the last line is the answer that a caller without lines gets."""
    streamed = http.post("/v1/cost", json=SWEEP, headers=LINES)
    assert streamed.headers["content-type"].startswith("application/x-ndjson")
    *progress, last = (json.loads(line) for line in streamed.text.splitlines())
    done = [one["progress"]["done"] for one in progress]
    assert len(done) > 5
    assert done == sorted(set(done))
    assert all(one["progress"]["done"] <= one["progress"]["total"] for one in progress)
    assert last == {"answer": http.post("/v1/cost", json=SWEEP).json()}


@pytest.mark.parametrize(
    "wrong", [{"tokens": "many"}, {"model": "no-such"}, {"workload": {"sequence_length": 0}}]
)
def test_a_wrong_question_is_refused_before_any_line(http: Client, wrong: dict[str, Any]) -> None:
    assert error_of(http.post("/v1/cost", json=SWEEP | wrong, headers=LINES), 422)


def test_a_sweep_of_nothing_is_an_answer(http: Client) -> None:
    """No machine is small enough: there is no progress to tell."""
    body = {"model": "llama-3-8b", "tokens": 10**11, "instance_type": "p5.48xlarge", "max_gpus": 1}
    assert http.post("/v1/cost", json=body, headers=LINES).json()["offers"] == []
