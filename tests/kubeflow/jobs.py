"""Kubeflow TrainJobs and plans for tests, with good defaults."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import jsonpatch

from app.planner.architecture import ModelArchitecture
from app.planner.efficiency import Efficiency
from app.planner.framework import FrameworkProfile
from app.planner.hardware import Cluster, Gpu, Link
from app.planner.layout import Layout
from app.planner.request import (
    Estimate,
    MemoryBytes,
    Plan,
    PlanRequest,
    SearchStats,
    TimeSeconds,
    Workload,
)
from app.trainjobs.adapter import Environment, JobReview, Setting
from app.trainjobs.kubeflow import KubeflowAdapter
from app.trainjobs.patch import as_json

H100 = "NVIDIA-H100-80GB-HBM3"
A100 = "NVIDIA-A100-SXM4-80GB"
PREFIX = "training.vsr.dev/"
LEFT_OUT = object()


def annotations(**values: Any) -> dict[str, Any]:
    """Annotations of our prefix; underscores become dashes."""
    return {PREFIX + name.replace("_", "-"): value for name, value in values.items()}


def on_nodes(release: str, pod_spec: Mapping[str, Any], target: str = "node") -> dict[str, Any]:
    """The spec field that gives the training pods `pod_spec`, as the release writes it."""
    if release == "2.0":
        return {"podSpecOverrides": [{"targetJobs": [{"name": target}], **pod_spec}]}
    if release == "2.1":
        return {"podTemplateOverrides": [{"targetJobs": [{"name": target}], "spec": pod_spec}]}
    return {"runtimePatches": [patch(pod_spec, target=target)]}


def patch(
    pod_spec: Mapping[str, Any], *, target: str = "node", manager: str = "example.com/user"
) -> dict[str, Any]:
    """One item of `runtimePatches` (2.2 and later)."""
    job = {"name": target, "template": {"spec": {"template": {"spec": pod_spec}}}}
    spec = {"template": {"spec": {"replicatedJobs": [job]}}}
    return {"manager": manager, "trainingRuntimeSpec": spec}


def job(
    *,
    release: str = "2.2",
    gpu_label: str | None = H100,
    trainer: Any = LEFT_OUT,
    labels: Mapping[str, str] | None = None,
    say: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """An opted-in job on 2 nodes of 8 H100 that names its model."""
    selector = {"nodeSelector": {"nvidia.com/gpu.product": gpu_label}}
    nodes = on_nodes(release, selector) if gpu_label else {}
    whole = worker() if trainer is LEFT_OUT else trainer
    stated = annotations(model="llama-3.1-8b", sequence_length="8192", global_batch_size="128")
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": "run",
            "namespace": "team",
            "labels": {PREFIX + "plan": "auto", **(labels or {})},
            "annotations": stated if say is None else annotations(**say),
        },
        "spec": {
            "runtimeRef": {
                "apiGroup": "trainer.kubeflow.org",
                "kind": "ClusterTrainingRuntime",
                "name": "torch-distributed",
            },
            "suspend": False,
            "managedBy": "trainer.kubeflow.org/trainjob-controller",
            **nodes,
            **({"trainer": whole} if whole is not None else {}),
            **spec,
        },
    }


def worker(**changes: Any) -> dict[str, Any]:
    """`spec.trainer` of 2 nodes of 8 GPUs; a change to `None` leaves the field out."""
    stated = {
        "image": "registry.example/train:1",
        "command": ["torchrun"],
        "args": ["train.py", "--tp=$(TP_DEGREE)"],
        "numNodes": 2,
        "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}},
        **changes,
    }
    return {key: value for key, value in stated.items() if value is not None}


def env(**values: str) -> list[dict[str, str]]:
    """An `env` list."""
    return [{"name": name, "value": value} for name, value in values.items()]


def creation(created: Mapping[str, Any], **changes: Any) -> JobReview:
    """The review of a job being created."""
    stated = {"operation": "CREATE", "job": created, "old": None, "namespace": "team", **changes}
    return JobReview(**stated)


def update(new: Mapping[str, Any], old: Mapping[str, Any] | None, **changes: Any) -> JobReview:
    """The review of a job being changed."""
    return creation(new, operation="UPDATE", old=old, **changes)


GPU = Gpu(
    name="H100-SXM5-80",
    vendor="nvidia",
    family="hopper",
    compute_capability=9.0,
    memory_bytes=85_000_000_000,
    hbm_bytes_per_second=3.35e12,
    peak_flop_per_second={"bf16": 989e12, "fp16": 989e12},
    nvlink_bytes_per_second=450e9,
    nvlink_domain_size=8,
    pcie_bytes_per_second=64e9,
    num_sms=132,
)
MODEL = ModelArchitecture(
    name="llama-3.1-8b",
    hidden_size=4096,
    ffn_hidden_size=14336,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=128256,
)
LAYOUT = Layout(tp=2, pp=1, cp=1, ep=1, dp=8, dp_shard=8, sharding="zero3", recompute="selective")


def plan(layout: Layout = LAYOUT, *, global_batch_size: int = 128, gpu: Gpu = GPU) -> Plan:
    """A plan whose figures are round; the layout is what the tests are about."""
    link = Link(name="any", bytes_per_second=1e11, latency_seconds=1e-5)
    gpus_per_node = min(8, layout.world_size)
    request = PlanRequest(
        model=MODEL,
        cluster=Cluster(
            gpu=gpu,
            nodes=layout.world_size // gpus_per_node,
            gpus_per_node=gpus_per_node,
            domain_size=gpus_per_node,
            intra=link,
            inter=link,
            fabric="any",
        ),
        framework=_named(FrameworkProfile, "fsdp"),
        efficiency=_named(Efficiency, ""),
        workload=Workload(sequence_length=8192, global_batch_size=global_batch_size),
        catalog_version="test",
    )
    estimate = Estimate(
        layout=layout,
        violations=(),
        fits=True,
        gpu_memory_bytes=gpu.memory_bytes,
        limit_bytes=8e10,
        memory=MemoryBytes(
            parameters=1e9,
            gradients=1e9,
            optimizer=1e9,
            activations=1e9,
            logits=1e9,
            buffers=1e9,
            communicators=1e9,
            reserve=1e9,
        ),
        time=TimeSeconds(
            compute=1.0, tp=0.1, cp=0.0, ep=0.0, pp_bubble=0.0, pp_p2p=0.0, dp=0.2, optimizer=0.1
        ),
        num_microbatches=global_batch_size // (layout.microbatch_size * layout.dp),
        global_batch_size=global_batch_size,
        tokens_per_second_per_gpu=9000.0,
        model_flop_per_second_per_gpu=4e14,
        mfu=0.4,
    )
    return Plan(
        layout=layout,
        estimate=estimate,
        search=SearchStats(configurations=100, evaluated=10, legal=10, feasible=10),
        explanation="because it is the fastest",
        request=request,
    )


def _named(kind: type, name: str) -> Any:
    """A `kind` of which only the name and what has a default are asked."""
    named = {each.name: None for each in fields(kind) if each.default is MISSING}
    return kind(**{**named, **({"name": name} if "name" in named else {})})


NETWORK = Setting(name="NCCL_SOCKET_IFNAME", value="eth0", reason="network", source="test")
PROCESS = Setting(name="TORCH_NCCL_DUMP_ON_TIMEOUT", value="1", reason="process", source="test")
ENVIRONMENT = Environment(settings=(NETWORK, PROCESS), profile="tcp")
NO_ENVIRONMENT = Environment()


def patched(
    before: Mapping[str, Any],
    *,
    layout: Layout = LAYOUT,
    environment: Environment = NO_ENVIRONMENT,
    adapter: KubeflowAdapter | None = None,
) -> dict[str, Any]:
    """`before` with the operations of a plan applied by a strict RFC 6902 library."""
    operations = (adapter or KubeflowAdapter()).operations(
        before, plan=plan(layout), environment=environment, default_precision="bf16"
    )
    return jsonpatch.apply_patch(copy.deepcopy(before), as_json(operations))


def env_of(stored: Mapping[str, Any]) -> dict[str, str]:
    """Names and values of `spec.trainer.env`; no name may stand twice."""
    listed = stored["spec"]["trainer"]["env"]
    names = [each["name"] for each in listed]
    assert len(names) == len(set(names)), names
    return {each["name"]: each.get("value", "") for each in listed}
