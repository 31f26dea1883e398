"""What the job runs on: a GPU type, its links, and how many of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Precision = Literal["fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"]
PRECISIONS: Final[tuple[Precision, ...]] = ("fp32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4")
SIXTEEN_BIT_OR_WIDER: frozenset[str] = frozenset({"fp32", "fp16", "bf16"})
MAX_NODES = 16_384
MAX_GPUS_PER_NODE = 1024
"""The largest cluster anybody is answered about, whichever door asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator type. Rates are dense (no sparsity) datasheet peaks, bandwidth one-way.

    `memory_bytes` is what the driver shows to a program. `nvlink_bytes_per_second` is one
    direction of the card's whole NVLink (or xGMI) capacity, 0 without. `nvlink_domain_size`
    counts the GPUs that reach each other over it: 8 on HGX, 72 on NVL72, 1 without.
    `family` groups GPUs whose kernels behave alike (`ampere`, `hopper`, ...).
    """

    name: str
    vendor: str
    family: str
    compute_capability: float
    memory_bytes: int
    hbm_bytes_per_second: float
    peak_flop_per_second: Mapping[str, float]
    nvlink_bytes_per_second: float
    nvlink_domain_size: int
    pcie_bytes_per_second: float
    num_sms: int
    tdp_watts: float = 0.0
    provenance: str = "datasheet"

    def supports(self, precision: str) -> bool:
        """Whether training in `precision` works on this part."""
        return precision in self.peak_flop_per_second

    @property
    def default_precision(self) -> Precision:
        """bf16, or fp16 on parts without it."""
        return "bf16" if self.supports("bf16") else "fp16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One connection: one-way bandwidth per GPU, and the time of an empty message."""

    name: str
    bytes_per_second: float
    latency_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """`nodes` equal nodes of `gpus_per_node` GPUs.

    `intra` joins the GPUs of one NVLink domain (or of one node over PCIe), `inter` leaves it.
    `domain_size` is how many of the job's consecutive ranks share `intra`.
    `exclusive` is false for MIG slices and time-shared GPUs, which never span ranks.
    """

    gpu: Gpu
    nodes: int
    gpus_per_node: int
    domain_size: int
    intra: Link
    inter: Link
    fabric: str
    instance_type: str = ""
    exclusive: bool = True
    host_memory_bytes_per_node: int = 0

    @property
    def world_size(self) -> int:
        """GPUs of the whole job."""
        return self.nodes * self.gpus_per_node
