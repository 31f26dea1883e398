"""Kubeflow's TrainJob: `trainer.kubeflow.org/v1alpha1`, Trainer 2.0 to 2.4, in one adapter."""

from app.trainjobs.kubeflow.adapter import GROUP, KubeflowAdapter, wanted_runtime
from app.trainjobs.kubeflow.runtimes import (
    KnownRuntimes,
    NoRuntimes,
    RuntimeFacts,
    RuntimeReference,
    runtime_facts,
    runtime_reference,
)

__all__ = [
    "GROUP",
    "KnownRuntimes",
    "KubeflowAdapter",
    "NoRuntimes",
    "RuntimeFacts",
    "RuntimeReference",
    "runtime_facts",
    "runtime_reference",
    "wanted_runtime",
]
