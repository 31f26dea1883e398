"""What the training software does: which states exist, what it shards, overlaps and allows.

A profile is data (catalog `frameworks/`). Its numbers are bytes per parameter and rates with a
source; no formula here knows a framework by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from app.planner.layout import Sharding

Optimizer = Literal["adamw", "adamw_bf16", "adamw_8bit", "sgd", "muon"]
Offload = Literal["none", "optimizer", "parameters"]
Task = Literal["pretrain", "sft", "lora", "qlora"]
OPTIMIZERS: tuple[Optimizer, ...] = ("adamw", "adamw_bf16", "adamw_8bit", "sgd", "muon")
OFFLOADS: tuple[Offload, ...] = ("none", "optimizer", "parameters")
MAX_LORA_RANK = 2**16
TASKS: tuple[Task, ...] = ("pretrain", "sft", "lora", "qlora")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bytes:
    """Bytes per parameter: `replicated` on every rank, `sharded` over the shard group."""

    replicated: float = 0.0
    sharded: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBytes:
    """Which copies of a trained parameter exist under one sharding, optimizer moments aside.

    `weights` is what the layers compute with, `gradients` every gradient copy, `master` the fp32
    copy the optimizer updates (none in pure 16-bit training).
    """

    weights: Bytes
    gradients: Bytes
    master: Bytes
    moments_sharded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptActivations:
    """What one layer keeps until its backward pass, counted in 16-bit values.

    Per token: `hidden` x h, `query` x a d, `kv` x 2 k d, `mlp` x f per matrix of the MLP (1 keeps
    gate, up and product), `routed` x top_k h in an MoE layer (dispatched copies), and per head and
    key `scores` (unfused attention only). `hidden_unsplit` is the part of the h-wide tensors that
    tensor parallelism divides only with sequence parallelism.
    Source of the form: Korthikanti et al., arXiv:2205.05198, equations 1-4.
    """

    hidden: float
    hidden_unsplit: float
    query: float
    kv: float
    mlp: float
    routed: float
    scores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkProfile:
    """One software stack. Fractions are 0 to 1; see the catalog entry for each number's source.

    What it allows: the `supports_*` fields, `uneven_pipeline` (with `explicit_stages` only as a
    list of layers per stage, unless interleaving leaves one way), `states` (a sharding that is
    absent is not offered), `pipeline_shardings` (those that work with a pipeline), `kept` (a
    recomputation that is absent is not offered), `offloads`, `precisions`.
    What it holds: `states` and its `variants` (`zero1@bf16` replaces `zero1` in that precision,
    `zero3@pp` with a pipeline), `kept` and its `kept_variants` (`none@mxfp8` replaces `none` in
    that precision), `logits_bytes` (per token and vocabulary entry of one tensor-parallel rank),
    `gathered_layers` (layers whose 16-bit parameters and gradients stand unsharded at once under
    ZeRO-3), `bucket_bytes` (communication buffers), `context_bytes` (CUDA context and libraries),
    `communicator_bytes` (per NCCL group), `fragmentation` (share of activations and buffers lost in
    the allocator), `host_factor` (host bytes per offloaded byte), `loading_bytes` (host bytes per
    parameter in which every rank loads weights that are not sharded, when it offloads).
    What it sends: `gradient_bytes` and `parameter_bytes` per parameter on the wire,
    `reduce_every_microbatch` (at every microbatch rather than once a step), and the shares of
    traffic that hide behind compute: `overlap_each` of what every microbatch sends (ZeRO-3's
    gathers run ahead of their layers), `overlap_dp` of what is sent once a step, `overlap_tp`,
    `overlap_ep`, `overlap_pp`.
    `fully_sharded` is its word for ZeRO-2 and ZeRO-3.
    `captures_routed` says where CUDA graphs replay MoE layers: never, on NVL72 alone, always.
    `efficiency` names its calibration.
    """

    name: str
    description: str
    supports_tp: bool
    supports_pp: bool
    supports_vpp: bool
    supports_cp: bool
    supports_ep: bool
    uneven_pipeline: bool
    sequence_parallel: bool
    flash_attention: bool
    states: Mapping[str, StateBytes]
    variants: Mapping[str, StateBytes] = field(default_factory=dict)
    pipeline_shardings: tuple[str, ...]
    default_sharding: Sharding
    kept: Mapping[str, KeptActivations]
    kept_variants: Mapping[str, KeptActivations] = field(default_factory=dict)
    recompute_flop_fraction: Mapping[str, float]
    offloads: tuple[Offload, ...]
    precisions: tuple[str, ...]
    vocabulary_multiple: int
    logits_bytes: float
    gathered_layers: float
    bucket_bytes: float
    context_bytes: float
    communicator_bytes: float
    fragmentation: float
    host_factor: float
    gradient_bytes: float
    parameter_bytes: float
    reduce_every_microbatch: bool
    overlap_dp: float
    overlap_each: float
    overlap_tp: float
    overlap_ep: float
    overlap_pp: float
    efficiency: str
    captures_routed: Literal["never", "nvl72", "always"] = "never"
    explicit_stages: bool = False
    fully_sharded: Literal["FSDP", "ZeRO"] = "FSDP"
    loading_bytes: float = 0.0
