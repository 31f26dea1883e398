"""Everything a rule may ask about one job, read once from its context and plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.planner.request import Plan
from app.trainjobs.adapter import CollectiveContext

INSTANCE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
GPU_LABELS = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "amd.com/gpu.product-name",
    "gpu.nvidia.com/class",
    "gpu.nvidia.com/model",
)
FAMILY_LABEL = "nvidia.com/gpu.family"
FEATURES_ANNOTATION = "training.vsr.dev/features"
FAMILIES = ("pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell", "rubin")
"""NVIDIA families from old to new; a rule may compare them. Other families compare with none."""

DETERMINISTIC_SWITCH = ("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0")


@dataclass(slots=True, kw_only=True)
class Facts:
    """One job as the conditions see it. `None` and "" are unknown.

    `profile`, `link` and `traits` are filled in while detection runs; nothing else changes.
    `memory` is the planned share of the memory a plan may use, `hidden` the model's hidden size.
    """

    nodes: int
    gpus_per_node: int
    world: int
    tp: int | None
    pp: int | None
    cp: int | None
    ep: int | None
    memory: float | None
    hidden: int | None
    framework: str
    sharding: str
    sequence_parallel: str
    precision: str
    moe: str
    vendor: str
    gpu: str
    exclusive: str
    family: str
    instance: str
    command: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    resources: Mapping[str, str]
    claims: tuple[str, ...]
    sidecars: tuple[str, ...]
    features: tuple[str, ...]
    env: Mapping[str, str]
    operator: Mapping[str, str]
    profile: str = ""
    link: str = ""
    traits: tuple[str, ...] = ()


def facts_of(context: CollectiveContext, plan: Plan | None) -> Facts:
    """What is known about the job: the plan where there is one, else what the job states."""
    stated = context.degrees
    layout = plan.layout if plan is not None else None
    gpu = _gpu(context, plan)
    exclusive = context.gpu_exclusive and "-MIG-" not in gpu and "-SHARED" not in gpu
    return Facts(
        nodes=context.nodes,
        gpus_per_node=context.gpus_per_node,
        world=context.nodes * context.gpus_per_node,
        tp=layout.tp if layout else stated.get("tp"),
        pp=layout.pp if layout else stated.get("pp"),
        cp=layout.cp if layout else stated.get("cp"),
        ep=layout.ep if layout else stated.get("ep"),
        memory=plan.estimate.memory.total / plan.estimate.limit_bytes if plan else None,
        hidden=plan.request.model.hidden_size if plan else None,
        framework=plan.request.framework.name if plan else context.framework,
        sharding=layout.sharding if layout else "",
        sequence_parallel=_word(layout.sequence_parallel) if layout else "",
        precision=layout.precision if layout else "",
        moe=_word(plan.request.model.moe is not None) if plan else "",
        vendor=plan.request.cluster.gpu.vendor.lower() if plan else "",
        gpu=gpu,
        exclusive="yes" if exclusive else "",
        family=_family(context, plan),
        instance=_instance(context),
        command=context.command,
        labels=context.node_labels,
        annotations=context.annotations,
        resources=context.resources,
        claims=context.claims,
        sidecars=context.sidecars,
        features=_features(context),
        env=context.user_env,
        operator=context.operator_values,
    )


def family_rank(name: str) -> int | None:
    """Where a family stands among `FAMILIES` (`ada-lovelace` as `ada`), `None` if nowhere."""
    return _RANKS.get(name) if name in _RANKS else _RANKS.get(name.partition("-")[0])


_RANKS = {name: rank for rank, name in enumerate(FAMILIES)}


def _word(truth: bool) -> str:
    return "true" if truth else "false"


def _instance(context: CollectiveContext) -> str:
    if context.instance_type:
        return context.instance_type
    labels = context.node_labels
    return next((labels[key] for key in INSTANCE_LABELS if key in labels), "")


def _gpu(context: CollectiveContext, plan: Plan | None) -> str:
    labels = context.node_labels
    names = [context.gpu or (plan.request.cluster.gpu.name if plan else "")]
    names += [labels[key] for key in GPU_LABELS if key in labels]
    return " ".join(name for name in names if name)


def _family(context: CollectiveContext, plan: Plan | None) -> str:
    if plan is not None:
        return plan.request.cluster.gpu.family.lower()
    return (context.gpu_family or context.node_labels.get(FAMILY_LABEL, "")).lower()


def _features(context: CollectiveContext) -> tuple[str, ...]:
    named = context.annotations.get(FEATURES_ANNOTATION, "")
    features = [word.strip() for word in named.split(",") if word.strip()] if named else []
    name, value = DETERMINISTIC_SWITCH
    if context.user_env.get(name) == value:
        features.append("deterministic")
    return tuple(features)
