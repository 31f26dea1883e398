"""Recorded reviews of Kubeflow TrainJobs and the whole answers they get, patch decoded.

`REWRITE_GOLDEN=1` writes the answers anew; a human reads the difference.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from app.catalog.loader import load_catalog
from app.http.settings import Settings
from app.main import admission_deps
from app.planner.search import plan
from app.trainjobs.kubeflow import NoRuntimes
from tests.kubeflow.jobs import A100, env_of
from tests.kubeflow.reviews import GOLDEN, answered, read_review, stored
from tests.kubeflow.schema import problems

VERSION = r'(\\"catalog_version\\":\\")[0-9a-f]+'
CASES = sorted(each.name for each in GOLDEN.iterdir() if each.is_dir())


@pytest.fixture(scope="module")
def deps():
    """Admission as it is shipped."""
    return admission_deps(Settings(), load_catalog(), plan, NoRuntimes())


def versionless(response):
    """The response without the catalog's version, which any edit of any entry changes."""
    return json.loads(re.sub(VERSION, r"\1any", json.dumps(response)))


@pytest.mark.parametrize("case", CASES)
def test_the_answer_is_the_recorded_one(case, deps):
    folder: Path = GOLDEN / case
    response = versionless(answered(read_review(case[:2]), deps))
    written = json.dumps({"response": response}, indent=2, ensure_ascii=False) + "\n"
    if os.environ.get("REWRITE_GOLDEN"):
        (folder / "response.json").write_text(written)
    assert written == (folder / "response.json").read_text()


@pytest.mark.parametrize(("case", "releases"), [("01", ("2.1",)), ("02", ("2.2", "2.3"))])
def test_a_creation_is_planned_within_its_schema_once(case, releases, deps):
    review = read_review(case)
    response = answered(review, deps)
    result = stored(review, response)
    assert all(problems(result, release) == [] for release in releases)
    world = 1
    for name in ("TP_DEGREE", "PP_DEGREE", "CP_DEGREE", "DP_DEGREE"):
        world *= int(env_of(result)[name])
    assert world == result["spec"]["trainer"]["numNodes"] * 8
    review["request"]["object"] = result
    assert "patch" not in answered(review, deps)
    verdict = answered(review, deps, door="validate")
    assert verdict["allowed"], verdict


def test_the_first_case_keeps_what_its_author_set(deps):
    review = read_review("01")
    result = stored(review, answered(review, deps))
    assert env_of(result)["NCCL_DEBUG"] == "INFO"
    assert env_of(result)["WANDB_MODE"] == "offline"


def test_the_second_case_gets_a_list_of_its_own(deps):
    paths = [each["path"] for each in answered(read_review("02"), deps)["patch"]]
    assert "/spec/trainer/env" in paths
    assert "/spec/trainer/numProcPerNode" in paths


@pytest.mark.parametrize("case", ["04", "06"])
@pytest.mark.parametrize("door", ["mutate", "validate"])
def test_an_update_is_let_through(case, door, deps):
    response = answered(read_review(case), deps, door=door)
    assert response["allowed"]
    assert "patch" not in response


def test_another_gpu_is_told(deps):
    assert A100 in " ".join(answered(read_review("04"), deps)["warnings"])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("TP_DEGREE", "16", "fast link"),
        ("PRECISION", "mxfp8", "cannot train in mxfp8"),
        ("MICRO_BATCH_SIZE", "4096", "must be a multiple"),
    ],
)
def test_validation_names_what_an_edit_broke(name, value, words, deps):
    review = read_review("01")
    result = stored(review, answered(review, deps))
    for entry in result["spec"]["trainer"]["env"]:
        if entry["name"] == name:
            entry["value"] = value
    review["request"]["object"] = result
    verdict = answered(review, deps, door="validate")
    assert not verdict["allowed"]
    assert words in verdict["status"]["message"]
