"""Manifests as people keep them become the reviews an API server would send."""

from __future__ import annotations

from typing import Any

import pytest

from app.cli.offline import as_review, documents
from app.cli.refuse import CannotAnswer

JOB = """
apiVersion: training.vsr.dev/v1alpha1
kind: TrainJob
metadata: {name: one}
spec: {model: llama3-8b, created: 2026-01-02, 8: eight}
"""


def test_yaml_holds_json_types_only() -> None:
    (job,) = documents(JOB)
    assert job["spec"]["created"] == "2026-01-02"
    assert job["spec"]["8"] == "eight"


def test_many_documents_and_lists_are_read_in_order() -> None:
    stream = f"---\n{JOB}\n---\n---\nkind: List\nitems:\n- kind: A\n- kind: B\n"
    assert [one["kind"] for one in documents(stream)] == ["TrainJob", "A", "B"]


def test_json_is_read_as_json() -> None:
    assert list(documents(' {"kind": "TrainJob"}')) == [{"kind": "TrainJob"}]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "a: [",
        "just text",
        "- kind: TrainJob",
        "metadata: {}",
        "kind: 5",
        "kind: A\nx: !!python/object:os.system {}",
        "kind: A\nx: !!binary aGVsbG8=",
        "&a [*a]",
        "kind: A\nx: " + "[" * 5000,
        "{" * 100_000,
    ],
)
def test_anything_else_is_bad_input(text: str) -> None:
    with pytest.raises(CannotAnswer):
        list(documents(text))


def request(job: dict[str, Any]) -> Any:
    """The request inside the review of a bare object."""
    return as_review(job)["request"]


def test_a_bare_job_is_about_to_be_created() -> None:
    (job,) = documents(JOB)
    asked = request(dict(job))
    assert asked["operation"] == "CREATE"
    assert asked["dryRun"] is True
    assert asked["kind"] == {
        "group": "training.vsr.dev",
        "version": "v1alpha1",
        "kind": "TrainJob",
    }
    assert asked["resource"]["resource"] == "trainjobs"
    assert (asked["namespace"], asked["name"]) == ("default", "one")
    assert asked["object"]["metadata"] == {"name": "one", "namespace": "default"}


def test_a_namespace_of_its_own_is_kept() -> None:
    job = {"kind": "TrainJob", "metadata": {"namespace": "ml", "generateName": "x-"}}
    assert request(job)["namespace"] == "ml"
    assert request(job)["object"] == job


def test_a_review_is_taken_as_it_is() -> None:
    review = {"kind": "AdmissionReview", "request": {"uid": "u"}}
    assert as_review(review) == review


@pytest.mark.parametrize("metadata", [None, [], "text", 3])
def test_metadata_of_another_shape_does_not_stop_the_review(metadata: Any) -> None:
    job = {"apiVersion": "a/b", "kind": "TrainJob", "metadata": metadata}
    assert request(job)["object"] == job
