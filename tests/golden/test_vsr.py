"""Recorded reviews of `training.vsr.dev` TrainJobs and the whole answers they get, patch decoded.

Requests are shaped as kube-apiserver sends them, their values invented.
`REWRITE_GOLDEN=1` writes the answers anew; a human reads the difference.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.kubeflow.reviews import answered, stored
from tests.vsr.reviews import shipped

GOLDEN = Path(__file__).parent / "vsr"
CASES = sorted(each.name for each in GOLDEN.iterdir() if each.is_dir())
VERSION = r'(\\"catalog_version\\":\\")[0-9a-f]+'
DOORS = ("mutate", "validate")


def read_case(number: str) -> dict[str, Any]:
    """The request of the case that begins with `number`."""
    (folder,) = GOLDEN.glob(f"{number}-*")
    return json.loads((folder / "request.json").read_text())


@pytest.mark.parametrize("case", CASES)
def test_the_answers_are_the_recorded_ones(case: str) -> None:
    review = read_case(case[:2])
    answers = {door: answered(review, shipped(), door=door) for door in DOORS}
    written = json.dumps(answers, indent=2, ensure_ascii=False)
    written = re.sub(VERSION, r"\1any", written) + "\n"
    recorded = GOLDEN / case / "response.json"
    if os.environ.get("REWRITE_GOLDEN"):
        recorded.write_text(written)
    assert written == recorded.read_text()


@pytest.mark.parametrize("number", ["07", "08", "09"])
def test_an_admitted_job_is_stored_once(number: str) -> None:
    """The patched job passes /validate, and a second pass has no patch."""
    review = read_case(number)
    review["request"]["object"] = stored(review, answered(review, shipped()))
    assert "patch" not in answered(review, shipped())
    verdict = answered(review, shipped(), door="validate")
    assert verdict["allowed"], verdict


def test_a_manual_job_keeps_what_it_says() -> None:
    review = read_case("07")
    spec = stored(review, answered(review, shipped()))["spec"]
    given = review["request"]["object"]["spec"]
    assert {name: spec[name] for name in given if name != "env"} == {
        name: value for name, value in given.items() if name != "env"
    }
    assert spec["env"][: len(given["env"])] == given["env"]
    assert len({each["name"] for each in spec["env"]}) == len(spec["env"])


def test_a_known_alias_and_a_custom_shape_get_whole_plans() -> None:
    for number, world in (("08", 128), ("09", 64)):
        review = read_case(number)
        job = stored(review, answered(review, shipped()))
        spec, notes = job["spec"], job["metadata"]["annotations"]
        line = dict(
            each.split("=", 1) for each in notes["training.vsr.dev/auto-parallelism-config"].split()
        )
        degrees = [spec[name] for name in ("tpDegree", "ppDegree", "cpDegree")]
        assert degrees == [int(line[name]) for name in ("TP", "PP", "CP")]
        assert degrees[0] * degrees[1] * degrees[2] * int(line["FSDP"]) == world
        keys = ["TP", "PP", "FSDP", "CP", "micro_batch", "act_ckpt", "precision", "score"]
        assert list(line)[: len(keys)] == keys
        assert spec["modelSpec"]["microBatchSize"] == int(line["micro_batch"])


def test_every_wrong_value_is_listed() -> None:
    verdict = answered(read_case("12"), shipped(), door="validate")
    assert not verdict["allowed"]
    assert verdict["status"]["code"] == 422
    fields = [each["field"] for each in verdict["status"]["details"]["causes"]]
    assert len(fields) >= 8
    assert {
        "spec.image",
        "spec.gpusPerNode",
        "spec.tpDegree",
        "spec.precision",
        "spec.checkpoint.storagePath",
        "spec.checkpoint.intervalMinutes",
    } <= set(fields)
