"""What hardware and software really reach: the calibration numbers of the time model.

Values are data (catalog `calibration/`), fitted to published runs; the formulas are in `timing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Calibration of one software profile on one GPU type. Fractions are of the datasheet peak.

    `gemm[precision]` is the fraction of peak a large matrix product reaches, and `wave` (0 to 1)
    how much of the last-wave loss of 128 x 256 tiles over the SMs is felt. `hbm` is the fraction of
    the memory bandwidth that passes over memory reach.
    `attention` is the fraction of the 16-bit peak of a fused kernel at long sequence and head size
    128; shorter sequences lose `attention_half_length / (s + attention_half_length)` and smaller
    heads `(d / 128) ** attention_head_exponent`.
    `elementwise_hidden` and `elementwise_mlp` are 16-bit passes over an h-wide and an f-wide tensor
    per layer, forward and backward together, outside matrix products.
    Heads that are no multiple of 8 wide take `attention_unaligned` times as long, and what context
    parallelism takes out of one kernel `cp_attention` more.
    `grouped_gemm` is the rate of the experts' grouped products over that of a plain one.
    `launch_seconds` is host time per layer and microbatch pass, `launch_routed_seconds` what an MoE
    layer adds to it (`launch_captured` of that where CUDA graphs replay the layer),
    `launch_collective_seconds` a tensor-parallel collective: a floor under compute and its traffic.
    `launch_exposed` of the first shows even when compute covers it: in stacks of small kernels.
    `intra_link`, `inter_link` are fractions of the link's bandwidth that collectives reach
    (`exchange_link` all-to-alls between domains), and a hop takes `latency_factor` times the link's
    latency. `gathers_per_layer` is how many collectives gather one sharded layer.
    `step_seconds` is host time per step.
    `backward_attention` is backward attention time over forward.
    `score_passes`, `logits_passes`, `moe_dispatch_passes` and `optimizer_passes` are passes over
    memory: of unfused attention scores, the loss, the routed copies, the optimizer's states.
    """

    gemm: Mapping[str, float]
    grouped_gemm: float
    hbm: float
    wave: float
    attention: float
    attention_half_length: float
    attention_head_exponent: float
    backward_attention: float
    cp_attention: float
    elementwise_hidden: float
    elementwise_mlp: float
    launch_seconds: float
    launch_exposed: float
    launch_routed_seconds: float
    launch_captured: float
    launch_collective_seconds: float
    step_seconds: float
    intra_link: float
    inter_link: float
    exchange_link: float
    score_passes: float
    logits_passes: float
    moe_dispatch_passes: float
    optimizer_passes: float
    latency_factor: float
    gathers_per_layer: float
    attention_unaligned: float
    provenance: str = "assumed"
