"""Whatever a `training.vsr.dev` TrainJob holds, our patch touches our own paths alone."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.admission.decide import mutate, told_apart, validate
from app.admission.review import read_review
from tests.kubeflow.reviews import answered, stored
from tests.vsr.reviews import auto_job, manual_job, review_of, shipped

calm = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
PREFIX = "training.vsr.dev/"
OUR_ANNOTATIONS = {
    PREFIX + name
    for name in ("auto-parallelism-config", "auto-parallelism-reason", "plan", "environment")
}
PLANNED = ("tpDegree", "ppDegree", "cpDegree", "precision")
DEFAULTED = ("suspend",)

keys = st.text(alphabet="abcXYZ/~ .é0", min_size=1, max_size=8).map("x-".__add__)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
extras = st.dictionaries(keys, values, max_size=3)
names = st.sampled_from(["NCCL_DEBUG", "EP_DEGREE", "NCCL_ALGO", "A", "B", "TORCH_FR_BUFFER_SIZE"])
variables = st.lists(
    st.builds(lambda name, value: {"name": name, "value": value}, names, st.text(max_size=4)),
    max_size=5,
)


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    """Jobs that plan and jobs that do not, with unknown fields at every level."""
    make = draw(st.sampled_from([auto_job, manual_job]))
    job = make(**draw(extras))
    if draw(st.booleans()):
        job["spec"]["env"] = draw(variables)
    if draw(st.booleans()):
        job["spec"]["modelSpec"] = draw(extras)
    job["spec"]["checkpoint"].update(draw(extras))
    job["metadata"].update(draw(extras))
    if draw(st.booleans()):
        job["metadata"]["annotations"] = draw(
            st.dictionaries(keys, st.text(max_size=6), max_size=3)
        )
    job["metadata"]["labels"] = draw(st.sampled_from([{}, {"kueue.x-k8s.io/queue-name": "q"}]))
    job.update(draw(extras))
    return job


def without_ours(job: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """The job less what we may write where `before` had nothing."""
    result = copy.deepcopy(job)
    notes = result["metadata"].get("annotations", {})
    for name in OUR_ANNOTATIONS:
        notes.pop(name, None)
    if "annotations" not in before["metadata"]:
        result["metadata"].pop("annotations", None)
    spec, given = result["spec"], before["spec"]
    for name in (*PLANNED, *DEFAULTED):
        if name in given:
            spec[name] = given[name]
        else:
            spec.pop(name, None)
    listed = given.get("env")
    assert spec.get("env", [])[: len(listed or [])] == (listed or [])
    spec.pop("env", None)
    if listed is not None:
        spec["env"] = listed
    shape = given.get("modelSpec")
    if shape is None:
        spec.pop("modelSpec", None)
    else:
        assert spec["modelSpec"].items() >= shape.items()
        spec["modelSpec"] = shape
    return result


@given(jobs())
@calm
def test_everything_outside_our_paths_is_byte_equal(job: dict[str, Any]) -> None:
    review = review_of(job)
    response = answered(review, shipped())
    assert response["allowed"], response
    assert all(each["op"] in {"add", "replace"} for each in response.get("patch", []))
    result = without_ours(stored(review, response), job)
    assert json.dumps(result, sort_keys=True) == json.dumps(job, sort_keys=True)


@given(jobs())
@calm
def test_a_second_pass_has_no_patch(job: dict[str, Any]) -> None:
    review = review_of(job)
    review["request"]["object"] = stored(review, answered(review, shipped()))
    assert "patch" not in answered(review, shipped())


odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "value", "enabled", "seqLen", "hiddenDim", "phase"]), inner
        )
    ),
    max_leaves=10,
)
fields = st.sampled_from(
    [
        "model", "image", "numNodes", "gpusPerNode", "tpDegree", "ppDegree", "cpDegree",
        "precision", "autoParallelism", "modelSpec", "nodeSelector", "checkpoint", "maxRuntime",
        "command", "args", "env", "suspend",
    ]
)  # fmt: skip


runs = st.fixed_dictionaries(
    {},
    optional={
        "command": st.sampled_from([None, [], ["torchrun"], ["sh", "-c", "NCCL_ALGO=Ring x"]])
        | odd,
        "args": st.lists(st.text(max_size=3), max_size=3) | odd,
    },
)


@given(jobs(), st.tuples(runs, runs), st.tuples(odd, odd), st.tuples(odd, odd))
@calm
def test_reviews_that_are_not_told_apart_are_decided_alike(
    job: dict[str, Any], specs: Any, notes: Any, states: Any
) -> None:
    """Two runs of a job, created and changed, whatever makes them two."""
    one, other = copy.deepcopy(job), copy.deepcopy(job)
    for each, spec, labels, status in zip((one, other), specs, notes, states, strict=True):
        each["spec"] |= spec
        each["metadata"]["labels"] = labels
        each["status"] = status
    for old in (None, job):
        first, second = (
            read_review(review_of(each, old) if old else review_of(each)) for each in (one, other)
        )
        key = told_apart(first, shipped())
        if key and key == told_apart(second, shipped()):  # an empty key is never remembered
            for decide in (mutate, validate):
                assert decide(first, shipped()) == decide(second, shipped())


@given(st.dictionaries(fields, odd), st.dictionaries(fields, odd), odd, odd)
@calm
def test_nothing_misshapen_makes_it_fail(spec: Any, old: Any, notes: Any, status: Any) -> None:
    job = {"metadata": {"annotations": notes, "labels": notes}, "spec": spec, "status": status}
    before = {"metadata": {}, "spec": old, "status": {"phase": "Running"}}
    for door in ("mutate", "validate"):
        for review in (review_of(job), review_of(job, before)):
            response = answered(review, shipped(), door=door)
            assert response["allowed"] or response["status"]["code"] == 422
