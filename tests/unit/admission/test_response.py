"""A decision as the API server reads it: exact shape, bounded size, one line a warning."""

from __future__ import annotations

import base64
import json
from typing import Any

import orjson
import pytest

from app.admission.decision import Decision
from app.admission.response import answer_of, bounded, respond, response_bytes
from app.admission.review import parse_review
from app.planner.intent import FieldError
from app.trainjobs.adapter import Operation
from tests.vsr.reviews import manual_job, review_of

BUDGET = 4096
"""What the API server keeps of all warnings of a request.
Source: kubernetes/apiserver endpoints/filters/warning.go."""
REVIEW = parse_review(orjson.dumps(review_of(manual_job(), name="job")))
UID = REVIEW.uid


def denied(*errors: FieldError, message: str = "no") -> dict[str, Any]:
    """The status of a refusal."""
    decision = Decision(outcome="denied", causes=errors, message=message)
    response = respond(REVIEW, decision)["response"]
    assert response["allowed"] is False
    return response["status"]


@pytest.mark.parametrize("outcome", ["unchanged", "skipped"])
def test_nothing_to_do_is_the_shortest_answer(outcome: Any) -> None:
    assert respond(REVIEW, Decision(outcome=outcome)) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": UID, "allowed": True},
    }


def test_a_patch_comes_with_its_type() -> None:
    add = Operation(op="add", path="/spec/a", value={"b": True})
    body = json.loads(
        response_bytes(REVIEW, answer_of(Decision(outcome="patched", operations=(add,))))
    )
    response = body["response"]
    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"], validate=True)) == [
        {"op": "add", "path": "/spec/a", "value": {"b": True}}
    ]


def test_a_refusal_is_a_status() -> None:
    errors = (
        FieldError(path="spec.image", value="", message="must be set"),
        FieldError(path="spec.tpDegree", value=3, message="must be a power of two"),
    )
    assert denied(*errors, message="two things") == {
        "metadata": {},
        "status": "Failure",
        "message": "two things",
        "reason": "Invalid",
        "details": {
            "name": "job",
            "group": "training.vsr.dev",
            "kind": "TrainJob",
            "causes": [
                {"reason": "FieldValueRequired", "message": "must be set", "field": "spec.image"},
                {
                    "reason": "FieldValueInvalid",
                    "message": "must be a power of two",
                    "field": "spec.tpDegree",
                },
            ],
        },
        "code": 422,
    }


def test_a_refusal_is_bounded() -> None:
    errors = [FieldError(path="p" * 5000, value=1, message="m" * 5000) for _ in range(1000)]
    status = denied(*errors, message="x" * 100_000)
    assert len(status["message"]) == 16_384
    assert len(orjson.dumps(status)) < 300_000


def test_the_plan_is_in_the_audit_log() -> None:
    decision = Decision(outcome="unchanged", headline="TP=8\nPP=1")
    assert respond(REVIEW, decision)["response"]["auditAnnotations"] == {"plan": "TP=8 PP=1"}


@pytest.mark.parametrize(
    ("warnings", "expected"),
    [
        ((), []),
        (("a", "b", "a"), ["a", "b"]),
        (("a\r\nWarning: 299 forged",), ["a Warning: 299 forged"]),
        (("tab\tnull\0 line\u2028end",), ["tab null line end"]),
        (("naïve 模型",), ["naïve 模型"]),
        (("x" * 300,), ["x" * 253 + "..."]),
    ],
)
def test_warnings_are_single_lines(warnings: tuple[str, ...], expected: list[str]) -> None:
    assert bounded(warnings) == expected


@pytest.mark.parametrize("length", [1, 100, 255, 256, 1000])
def test_all_warnings_fit_the_budget(length: int) -> None:
    told = bounded(f"{index:06}" + "x" * length for index in range(10_000))
    assert sum(map(len, told)) < BUDGET
    kept = len(told) - 1
    assert told[-1] == f"and {10_000 - kept} more warnings"


def test_an_answer_holds_its_operations_as_bytes_alone() -> None:
    add = Operation(op="add", path="/spec/suspend", value=True)
    answer = answer_of(Decision(outcome="patched", operations=(add,), warnings=("w",), reason="r"))
    assert answer.decision == Decision(outcome="patched", reason="r")
    assert b'"patch":' in answer.encoded
    assert b'"warnings":["w"]' in answer.encoded
