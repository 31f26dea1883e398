"""What a user puts into `env` or a command is theirs: we neither log it nor write it anywhere."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest
from structlog.typing import EventDict

from tests.kubeflow.jobs import job, worker
from tests.kubeflow.reviews import review_of as kubeflow_review
from tests.unit.http.client import Client
from tests.vsr.reviews import auto_job
from tests.vsr.reviews import review_of as vsr_review

SECRET = "hf_doNotShowMe31337"
ENVIRONMENT = [
    {"name": "HF_TOKEN", "value": SECRET},
    {"name": "NCCL_DEBUG", "value": SECRET},
    {"name": "B", "valueFrom": {"secretKeyRef": {"name": SECRET, "key": SECRET}}},
]
COMMAND = ["train", f"--token={SECRET}"]
VSR = auto_job(env=ENVIRONMENT, command=COMMAND, args=COMMAND)
KUBEFLOW = job(trainer={**worker(env=ENVIRONMENT), "command": COMMAND, "args": COMMAND})
REVIEWS = {
    "planned": vsr_review(VSR),
    "misshapen": vsr_review({**VSR, "spec": {**VSR["spec"], "env": [SECRET, {"name": [SECRET]}]}}),
    "unknown model": vsr_review({**VSR, "spec": {**VSR["spec"], "model": "nobody-knows"}}),
    "too small": vsr_review(
        {**VSR, "spec": {**VSR["spec"], "model": "llama-3-70b", "gpusPerNode": 1}}
    ),
    "changed": vsr_review(VSR, auto_job()),
    "kubeflow": kubeflow_review(KUBEFLOW),
    "kubeflow changed": kubeflow_review(KUBEFLOW, job()),
    "kubeflow misshapen": kubeflow_review(job(trainer={**worker(), "env": [SECRET]})),
}


@pytest.mark.parametrize("door", ["mutate", "validate"])
@pytest.mark.parametrize("review", REVIEWS.values(), ids=REVIEWS)
def test_a_users_values_stay_where_they_are(
    http: Client, lines: list[EventDict], review: dict[str, Any], door: str
) -> None:
    """Not in log lines, patches, annotations, warnings or messages."""
    answer = http.post(f"/{door}", json=copy.deepcopy(review))
    assert answer.status_code == 200
    assert SECRET not in answer.text
    patch = base64.b64decode(answer.json()["response"].get("patch", ""))
    assert SECRET.encode() not in patch
    assert [line["event"] for line in lines] == ["review"]
    assert SECRET not in json.dumps(lines)


def test_planned_jobs_really_get_a_patch(http: Client) -> None:
    """Otherwise the test above holds of nothing."""
    for name in ("planned", "kubeflow"):
        assert "patch" in http.post("/mutate", json=REVIEWS[name]).json()["response"]


def test_a_body_that_is_no_review_is_not_quoted_in_the_log(
    http: Client, lines: list[EventDict]
) -> None:
    for body in (SECRET, f'{{"kind": "{SECRET}"}}', f'{{"request": {{"uid": "{SECRET}"'):
        http.post("/mutate", content=body, headers={"Content-Type": "application/json"})
    assert len(lines) == 3
    assert SECRET not in json.dumps(lines)
