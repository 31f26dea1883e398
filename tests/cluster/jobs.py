"""The TrainJobs these tests create: both APIs, each release of the second."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

H100 = "NVIDIA-H100-80GB-HBM3"
KUEUE = "system:serviceaccount:kueue-system:kueue-controller-manager"
QUEUE_LABEL = {"kueue.x-k8s.io/queue-name": "gpu-shared"}
OPT_IN_LABEL = {"training.vsr.dev/plan": "auto"}
RELEASES = ("2.0", "2.1", "2.2", "2.3")
NEWEST = RELEASES[-1]

_numbers = itertools.count(1)


def fresh_name(prefix: str) -> str:
    """A name no other test of this run uses."""
    return f"{prefix}-{next(_numbers)}"


def vsr_job(
    *,
    name: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A training.vsr.dev TrainJob that states its own layout, unless `spec` says otherwise.

    A field of `spec` that is `None` is left out.
    """
    fields = {
        "model": "llama-3-70b",
        "image": "registry.example/train:1",
        "numNodes": 8,
        "gpusPerNode": 8,
        "tpDegree": 8,
        "ppDegree": 1,
        "nodeSelector": {"nvidia.com/gpu.product": H100},
        "checkpoint": {"enabled": True, "storagePath": "/checkpoints"},
        **spec,
    }
    return {
        "apiVersion": "training.vsr.dev/v1alpha1",
        "kind": "TrainJob",
        "metadata": _metadata(name or fresh_name("vsr"), labels, annotations),
        "spec": {key: value for key, value in fields.items() if value is not None},
    }


def vsr_auto_job(**changes: Any) -> dict[str, Any]:
    """A training.vsr.dev TrainJob that asks for a plan and leaves everything open."""
    return vsr_job(**{"autoParallelism": True, "tpDegree": None, "ppDegree": None, **changes})


def kubeflow_job(
    *,
    name: str = "",
    release: str = NEWEST,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    env: tuple[Mapping[str, str], ...] = ({"name": "NCCL_DEBUG", "value": "INFO"},),
    **spec: Any,
) -> dict[str, Any]:
    """A Kubeflow TrainJob that shows its GPU in the way its release has for it; no plan asked."""
    trainer = {
        "image": "registry.example/train:1",
        "command": ["torchrun"],
        "args": ["-m", "train", "--tp=$(TP_DEGREE)"],
        "numNodes": 4,
        "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}},
        "env": [dict(entry) for entry in env],
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": _metadata(name or fresh_name("kubeflow"), labels, annotations),
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": trainer,
            **node_selection(release, {"nvidia.com/gpu.product": H100}),
            **spec,
        },
    }


def kubeflow_auto_job(**changes: Any) -> dict[str, Any]:
    """A Kubeflow TrainJob that asks for a plan."""
    wishes = {"training.vsr.dev/model": "llama-3-8b"}
    return kubeflow_job(
        **{
            **changes,
            "labels": {**OPT_IN_LABEL, **changes.get("labels", {})},
            "annotations": {**wishes, **changes.get("annotations", {})},
        }
    )


def node_selection(
    release: str, selector: Mapping[str, str], *, manager: str = "tests.example/user"
) -> dict[str, Any]:
    """The spec field with which a job of that Trainer release selects nodes."""
    pod = {"nodeSelector": dict(selector)}
    if release == "2.0":
        return {"podSpecOverrides": [{"targetJobs": [{"name": "node"}], **pod}]}
    if release == "2.1":
        return {"podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "spec": pod}]}
    node = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    jobset = {"template": {"spec": {"replicatedJobs": [node]}}}
    return {"runtimePatches": [{"manager": manager, "trainingRuntimeSpec": jobset}]}


def environment(job: Mapping[str, Any]) -> dict[str, str]:
    """The environment of a Kubeflow job's trainer; fails on a name that is there twice."""
    entries = job["spec"]["trainer"].get("env", [])
    names = [entry["name"] for entry in entries]
    assert len(names) == len(set(names)), names
    return {entry["name"]: entry.get("value", "") for entry in entries}


def without_zero_values(value: Any) -> Any:
    """What a typed Go client keeps of an object when it writes it back: `omitempty` at work."""
    if isinstance(value, Mapping):
        kept = {key: without_zero_values(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in ("", [], {}, None)}
    if isinstance(value, list):
        return [without_zero_values(item) for item in value]
    return value


def _metadata(
    name: str, labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    return metadata
