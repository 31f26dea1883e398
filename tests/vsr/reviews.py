"""TrainJobs of `training.vsr.dev`, their reviews, and admission as it is shipped."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from typing import Any

from app.admission.decide import Deps
from app.catalog.loader import load_catalog
from app.http.settings import Settings
from app.main import admission_deps
from app.planner.search import plan
from app.trainjobs.kubeflow import NoRuntimes

H100 = "NVIDIA-H100-80GB-HBM3"


@cache
def shipped() -> Deps:
    """Admission with the built-in catalog, planner and rules."""
    return admission_deps(Settings(), load_catalog(), plan, NoRuntimes())


def auto_job(**spec: Any) -> dict[str, Any]:
    """A job that asks for a plan of llama-3-8b on one node, with changes to its spec."""
    return {
        "apiVersion": "training.vsr.dev/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "job", "namespace": "research"},
        "spec": {
            "model": "llama-3-8b",
            "image": "registry.example/train:1",
            "numNodes": 1,
            "gpusPerNode": 8,
            "autoParallelism": True,
            "nodeSelector": {"nvidia.com/gpu.product": H100},
            "checkpoint": {"enabled": False},
            **spec,
        },
    }


def manual_job(**spec: Any) -> dict[str, Any]:
    """A job that states its own degrees."""
    return auto_job(**{"autoParallelism": False, "tpDegree": 2, "ppDegree": 1, **spec})


def review_of(
    job: Mapping[str, Any], old: Mapping[str, Any] | None = None, **request: Any
) -> dict[str, Any]:
    """The review of `job` being created, or changed from `old`."""
    named = {"group": "training.vsr.dev", "version": "v1alpha1"}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1ef51e77-e463-576d-a42d-86486b8fa82c",
            "kind": {**named, "kind": "TrainJob"},
            "resource": {**named, "resource": "trainjobs"},
            "namespace": "research",
            "operation": "CREATE" if old is None else "UPDATE",
            "userInfo": {"username": "ann"},
            "object": copy.deepcopy(dict(job)),
            "oldObject": copy.deepcopy(dict(old)) if old is not None else None,
            "dryRun": False,
            **request,
        },
    }
