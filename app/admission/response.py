"""`Decision` -> the AdmissionReview response the apiserver reads."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from app.admission.decision import Decision
from app.admission.review import API_VERSION, KIND, Review
from app.planner.intent import FieldError
from app.trainjobs.patch import as_json

UNPROCESSABLE: Final = 422
WARNING_CHARACTERS: Final = 256
"""What the apiserver cuts each warning to once the budget is exceeded."""
WARNINGS_CHARACTERS: Final = 4000
"""Of the apiserver's budget of 4096 for all warnings of one request."""
MESSAGE_CHARACTERS: Final = 16_384
CAUSE_CHARACTERS: Final = 1024
CAUSES: Final = 64
_HEAD: Final = f'{{"apiVersion":"{API_VERSION}","kind":"{KIND}","response":{{"uid":'.encode()


def respond(review: Review, decision: Decision) -> dict[str, Any]:
    """The whole response body. A patch and its type come together or not at all."""
    response = {"uid": review.uid, **common(decision)}
    if not decision.allowed:
        response["status"] = status(review, decision)
    return {"apiVersion": API_VERSION, "kind": KIND, "response": response}


def common(decision: Decision) -> dict[str, Any]:
    """What every review that gets this decision is answered."""
    response: dict[str, Any] = {"allowed": decision.allowed}
    if decision.operations:
        patch = orjson.dumps(as_json(decision.operations))
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(patch).decode("ascii")
    warnings = bounded(decision.warnings)
    if warnings:
        response["warnings"] = warnings
    if decision.headline:
        response["auditAnnotations"] = {"plan": printable(decision.headline)}
    return response


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A decision, and the bytes of `common` as they stand in a response: encoded once.

    What is in the bytes alone, operations and warnings, the decision no longer holds: an answer is
    remembered, and the garbage collector goes through all that is.
    """

    decision: Decision
    encoded: bytes


def answer_of(decision: Decision) -> Answer:
    """The answer that says `decision`."""
    encoded = orjson.dumps(common(decision))[1:-1]
    return Answer(decision=replace(decision, operations=(), warnings=()), encoded=encoded)


def response_bytes(review: Review, answer: Answer) -> bytes:
    """The response body as sent; the same decision gives the same bytes."""
    decision = answer.decision
    refusal = b"" if decision.allowed else b',"status":' + orjson.dumps(status(review, decision))
    return b"".join((_HEAD, orjson.dumps(review.uid), b",", answer.encoded, refusal, b"}}"))


def status(review: Review, decision: Decision) -> dict[str, Any]:
    """A `metav1.Status` as the apiserver's own validation writes it."""
    return {
        "metadata": {},
        "status": "Failure",
        "message": cut(printable(decision.message), MESSAGE_CHARACTERS),
        "reason": "Invalid",
        "details": {
            "name": review.name,
            "group": review.group,
            "kind": review.kind,
            "causes": [cause(each) for each in decision.causes[:CAUSES]],
        },
        "code": UNPROCESSABLE,
    }


def cause(error: FieldError) -> dict[str, str]:
    """One `metav1.StatusCause`."""
    reason = "FieldValueRequired" if error.value in (None, "") else "FieldValueInvalid"
    return {
        "reason": reason,
        "message": cut(printable(error.message), CAUSE_CHARACTERS),
        "field": cut(printable(error.path), CAUSE_CHARACTERS),
    }


def bounded(warnings: Iterable[str]) -> list[str]:
    """The warnings once each, in order, within the apiserver's budget; what is cut is counted."""
    texts = list(dict.fromkeys(cut(printable(each), WARNING_CHARACTERS) for each in warnings))
    kept: list[str] = []
    left = WARNINGS_CHARACTERS
    for index, text in enumerate(texts):
        if len(text) > left:
            kept.append(f"and {len(texts) - index} more warnings")
            break
        kept.append(text)
        left -= len(text)
    return kept


def printable(text: str) -> str:
    """`text` on one line: warnings travel in HTTP headers."""
    if not text.isprintable():
        text = "".join(each if each.isprintable() else " " for each in text)
    return " ".join(text.split())


def cut(text: str, length: int) -> str:
    """`text` with at most `length` characters."""
    return text if len(text) <= length else text[: length - 3] + "..."
