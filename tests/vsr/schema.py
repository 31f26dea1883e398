"""TrainJobs of `training.vsr.dev` against the schema of the operator's own types, closed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

from tests.kubeflow.schema import _closed

CRD = Path(__file__).parents[1] / "data" / "vsr" / "crds" / "v1alpha1.yaml"
REQUIRED_OF_A_MODEL = (
    "paramsBillions",
    "hiddenDim",
    "numLayers",
    "numHeads",
    "seqLen",
    "microBatchSize",
)
"""Fields of `modelSpec` that are not `omitempty` in the Go type: its generated schema wants them.
Source: rootfs/k8s-trainjob-operator api/v1alpha1/types.go, ModelArchSpec."""


@cache
def _validator() -> Draft202012Validator:
    (version,) = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["modelSpec"]["required"] = [*REQUIRED_OF_A_MODEL]
    return Draft202012Validator(_closed(schema))


def problems(job: Mapping[str, Any]) -> list[str]:
    """What the schema says against `job`, metadata aside."""
    document = {key: value for key, value in job.items() if key != "metadata"}
    return [each.message for each in _validator().iter_errors(document)]
