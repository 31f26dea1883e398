"""The request as the API server sends it, and bodies that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.admission.review import MalformedReview, parse_review
from tests.vsr.reviews import auto_job, manual_job, review_of


def parsed(**request: Any) -> Any:
    """The review of a manual job with changes to its request."""
    return parse_review(json.dumps(review_of(manual_job(), **request)).encode())


def test_a_review_holds_what_is_decided_by() -> None:
    review = parsed(name="job", subResource="status", dryRun=True)
    assert review.uid == "1ef51e77-e463-576d-a42d-86486b8fa82c"
    assert review.gvk == "training.vsr.dev/v1alpha1/TrainJob"
    assert (review.group, review.version, review.kind) == (
        "training.vsr.dev",
        "v1alpha1",
        "TrainJob",
    )
    assert (review.resource, review.subresource, review.operation) == (
        "trainjobs",
        "status",
        "CREATE",
    )
    assert (review.namespace, review.name) == ("research", "job")
    assert review.dry_run is True
    assert review.job["spec"]["tpDegree"] == 2
    assert review.old is None


@pytest.mark.parametrize(
    ("metadata", "name"),
    [({"name": "a"}, "a"), ({"generateName": "b-"}, "b-"), ({}, ""), ({"name": 3}, "")],
)
def test_a_name_may_be_the_beginning_of_one(metadata: Any, name: str) -> None:
    assert parsed(object={"metadata": metadata}).name == name


def test_a_deletion_has_no_object() -> None:
    review = parsed(operation="DELETE", object=None, oldObject=auto_job())
    assert review.job == {}
    assert review.old == auto_job()


def test_what_is_optional_may_have_any_shape() -> None:
    review = parsed(namespace=None, userInfo=[], dryRun="yes", subResource=3)
    assert (review.namespace, review.subresource) == ("", "")
    assert review.dry_run is False


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"\xff\xfe",
        b'"' + b"x" * 500 + b'"',
        b"[" * 10_000 + b"]" * 10_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}',
        b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": []}',
        b'{"kind": {"a": 1}, "apiVersion": ["v1"]}',
        b'{"kind": "Pod", "apiVersion": "v1"}',
    ],
)
def test_other_bodies_are_malformed(body: bytes) -> None:
    with pytest.raises(MalformedReview) as caught:
        parse_review(body)
    assert len(str(caught.value)) < 400


def test_an_object_that_is_no_review_at_all_is_said_so() -> None:
    with pytest.raises(MalformedReview, match="and names neither;"):
        parse_review(b"{}")


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"uid": 7}, "`request.uid`"),
        ({"uid": None}, "`request.uid` must be a non-empty string, not nothing"),
        ({"kind": "TrainJob"}, "`request.kind`"),
        ({"kind": {"group": "g", "version": "v"}}, "`request.kind.kind`"),
        ({"resource": None}, "`request.resource`"),
        ({"operation": "create"}, "must be one of CREATE, UPDATE, DELETE, CONNECT"),
        ({"object": None}, "`request.object` must be an object when"),
        ({"object": "text"}, "`request.object`"),
        ({"operation": "UPDATE", "oldObject": [1]}, "`request.oldObject` must be an object, not a"),
    ],
)
def test_a_wrong_request_is_named(request_: dict[str, Any], words: str) -> None:
    with pytest.raises(MalformedReview) as caught:
        parsed(**request_)
    assert words in str(caught.value)
