"""No review, however hostile, makes admission fail, hang or answer what the API server refuses."""

from __future__ import annotations

import base64
import copy
from typing import Any

import jsonpatch
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.trainjobs.labels import ENVIRONMENT
from tests.fuzz.corpus import broken_bytes, damaged, heads, hostile, reviews
from tests.fuzz.doors import through_admission, through_http
from tests.kubeflow.jobs import job as kubeflow_job
from tests.kubeflow.reviews import review_of as kubeflow_review
from tests.property.test_kubeflow_patch import jobs as kubeflow_jobs
from tests.property.test_vsr_patch import fields as vsr_fields
from tests.property.test_vsr_patch import jobs as vsr_jobs
from tests.vsr.reviews import auto_job
from tests.vsr.reviews import review_of as vsr_review

DOORS = ("mutate", "validate")
doors = st.sampled_from(DOORS)
headers = st.fixed_dictionaries(
    {},
    optional={
        "Content-Type": st.sampled_from(
            ["application/json; charset=utf-8", "text/plain", "application/yaml", "x", ""]
        ),
        "Content-Encoding": st.sampled_from(["gzip", "identity"]),
        "Accept": st.sampled_from(["text/html", "application/json"]),
    },
)
timeouts = st.sampled_from(["", "1s", "500ms", "1ms", "0", "-1s", "1e9s", "x", "9" * 30])
names = st.sampled_from(["MINE", "TP_DEGREE", "EP_DEGREE", "NCCL_DEBUG", "PET_NNODES", "", "é"])


def planned(job: Any, review_of: Any) -> Any:
    """The update of a planned job that changes nothing."""
    answer = through_admission(orjson.dumps(review_of(job)), "mutate")
    assert answer is not None
    stored = jsonpatch.apply_patch(job, orjson.loads(base64.b64decode(answer["patch"])))
    return review_of(stored, stored)


PLANNED = (
    planned(auto_job(numNodes=2), vsr_review),
    planned(kubeflow_job(), kubeflow_review),
)


def many(count: int) -> settings:
    return settings(settings.get_profile("fuzz"), max_examples=count)


def both(review: dict[str, Any]) -> None:
    body = orjson.dumps(review)
    for door in DOORS:
        through_admission(body, door)


@pytest.mark.parametrize("door", DOORS)
def test_the_real_ones_are_answered(door: str) -> None:
    """What is damaged below is sound before: every seed is read and judged."""
    assert len(reviews()) >= 12
    for review in reviews():
        assert through_admission(orjson.dumps(review), door) is not None


@given(damaged())
@many(6000)
def test_damaged_real_reviews(review: dict[str, Any]) -> None:
    both(review)


@given(heads())
@many(1500)
def test_hostile_requests(review: dict[str, Any]) -> None:
    both(review)


@given(vsr_jobs(), st.dictionaries(vsr_fields, hostile, max_size=4), st.booleans())
@many(1500)
def test_training_jobs_with_hostile_fields(job: Any, changes: Any, update: Any) -> None:
    changed = {**job, "spec": {**job["spec"], **changes}}
    both(vsr_review(changed, job if update else None))


@given(kubeflow_jobs(), st.data(), st.booleans())
@many(1500)
def test_kubeflow_jobs_with_hostile_annotations(job: Any, data: Any, update: Any) -> None:
    stated = job["metadata"]["annotations"]
    names = st.sampled_from(sorted(stated))
    changed = {**job, "metadata": {**job["metadata"]}}
    changed["metadata"]["annotations"] = {
        **stated,
        **data.draw(st.dictionaries(names, hostile, max_size=3)),
    }
    both(kubeflow_review(changed, job if update else None))


environments = hostile | st.lists(
    st.fixed_dictionaries({}, optional={"name": names, "value": hostile, "valueFrom": hostile}),
    max_size=4,
)


@given(st.sampled_from(PLANNED), environments, st.none() | st.just({}) | hostile, st.booleans())
@many(1500)
def test_hostile_updates_of_planned_jobs(
    planned: Any, environment: Any, record: Any, stored: Any
) -> None:
    """An env list and our record of it, in the job that is stored or in the one that comes."""
    review = copy.deepcopy(planned)
    job = review["request"]["oldObject" if stored else "object"]
    job["spec"].get("trainer", job["spec"])["env"] = environment
    if record is not None:
        job["metadata"]["annotations"][ENVIRONMENT] = record
    both(review)


@given(damaged(), doors, headers, timeouts)
@many(1500)
def test_damaged_reviews_over_http(review: Any, door: str, sent: Any, timeout: str) -> None:
    through_http(orjson.dumps(review), door, headers=sent, params={"timeout": timeout})


@given(broken_bytes(), doors)
@many(1500)
def test_broken_bytes_over_http(body: bytes, door: str) -> None:
    through_http(body, door)
