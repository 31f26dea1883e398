"""AdmissionReviews of Kubeflow TrainJobs as the API server sends them, and what becomes of them."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jsonpatch

from app.admission.decide import Deps, dispatch_table, mutate, validate
from app.admission.judge import judged
from app.admission.response import answer_of, response_bytes
from app.admission.review import parse_review
from app.planner.request import PlanRequest
from app.trainjobs.kubeflow import KubeflowAdapter
from tests.kubeflow.jobs import ENVIRONMENT, plan

GOLDEN = Path(__file__).parents[1] / "golden" / "kubeflow"
DECIDERS = {"mutate": mutate, "validate": validate}


def read_review(case: str) -> dict[str, Any]:
    """The request of a golden case, by the number it begins with."""
    (folder,) = GOLDEN.glob(f"{case}-*")
    return json.loads((folder / "request.json").read_text())


def review_of(job: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The review of `job` being created, or changed from `old`."""
    named = {"group": "trainer.kubeflow.org", "version": "v1alpha1"}
    request = {
        "uid": "7586cb89-990e-52b3-92e7-f04c47cc0e28",
        "kind": {**named, "kind": "TrainJob"},
        "resource": {**named, "resource": "trainjobs"},
        "namespace": "team",
        "operation": "CREATE" if old is None else "UPDATE",
        "userInfo": {},
        "object": job,
        "oldObject": old,
        "dryRun": False,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def fixed_deps(**changes: Any) -> Deps:
    """Admission with one plan for every question: tests here are about what happens around it."""

    def resolve(_: object) -> PlanRequest:
        return plan().request

    given: dict[str, Any] = {
        "adapters": dispatch_table(KubeflowAdapter()),
        "resolve": resolve,
        "judge": partial(judged, resolve=resolve),
        "plan": lambda _, **__: plan(),
        "environment": lambda _context, _plan: ENVIRONMENT,
        "gpu": lambda _: None,
        **changes,
    }
    return Deps(**given)


def answered(review: Mapping[str, Any], deps: Deps, *, door: str = "mutate") -> dict[str, Any]:
    """The response to `review`, its patch decoded."""
    parsed = parse_review(json.dumps(review).encode())
    response = json.loads(response_bytes(parsed, answer_of(DECIDERS[door](parsed, deps))))[
        "response"
    ]
    assert response["uid"] == review["request"]["uid"]
    assert ("patch" in response) == ("patchType" in response)
    if "patch" in response:
        response["patch"] = json.loads(base64.b64decode(response["patch"]))
    return response


def stored(review: Mapping[str, Any], response: Mapping[str, Any]) -> dict[str, Any]:
    """The job as it would be stored."""
    created = copy.deepcopy(review["request"]["object"])
    return jsonpatch.apply_patch(created, response.get("patch", []))
