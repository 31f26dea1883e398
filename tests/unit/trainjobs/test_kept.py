"""An update that leaves our variables out gets them back as they were, and nothing else."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.trainjobs import labels
from app.trainjobs.kept import kept_variables, recorded_variables
from app.trainjobs.patch import as_json
from tests.kubeflow import jobs as kubeflow
from tests.kubeflow.reviews import answered
from tests.kubeflow.reviews import review_of as kubeflow_review
from tests.vsr.reviews import auto_job, manual_job, review_of, shipped

MINE = {"name": "MINE", "value": "1"}
SECRET = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
Job = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One TrainJob API: a job with an env of its author's, its review, and where env stands."""

    job: Callable[[], Job]
    review: Callable[..., dict[str, Any]]
    path: tuple[str, ...]

    def holder(self, job: Job) -> Job:
        """The object that holds `env`."""
        here = job
        for key in self.path[:-1]:
            here = here[key]
        return here

    def planned(self) -> Job:
        """The job as it is stored after its creation."""
        job = self.job()
        patch = answered(self.review(job), shipped())["patch"]
        return jsonpatch.apply_patch(job, patch)

    def applied_again(self, stored: Job, *env: Mapping[str, Any]) -> Job:
        """What the API server makes of a manifest with `env` that is applied again."""
        new = copy.deepcopy(stored)
        self.holder(new)["env"] = [dict(each) for each in env]
        return new


def vsr_job() -> Job:
    return auto_job(numNodes=2, env=[MINE])


def kubeflow_job() -> Job:
    return kubeflow.job(trainer=kubeflow.worker(env=[MINE]))


VSR = Api(job=vsr_job, review=review_of, path=("spec", "env"))
DEFAULTS = Api(job=lambda: manual_job(numNodes=2, env=[MINE]), review=review_of, path=VSR.path)
KUBEFLOW = Api(job=kubeflow_job, review=kubeflow_review, path=("spec", "trainer", "env"))
both = pytest.mark.parametrize("api", [VSR, KUBEFLOW], ids=["vsr", "kubeflow"])


def patch_of(api: Api, new: Job, old: Job) -> list[dict[str, Any]]:
    return list(answered(api.review(new, old), shipped()).get("patch", []))


@pytest.mark.parametrize("api", [VSR, DEFAULTS, KUBEFLOW], ids=["vsr", "defaults", "kubeflow"])
@pytest.mark.parametrize("env", [[MINE], [], None], ids=["same", "empty", "absent"])
def test_applied_again_our_variables_are_kept(api: Api, env: list[Job] | None) -> None:
    """A job's author sends the list that was written; ours are put back in their order."""
    old = api.planned()
    new = api.applied_again(old, *(env or []))
    if env is None:
        del api.holder(new)["env"]
    patch = patch_of(api, new, old)
    assert {each["op"] for each in patch} == {"add"}
    ours = [each for each in api.holder(old)["env"] if each != MINE]
    assert len(ours) > 3
    after = jsonpatch.apply_patch(new, patch)
    assert api.holder(after)["env"] == [*(env or []), *ours]
    if env:
        assert after == old


@both
def test_once_is_enough(api: Api) -> None:
    old = api.planned()
    new = api.applied_again(old, MINE)
    after = jsonpatch.apply_patch(copy.deepcopy(new), patch_of(api, new, old))
    assert patch_of(api, after, old) == []
    assert patch_of(api, new, old) == patch_of(api, new, old)


@both
def test_the_writer_is_told(api: Api) -> None:
    old = api.planned()
    response = answered(api.review(api.applied_again(old, MINE), old), shipped())
    kept = len(api.holder(old)["env"]) - 1
    assert response["allowed"]
    assert response["warnings"][0] == (
        f"kept {kept} variables of ours that this update leaves out; "
        "to drop them remove annotation training.vsr.dev/environment"
    )


@both
@pytest.mark.parametrize(
    "theirs", [{"value": "elsewhere"}, SECRET, {}], ids=["value", "secret", "nothing"]
)
def test_the_authors_value_wins(api: Api, theirs: Job) -> None:
    """Whatever the update says under a name of ours is its author's."""
    old = api.planned()
    name = api.holder(old)["env"][-1]["name"]
    new = api.applied_again(old, MINE, {**theirs, "name": name})
    after = jsonpatch.apply_patch(copy.deepcopy(new), patch_of(api, new, old))
    entries = [each for each in api.holder(after)["env"] if each["name"] == name]
    assert entries == [{**theirs, "name": name}]


@both
def test_whoever_removes_the_record_is_rid_of_them(api: Api) -> None:
    old = api.planned()
    new = api.applied_again(old, MINE)
    del new["metadata"]["annotations"][labels.ENVIRONMENT]
    assert patch_of(api, new, old) == []
    replaced = {**new, "metadata": {"name": new["metadata"]["name"]}}
    assert patch_of(api, replaced, old) == []


def test_opting_out_is_obeyed() -> None:
    old = VSR.planned()
    new = VSR.applied_again(old, MINE)
    new["spec"]["autoParallelism"] = False
    assert patch_of(VSR, new, old) == []
    old = KUBEFLOW.planned()
    new = KUBEFLOW.applied_again(old, MINE)
    del new["metadata"]["labels"]
    assert patch_of(KUBEFLOW, new, old) == []


@both
@pytest.mark.parametrize(
    "spoil",
    [
        {"value": "changed"},
        {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"value": None},
        {"value": 1},
    ],
    ids=["changed", "valueFrom", "null", "number"],
)
def test_what_is_no_longer_ours_is_not_put_back(api: Api, spoil: Job) -> None:
    """Only an entry that is what we wrote, to the letter."""
    old = api.planned()
    entry = api.holder(old)["env"][-1]
    entry.update(spoil)
    after = patch_of(api, api.applied_again(old, MINE), old)
    assert entry["name"] not in {each["value"]["name"] for each in after}
    assert after


@both
@pytest.mark.parametrize("odd", [None, "text", 1, {"a": 1}, True], ids=str)
def test_odd_lists_are_left_to_the_schema(api: Api, odd: Any) -> None:
    old = api.planned()
    new = api.applied_again(old)
    api.holder(new)["env"] = odd
    patch = patch_of(api, new, old)
    assert bool(patch) == (odd is None)
    parent = api.path[0] if len(api.path) == 2 else api.path[1]
    for gone in (None, "text", []):
        new = copy.deepcopy(old)
        (new if parent == "spec" else new["spec"])[parent] = gone
        assert patch_of(api, new, old) == []
        assert answered(api.review(new, old), shipped())["allowed"]


@both
def test_subresources_and_deletions_are_left_alone(api: Api) -> None:
    old = api.planned()
    new = api.applied_again(old, MINE)
    review = api.review(new, old)
    review["request"]["subResource"] = "status"
    assert "patch" not in answered(review, shipped())
    new["metadata"]["deletionTimestamp"] = "2026-11-30T00:00:00Z"
    assert patch_of(api, new, old) == []


names = st.sampled_from(["A", "B", "C", "D"])
entries = st.lists(
    st.fixed_dictionaries({"name": names}, optional={"value": st.sampled_from(["", "1", "2"])}),
    max_size=6,
)
records = st.dictionaries(names, st.sampled_from(["", "1", "2"]))


@given(old=entries, new=entries, record=records)
def test_nothing_but_left_out_variables_of_ours_is_added(
    old: list[Job], new: list[Job], record: dict[str, str]
) -> None:
    text = str([{"name": key, "value": record[key]} for key in record]).replace("'", '"')
    metadata = {"annotations": {labels.ENVIRONMENT: text}}
    before = {"metadata": metadata, "spec": {"env": old}}
    after = {"metadata": metadata, "spec": {"env": new}}
    assert recorded_variables(text) == record
    kept = kept_variables(after, before, ("spec", "env"))
    added = [each.value for each in kept.operations] if kept else []
    left_out = {each["name"] for each in old} - {each["name"] for each in new}
    assert {each["name"] for each in added} == {
        each["name"]
        for each in old
        if each["name"] in left_out
        and each.get("value")
        and record.get(each["name"]) == each["value"]
    }
    assert len({each["name"] for each in added}) == len(added)
    if kept:
        done = jsonpatch.apply_patch(copy.deepcopy(after), as_json(kept.operations))
        assert done["spec"]["env"] == [*new, *added]
        assert kept_variables(done, before, ("spec", "env")) is None


def created(api: Api, job: Job) -> Job:
    """The job as it is stored."""
    response = answered(api.review(job), shipped())
    assert response["allowed"], response
    return jsonpatch.apply_patch(copy.deepcopy(job), response.get("patch", []))


def resized(api: Api, job: Job, nodes: int) -> Job:
    """A copy of `job` under another name, on other nodes: `get -o yaml`, edit, `create`."""
    new = copy.deepcopy(job)
    new["metadata"]["name"] = "again"
    (new["spec"] if api.path[1] == "env" else new["spec"]["trainer"])["numNodes"] = nodes
    return new


@both
@pytest.mark.parametrize("nodes", [1, 16])
def test_a_copied_manifest_is_planned_for_its_own_size(api: Api, nodes: int) -> None:
    """Variables that still have the value we recorded are ours to bring up to date."""
    copied = created(api, resized(api, api.planned(), nodes))
    fresh = created(api, resized(api, api.job(), nodes))
    assert by_name(api.holder(copied).pop("env")) == by_name(api.holder(fresh).pop("env"))
    assert copied["spec"] == fresh["spec"]
    assert copied["metadata"]["annotations"] == fresh["metadata"]["annotations"]


def by_name(env: list[Job]) -> Job:
    """Variables by name; none stands twice."""
    found = {each["name"]: each["value"] for each in env}
    assert len(found) == len(env)
    return found


@both
def test_a_value_its_author_changed_in_a_copy_is_the_authors(api: Api) -> None:
    copied = resized(api, api.planned(), 16)
    name = "TORCH_FR_BUFFER_SIZE"
    entry = next(each for each in api.holder(copied)["env"] if each["name"] == name)
    entry["value"] = "1"
    stored = created(api, copied)
    assert by_name(api.holder(stored)["env"])[name] == "1"
    assert f'"name":"{name}"' not in stored["metadata"]["annotations"][labels.ENVIRONMENT]


@both
def test_what_a_copy_has_no_use_for_is_told_and_stays_ours(api: Api) -> None:
    """Nothing is removed from a job, so its author is told; the next pass says the same."""
    copied = api.planned()
    record = copied["metadata"]["annotations"][labels.ENVIRONMENT]
    added = {"name": "FI_PROVIDER", "value": "efa"}
    listed = [*json.loads(record), {**added, "reason": "", "source": ""}]
    copied["metadata"]["annotations"][labels.ENVIRONMENT] = json.dumps(listed)
    api.holder(copied)["env"].append(added)
    stored = created(api, copied)
    assert added in api.holder(stored)["env"]
    assert created(api, stored) == stored
    said = answered(api.review(stored), shipped(), door="validate")["warnings"]
    assert "FI_PROVIDER came from an earlier plan and are not part of this one; delete them" in said
    unplanned = copy.deepcopy(stored)
    api.holder(unplanned)["env"].remove(added)
    said = answered(api.review(unplanned), shipped(), door="validate").get("warnings", [])
    assert not any("FI_PROVIDER" in each for each in said)


@both
@pytest.mark.parametrize(
    "theirs",
    [
        {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}, "value": "1"},
        {"value": None},
        {"value": 1},
        {},
    ],
    ids=["reference", "both", "null", "number", "nothing"],
)
@pytest.mark.parametrize("recorded", ["", "1"])
def test_a_forged_record_writes_no_value_beside_a_reference(
    api: Api, theirs: Job, recorded: str
) -> None:
    """An entry we did not write is not ours, whatever an annotation says of it."""
    job = api.job()
    entry = {**theirs, "name": "NCCL_DEBUG"}
    api.holder(job)["env"] = [entry]
    forged = json.dumps([{"name": "NCCL_DEBUG", "value": recorded}])
    job["metadata"].setdefault("annotations", {})[labels.ENVIRONMENT] = forged
    patch = answered(api.review(job), shipped()).get("patch", [])
    assert jsonpatch.apply_patch(copy.deepcopy(job), patch)
    assert not [each for each in patch if each["path"].startswith(f"/{'/'.join(api.path)}/0")]
    env = api.holder(jsonpatch.apply_patch(copy.deepcopy(job), patch))["env"]
    assert [each for each in env if each["name"] == "NCCL_DEBUG"] == [entry]


@pytest.mark.parametrize("first", [{"value": "INFO"}, {"value": "WARN"}], ids=str)
def test_of_a_name_twice_the_last_counts(first: Job) -> None:
    """In `training.vsr.dev` a name may stand twice, as in a container."""
    job = vsr_job()
    last = {"name": "NCCL_DEBUG", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    job["spec"]["env"] = [{"name": "NCCL_DEBUG", **first}, last]
    forged = json.dumps([{"name": "NCCL_DEBUG", "value": "WARN"}])
    job["metadata"]["annotations"] = {labels.ENVIRONMENT: forged}
    assert created(VSR, job)["spec"]["env"][:2] == job["spec"]["env"]
