"""Names of the Kubeflow TrainJob contract: what a job says to us, and where we answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.trainjobs.labels import PREFIX

OPT_IN_LABEL: Final = PREFIX + "plan"
OPTED_IN: Final = "auto"

MODEL: Final = PREFIX + "model"
ARCHITECTURE: Final = PREFIX + "architecture"
HF_CONFIG: Final = PREFIX + "hf-config"
GPU: Final = PREFIX + "gpu"
NODES: Final = PREFIX + "nodes"
GPUS_PER_NODE: Final = PREFIX + "gpus-per-node"
LAUNCHER: Final = PREFIX + "launcher"
INSTANCE_TYPE: Final = PREFIX + "instance-type"

TRAINER_GPU_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu")
"""The resources that count whole GPUs. Anything else with "gpu" in its name is only warned of."""

MAX_ENV_ITEMS: Final = 128
"""Schema bound of `spec.trainer.env` since Trainer 2.2."""

RESERVED_ENV: Final = frozenset(
    {
        "PET_NNODES",
        "PET_NPROC_PER_NODE",
        "PET_NODE_RANK",
        "PET_MASTER_ADDR",
        "PET_MASTER_PORT",
        "OMPI_MCA_orte_default_hostfile",
        "OMPI_MCA_plm_rsh_args",
        "OMPI_MCA_orte_keep_fqdn_hostnames",
        "OMPI_MCA_orte_set_default_slots",
        "DMLC_TRACKER_URI",
        "DMLC_TRACKER_PORT",
        "DMLC_TASK_ID",
        "DMLC_NUM_WORKER",
    }
)
"""Names Trainer sets itself and refuses in `spec.trainer.env`, by runtime policy.

Source: kubeflow/trainer v2.3.0, pkg/runtime/framework/plugins/{torch,mpi,xgboost}.
"""

TORCH_RESERVED_ENV: Final = frozenset(name for name in RESERVED_ENV if name.startswith("PET_"))

NETWORK_ENV_PREFIXES: Final = ("NCCL_", "RCCL_", "FI_", "UCX_", "GLOO_", "OFI_", "LD_LIBRARY_PATH")
"""Variables that describe a site's network. `spec.trainer.env` beats the runtime's own values."""

GPU_LABELS: Final = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "karpenter.azure.com/sku-gpu-name",
    "k8s.amazonaws.com/accelerator",
    "gpu.nvidia.com/class",
    "gpu.nvidia.com/model",
    "accelerator",
)
"""Node labels whose value names a GPU."""

MACHINE_LABELS: Final = (
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "node.coreweave.cloud/type",
)
"""Node labels whose value names a machine, and so its GPU."""


def gpu_of(node_labels: Mapping[str, str]) -> str:
    """The GPU that node labels name, "" if none does."""
    return next((node_labels[key] for key in GPU_LABELS if key in node_labels), "")


def names_hardware(node_labels: Mapping[str, str]) -> bool:
    """Whether a label names the GPU, or the machine it is in."""
    if any(key.startswith("beta.amd.com/gpu.product-name.") for key in node_labels):
        return True
    return any(key in node_labels for key in (*GPU_LABELS, *MACHINE_LABELS))


def annotation_path(key: str) -> str:
    """How an error names an annotation."""
    return f"metadata.annotations[{key}]"
