"""Large reviews are read like small ones, without the parts nobody reads."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from app.admission.large import Metadata, read_part
from app.admission.review import (
    LARGE_BYTES,
    UNREAD,
    MalformedReview,
    deciding,
    parse_review,
    read_review,
)
from tests.vsr.reviews import auto_job, review_of

FIELDS = [{"manager": "kubectl", "fieldsV1": {"f:spec": {'k:{"name":"]}\\""}': {}}}}] * 100


def padded(**metadata: Any) -> dict[str, Any]:
    """A job whose bytes are nearly all `managedFields`."""
    job = auto_job()
    job["metadata"] |= {"managedFields": FIELDS, **metadata}
    return job


def both_ways(document: Any) -> tuple[bytes, Any]:
    """The body of a review, and the review as it is when nothing is left out."""
    body = orjson.dumps(document)
    assert len(body) > LARGE_BYTES
    return body, read_review(orjson.loads(body))


def test_what_nobody_reads_is_left_out_of_both_objects() -> None:
    old = padded(generation=3, resourceVersion="7", uid="u")
    body, whole = both_ways(review_of(padded(), old, name="job"))
    assert len(read_part(body)) < LARGE_BYTES
    part = parse_review(body)
    for job in (part.job, part.old):
        assert job is not None
        assert not (UNREAD - {"name", "generateName"}) & set(job["metadata"])
    assert deciding(part) == deciding(whole)
    assert (part.uid, part.name, part.dry_run) == (whole.uid, whole.name, whole.dry_run)


@pytest.mark.parametrize("key", sorted(Metadata.__annotations__))
def test_what_is_read_stays_as_it_was_sent(key: str) -> None:
    value = {"a": ["\u2028", 1.5e300, 2**64 - 1, None, True, {"b/~": ""}]}
    part = parse_review(both_ways(review_of(padded(**{key: value})))[0])
    assert part.job["metadata"][key] == orjson.loads(orjson.dumps(value))


def test_a_job_keeps_its_spec_and_its_status() -> None:
    job = padded() | {"status": {"phase": "Running"}}
    part = parse_review(both_ways(review_of(job))[0])
    assert (part.job["spec"], part.job["status"]) == (job["spec"], job["status"])


@pytest.mark.parametrize("object_", [{"metadata": []}, {"metadata": None}, [1], "job", 3])
def test_a_review_of_another_shape_is_read_whole(object_: Any) -> None:
    request = review_of(auto_job(), oldObject=padded(), object=object_)
    body = orjson.dumps(request)
    assert read_part(body) is body


@pytest.mark.parametrize("broken", [b'"\xff"', b"1e999"], ids=["no UTF-8", "too large"])
def test_a_broken_value_is_an_error_where_it_is_read(broken: bytes) -> None:
    job = padded()
    job["metadata"]["managedFields"] = [*FIELDS, {"manager": "SKIPPED"}]
    job["metadata"]["labels"] = {"run": "READ"}
    body = orjson.dumps(review_of(job))
    skipped = parse_review(body.replace(b'"SKIPPED"', broken))
    assert deciding(skipped) == deciding(parse_review(body))
    with pytest.raises(MalformedReview, match="the body must be JSON"):
        parse_review(body.replace(b'"READ"', broken))


@pytest.mark.parametrize(
    "body",
    [
        b'{"request":' + b"[" * 10_000,
        b'{"request":{"object":{"metadata":{"managedFields":' + b"[" * 200_000 + b"}}}}",
        b'{"request":{"uid":"\xff' + b"x" * LARGE_BYTES + b'"}}',
        b'{"request":{"uid":NaN}}' + b" " * LARGE_BYTES,
        b"{}" + b" " * LARGE_BYTES + b"x",
    ],
    ids=["unfinished", "deep", "no UTF-8", "no number", "more behind"],
)
def test_what_is_no_json_is_refused_by_the_same_parser(body: bytes) -> None:
    with pytest.raises(MalformedReview, match="the body must be JSON"):
        parse_review(body)
