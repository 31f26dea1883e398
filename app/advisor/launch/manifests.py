"""TrainJob manifests: our own API, and Kubeflow Trainer (2.2 and later)."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import yaml

from app.advisor.launch import megatron, torchtitan
from app.advisor.launch.setup import File, Launch, Setup
from app.planner.request import Workload
from app.trainjobs import labels
from app.trainjobs.vsr import model_spec_of

INSTANCE_LABEL = "node.kubernetes.io/instance-type"
PRODUCT_LABELS = {"AMD": "amd.com/gpu.product-name"}
PRODUCT_LABEL = "nvidia.com/gpu.product"
KNOWN = "the node selector must be a label of your nodes"


def selector(setup: Setup) -> dict[str, str]:
    """The node label that finds the machines; where none is known, the GPU's name holds its place.

    Admission reads that name as it reads a label.
    """
    cluster = setup.request.cluster
    if cluster.instance_type:
        return {INSTANCE_LABEL: cluster.instance_type}
    gpu = cluster.gpu
    held = (PRODUCT_LABELS.get(gpu.vendor.upper(), PRODUCT_LABEL), gpu.name)
    return dict([setup.node_label or held])


def _selector_note(setup: Setup) -> str:
    cluster = setup.request.cluster
    if cluster.instance_type or setup.node_label:
        return KNOWN
    return (
        f"no node label of {cluster.gpu.name} is known: its name holds the place in the node "
        "selector; write the label of your nodes"
    )


def _work_annotations(work: Workload) -> dict[str, str]:
    """What is trained and how, as annotations say it; nothing for what is assumed anyway."""
    names = {"task": labels.TASK, "optimizer": labels.OPTIMIZER, "offload": labels.OFFLOAD}
    said = {
        names[each.name]: str(getattr(work, each.name))
        for each in fields(Workload)
        if each.name in names and getattr(work, each.name) != each.default
    }
    if work.task in {"lora", "qlora"}:
        said[labels.LORA_RANK] = str(work.lora_rank)
    return said


def trainjob(setup: Setup) -> dict[str, Any]:
    """A `training.vsr.dev` TrainJob that states the layout."""
    layout, cluster, work = setup.layout, setup.request.cluster, setup.workload
    return {
        "apiVersion": "training.vsr.dev/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": setup.name,
            "annotations": {
                labels.FRAMEWORK: setup.request.framework.name,
                labels.SEQUENCE_LENGTH: str(work.sequence_length),
                labels.GLOBAL_BATCH_SIZE: str(setup.estimate.global_batch_size),
                **_work_annotations(work),
            },
        },
        "spec": {
            "model": setup.model.name,
            "image": "registry.example/train:1",
            "numNodes": cluster.nodes,
            "gpusPerNode": cluster.gpus_per_node,
            "tpDegree": layout.tp,
            "ppDegree": layout.pp,
            "cpDegree": layout.cp,
            "precision": layout.precision,
            "modelSpec": model_spec_of(setup.model, work.sequence_length)
            | {
                "microBatchSize": layout.microbatch_size,
                "activationCheckpointing": layout.recompute != "none",
            },
            "nodeSelector": selector(setup),
            "command": ["torchrun", "train.py"],
            "args": [
                "--tp=$(TP_DEGREE)",
                "--pp=$(PP_DEGREE)",
                "--cp=$(CP_DEGREE)",
                "--dp=$(FSDP_DEGREE)",
                f"--ep={layout.ep}",
                f"--vpp={layout.vpp}",
                f"--sharding={layout.sharding}",
                f"--recompute={layout.recompute}",
                f"--global-batch-size={setup.estimate.global_batch_size}",
            ],
            "checkpoint": {
                "enabled": True,
                "storagePath": "/checkpoints",
                "intervalMinutes": 30,
                "retainCount": 3,
            },
        },
    }


def _of_megatron(setup: Setup) -> bool:
    """Whether the program is Megatron's, whose arguments describe the model."""
    return setup.request.framework.name.startswith("megatron")


def _arguments(setup: Setup) -> tuple[list[str], list[str]]:
    """Program and flags by software profile."""
    profile = setup.request.framework.name
    if _of_megatron(setup):
        lines = (*megatron.model_arguments(setup), *megatron.parallel_arguments(setup))
        return ["/opt/megatron-lm/pretrain_gpt.py"], list(lines)
    if profile.startswith("fsdp") and setup.layout.precision in torchtitan.CONVERTERS:
        return ["-m", "torchtitan.train"], list(torchtitan.flags(setup))
    layout = setup.layout
    names = ("tp", "pp", "cp", "ep", "dp", "sharding", "microbatch_size", "recompute", "precision")
    flags = [f"--{name.replace('_', '-')}={getattr(layout, name)}" for name in names]
    return ["/opt/train/train.py"], flags


def kubeflow(setup: Setup) -> dict[str, Any]:
    """A Kubeflow TrainJob whose command holds the layout; it asks admission for nothing."""
    cluster = setup.request.cluster
    program, flags = _arguments(setup)
    pods = {"spec": {"nodeSelector": selector(setup)}}
    jobs = {
        "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": pods}}}]}
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": setup.name},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "runtimePatches": [
                {"manager": "example.com/team", "trainingRuntimeSpec": {"template": jobs}}
            ],
            "trainer": {
                "image": "registry.example/train:1",
                "numNodes": cluster.nodes,
                "numProcPerNode": cluster.gpus_per_node,
                "resourcesPerNode": {"limits": {resource(setup): cluster.gpus_per_node}},
                "command": ["torchrun", *program],
                "args": flags,
            },
        },
    }


def resource(setup: Setup) -> str:
    """The extended resource that counts whole GPUs."""
    return "amd.com/gpu" if setup.request.cluster.gpu.vendor.lower() == "amd" else "nvidia.com/gpu"


def _manifest(document: dict[str, Any], notes: tuple[str, ...]) -> Launch:
    content = yaml.safe_dump(document, sort_keys=False, width=100)
    return Launch(
        files=(File(name="trainjob.yaml", language="yaml", content=content),),
        command=("kubectl", "apply", "-f", "trainjob.yaml"),
        notes=notes,
    )


def render_trainjob(setup: Setup) -> Launch:
    """The manifest of our own API."""
    return _manifest(
        trainjob(setup),
        (f"set image, command and storagePath; {_selector_note(setup)}",),
    )


def render_kubeflow(setup: Setup) -> Launch:
    """The manifest of Kubeflow Trainer."""
    notes = [
        f"set the image; {_selector_note(setup)}",
        (
            "on Trainer 2.1 write podTemplateOverrides in place of runtimePatches, on 2.0 "
            "podSpecOverrides"
        ),
    ]
    if _of_megatron(setup):
        notes.append(megatron.not_written(setup))
    return _manifest(kubeflow(setup), tuple(notes))
