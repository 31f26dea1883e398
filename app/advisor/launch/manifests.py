"""TrainJob manifests: our own API, and Kubeflow Trainer (2.2 and later)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import yaml

from app.advisor.launch import megatron, torchtitan
from app.advisor.launch.setup import (
    FSDP_PROFILES,
    MEGATRON_PROFILES,
    File,
    Launch,
    Setup,
)
from app.planner.layout import Layout
from app.planner.request import Workload
from app.trainjobs import labels
from app.trainjobs.vsr import model_spec_of

INSTANCE_LABEL = "node.kubernetes.io/instance-type"
PRODUCT_LABELS = {"AMD": "amd.com/gpu.product-name"}
PRODUCT_LABEL = "nvidia.com/gpu.product"
WORK_ANNOTATIONS = {
    "task": labels.TASK,
    "optimizer": labels.OPTIMIZER,
    "offload": labels.OFFLOAD,
    "lora_rank": labels.LORA_RANK,
}
KNOWN = "the node selector must be a label of your nodes"


SCRIPT = "/opt/train/train.py"
OPERATOR_VARIABLES = {
    "tp": "$(TP_DEGREE)",
    "pp": "$(PP_DEGREE)",
    "cp": "$(CP_DEGREE)",
    "dp": "$(FSDP_DEGREE)",
}
"""What the operator of our own API sets; the last is the data-parallel degree, whatever shards."""
LAYOUT_FIELDS = tuple(each.name for each in fields(Layout))


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


def _stated_work(work: Workload) -> dict[str, str]:
    """What is trained and how, by field; nothing for what is assumed anyway."""
    said = {
        each.name: str(getattr(work, each.name))
        for each in fields(Workload)
        if each.name in WORK_ANNOTATIONS and getattr(work, each.name) != each.default
    }
    if work.task in {"lora", "qlora"}:
        said["lora_rank"] = str(work.lora_rank)
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
                **{WORK_ANNOTATIONS[name]: text for name, text in _stated_work(work).items()},
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
            "args": _script_flags(setup, OPERATOR_VARIABLES),
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
    return setup.request.framework.name in MEGATRON_PROFILES and not megatron.refuse(setup)


def _of_torchtitan(setup: Setup) -> bool:
    """Whether the program is torchtitan."""
    return (
        setup.request.framework.name in FSDP_PROFILES
        and setup.layout.precision in torchtitan.CONVERTERS
        and not torchtitan.refuse(setup)
    )


def _arguments(setup: Setup) -> tuple[list[str], list[str]]:
    """Program and flags by software profile; a script of yours for what no program can start.

    No shell takes these apart: each is one word.
    """
    if _of_megatron(setup):
        lines = (*megatron.model_arguments(setup), *megatron.parallel_arguments(setup))
        return ["/opt/megatron-lm/pretrain_gpt.py"], " ".join(lines).split()
    if _of_torchtitan(setup):
        return ["-m", "torchtitan.train"], list(torchtitan.flags(setup))
    return [SCRIPT], _script_flags(setup, {})


def _script_flags(setup: Setup, variables: Mapping[str, str]) -> list[str]:
    """All that the plan counts on, for a script that nobody knows; of some the variable."""
    layout, work = setup.layout, setup.workload
    said = {
        name: value
        for name in LAYOUT_FIELDS
        if (value := getattr(layout, name)) and (name != "dp_shard" or layout.sharding == "hsdp")
    }
    said |= {
        "sequence_length": work.sequence_length,
        "global_batch_size": setup.estimate.global_batch_size,
        **_stated_work(work),
        **variables,
    }
    return [f"--{name.replace('_', '-')}={_flag_text(value)}" for name, value in said.items()]


def _flag_text(value: Any) -> str:
    """A value in one word: `true`, `4,5,5`."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


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
    elif not _of_torchtitan(setup):
        notes.append(f"{SCRIPT} is your script; its flags hold all that the plan counts on")
    return _manifest(kubeflow(setup), tuple(notes))
