"""What the training software does: which states exist, what it shards, overlaps and allows.

A profile is data (catalog `frameworks/`). Its numbers are bytes per parameter and rates with a
source; no formula here knows a framework by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from app.planner.layout import Recompute, Sharding

Optimizer = Literal["adamw", "adamw_bf16", "adamw_8bit", "sgd", "muon"]
Offload = Literal["none", "optimizer", "parameters"]
Task = Literal["pretrain", "sft", "lora", "qlora"]
OPTIMIZERS: tuple[Optimizer, ...] = ("adamw", "adamw_bf16", "adamw_8bit", "sgd", "muon")
OFFLOADS: tuple[Offload, ...] = ("none", "optimizer", "parameters")
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

    Per token: `hidden` x h, `query` x a d, `kv` x 2 k d, `mlp` x f (one per gate, up or product
    tensor kept), and per head and key `scores` (unfused attention only). `hidden_unsplit` is the
    part of the h-wide tensors that tensor parallelism divides only with sequence parallelism.
    Source of the form: Korthikanti et al., arXiv:2205.05198, equations 1-4.
    """

    hidden: float
    hidden_unsplit: float
    query: float
    kv: float
    mlp: float
    scores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkProfile:
    """One software stack. Fractions are 0 to 1; see the catalog entry for each number's source.

    `states[sharding]` lists the parameter copies; a sharding that is absent is not offered.
    `kept[recompute]` lists what a layer keeps; a kind that is absent is not offered.
    `recompute_flop_fraction[recompute]` is the share of a layer's forward pass done again.
    `overlap_dp`, `overlap_tp`, `overlap_ep`, `overlap_pp` are the shares of that traffic that hide
    behind compute when there is enough of it. `logits_bytes` is per token and vocabulary entry on
    one tensor-parallel rank. `reduce_every_microbatch`: gradients (and under ZeRO-3 parameters)
    travel at every microbatch rather than once a step. The `supports_*` fields and
    `uneven_pipeline` say which rules of `legality` hold.
    """

    name: str
    description: str
    states: Mapping[Sharding, StateBytes]
    kept: Mapping[Recompute, KeptActivations]
    recompute_flop_fraction: Mapping[Recompute, float]
    logits_bytes: float
    gathered_layers: float
    gradient_buckets_bytes: float
    overlap_dp: float
    overlap_tp: float
    overlap_ep: float
    overlap_pp: float
    reduce_every_microbatch: bool
    supports_tp: bool
    supports_pp: bool
    supports_vpp: bool
    supports_cp: bool
    supports_ep: bool
    uneven_pipeline: bool
    sequence_parallel: bool
    flash_attention: bool
    default_sharding: Sharding
    precisions: tuple[str, ...]
    vocabulary_multiple: int
    efficiency: str
