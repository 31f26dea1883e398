"""Seconds of one optimizer step under a layout, term by term.

A matrix product of m x k by k x n costs the sum of
    2 m n k / (peak * gemm)                       arithmetic at the rate large products reach
    2 * 128 * 256 * k * wave * SMs / peak / 2     on average half a last wave of 128 x 256 tiles
Its operands load while others multiply: torch.mm reaches 80 % of an H100's peak with 1,024 to 2,048
rows, where the sum of both would allow 55 % (stas00/ml-engineering, MAMF table). What moves through
memory on its own, element-wise passes and gradients, comes on top.

For a fixed sequence length the time of a layer is so affine in the tokens of a microbatch:
`seconds = per_token * tokens + fixed`. That is what makes the search fast and its bounds sound.

Symbols: T tokens of one microbatch on one rank, h hidden, f feed-forward, s sequence length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.planner.architecture import ModelArchitecture
from app.planner.layout import Degrees, Layout
from app.planner.legality import num_microbatches, padded_vocabulary, stages_or_ceiling
from app.planner.memory import (
    SIXTEEN_BIT,
    StageParams,
    expert_ranks,
    layer_params,
    stage_params,
    states_of,
    tokens_per_rank,
)
from app.planner.native import mypyc_attr
from app.planner.request import PlanRequest, TimeSeconds

TILE: Final = 128 * 256
"""Output elements of one thread-block tile of a large 16-bit product on Ampere and later."""


HGX_GPUS: Final = 8
"""GPUs of the largest NVLink domain that is one node."""

HEAD_ALIGNMENT: Final = 8
"""16-bit products want rows of 16 bytes, head sizes of 8 values; kernels for less are slower."""


@mypyc_attr(acyclic=True)
class Affine:
    """Seconds as a function of tokens: `per_token * tokens + fixed`.

    Nothing changes one. A plain class, because the search makes many.
    """

    def __init__(self, per_token: float, fixed: float) -> None:
        self.per_token = per_token
        self.fixed = fixed

    def at(self, tokens: float) -> float:
        """Seconds for so many tokens; nothing takes no time."""
        return self.per_token * tokens + self.fixed

    def plus(self, other: Affine) -> Affine:
        """The two one after the other."""
        return Affine(self.per_token + other.per_token, self.fixed + other.fixed)

    def times(self, factor: float) -> Affine:
        """The same `factor` times."""
        return Affine(self.per_token * factor, self.fixed * factor)


NOTHING: Final = Affine(0.0, 0.0)


@mypyc_attr(acyclic=True)
class Rates:
    """What a GPU reaches in one precision: matrix products, and passes over its memory.

    `half_wave` is FLOP per unit of k lost to the last wave of tiles.
    """

    def __init__(self, request: PlanRequest, precision: str) -> None:
        gpu, efficiency = request.cluster.gpu, request.efficiency
        self.flop_per_second = gpu.peak_flop_per_second[precision] * efficiency.gemm[precision]
        self.bytes_per_second = gpu.hbm_bytes_per_second * efficiency.hbm
        self.half_wave = efficiency.wave * TILE * gpu.num_sms


def gemm(rates: Rates, *, n: float, k: float, share: float = 1.0) -> Affine:
    """Forward seconds of a product of T x k by k x n, as a function of T.

    `share` is what it reaches of a plain product's arithmetic rate.
    """
    reached = rates.flop_per_second * share
    return Affine(2 * n * k / reached, rates.half_wave * k / reached)


def attention_seconds_per_token(request: PlanRequest, layout: Degrees) -> float:
    """Forward seconds of the two attention products and the softmax of one layer, per local token.

    Fused kernels: FLOP over what the kernel reaches at this length and head size. Unfused ones
    also move the scores through memory `score_passes` times.
    """
    model, efficiency = request.model, request.efficiency
    gpu = request.cluster.gpu
    length = request.workload.sequence_length
    layers = max(1, model.num_layers)
    flop = model.attention_flop_per_token(length) / layers
    heads = model.num_heads
    if not request.framework.flash_attention:
        flop = 2.0 * length * (model.query_size + model.value_size)
    peak = gpu.peak_flop_per_second[_wide(layout.precision, request)]
    size = model.query_size / heads
    shape = min(1.0, size / 128) ** efficiency.attention_head_exponent
    saturation = length / (length + efficiency.attention_half_length)
    seconds = flop / (peak * efficiency.attention * shape * saturation)
    if model.head_dim % HEAD_ALIGNMENT:
        seconds *= efficiency.attention_unaligned
    if not request.framework.flash_attention:
        scores = heads * length * SIXTEEN_BIT * efficiency.score_passes
        seconds += scores / (gpu.hbm_bytes_per_second * efficiency.hbm)
    return float(seconds / layout.tp)


def _wide(precision: str, request: PlanRequest) -> str:
    """The precision attention and the head run in: 16-bit under narrower numerics."""
    if precision in ("fp8", "mxfp8", "nvfp4"):
        return request.cluster.gpu.default_precision
    return precision


def elementwise(request: PlanRequest, layout: Degrees, rates: Rates, *, width: float) -> Affine:
    """Forward seconds of norms, residuals, activation functions and casts of one layer."""
    efficiency = request.efficiency
    split = layout.tp if layout.sequence_parallel else 1
    values = efficiency.elementwise_hidden * request.model.hidden_size / split
    values += efficiency.elementwise_mlp * width / layout.tp
    return Affine(values * SIXTEEN_BIT / 3 / rates.bytes_per_second, 0.0)


@mypyc_attr(acyclic=True)
class LayerSeconds:
    """One layer's microbatch on one rank: forward, and backward without recomputation."""

    def __init__(self, *, forward: Affine, backward: Affine) -> None:
        self.forward = forward
        self.backward = backward

    def with_recompute(self, fraction: float) -> Affine:
        """Forward, backward and the share of forward that is done again."""
        return self.forward.times(1 + fraction).plus(self.backward)


def attention_projections(request: PlanRequest, layout: Degrees, rates: Rates) -> Affine:
    """Forward seconds of the query, key, value and output products of one layer."""
    model, tp = request.model, layout.tp
    h = model.hidden_size
    output = gemm(rates, n=h, k=model.value_size / tp)
    latent = model.latent
    if latent is None:
        width = (model.query_size + 2 * model.kv_size) / tp
        return gemm(rates, n=width, k=h).plus(output)
    down = latent.q_lora_rank + latent.kv_lora_rank + latent.qk_rope_head_dim
    query_in = latent.q_lora_rank or h
    compressed = gemm(rates, n=down, k=h)
    queries = gemm(rates, n=model.query_size / tp, k=query_in)
    expanded = model.num_heads * (latent.qk_nope_head_dim + latent.v_head_dim) / tp
    keys = gemm(rates, n=expanded, k=latent.kv_lora_rank)
    return compressed.plus(queries).plus(keys).plus(output)


def mlp(model: ModelArchitecture, rates: Rates, *, width: float, share: float = 1.0) -> Affine:
    """Forward seconds of one MLP of that width on one rank's tokens."""
    h = model.hidden_size
    up = gemm(rates, n=(model.mlp_matrices - 1) * width, k=h, share=share)
    return up.plus(gemm(rates, n=h, k=width, share=share))


def routed_mlp(request: PlanRequest, layout: Degrees, rates: Rates) -> Affine:
    """Forward seconds of the routed experts of one MoE layer, balanced routing.

    A rank's share: top_k copies of its tokens (after ep exchange as many as it sent), over the
    experts it holds, whose grouped products reach `grouped_gemm` of a plain one's rate. Permutation
    and its inverse move `moe_dispatch_passes` copies through memory.
    """
    model, moe = request.model, request.model.moe
    if moe is None:
        return NOTHING
    efficiency = request.efficiency
    whole = layout.ep > 1
    width = moe.expert_ffn_hidden_size / (1 if whole else layout.tp)
    copies = moe.top_k / (layout.tp if whole else 1)
    held = moe.num_experts / layout.ep
    one = mlp(model, rates, width=width, share=efficiency.grouped_gemm)
    moved = efficiency.moe_dispatch_passes * copies * model.hidden_size * SIXTEEN_BIT
    per_token = one.per_token * copies + moved / rates.bytes_per_second
    return Affine(per_token, one.fixed * held)


def router(request: PlanRequest, layout: Degrees, rates: Rates) -> Affine:
    """Forward seconds of an MoE layer's router, which runs 16 bits wide."""
    model, moe, precision = request.model, request.model.moe, _wide(layout.precision, request)
    if moe is None:
        return NOTHING
    if precision != layout.precision:
        rates = Rates(request, precision)
    split = layout.tp if layout.sequence_parallel else 1
    return gemm(rates, n=moe.num_experts, k=model.hidden_size).times(1 / split)


@mypyc_attr(acyclic=True)
class BlockSeconds:
    """What of a layer `ep` does not change: its products and passes, and attention per token."""

    def __init__(self, products: Affine, attention: float) -> None:
        self.products = products
        self.attention = attention


def block_seconds(
    request: PlanRequest, layout: Degrees, rates: Rates, *, routed: bool
) -> BlockSeconds:
    """Forward seconds of one layer without routed experts, and what launching it shows."""
    model, tp = request.model, layout.tp
    products = attention_projections(request, layout, rates)
    width = float(model.ffn_hidden_size)
    if routed and model.moe is not None:
        moe = model.moe
        width = float(moe.top_k * moe.expert_ffn_hidden_size + moe.shared_expert_ffn_hidden_size)
        products = products.plus(router(request, layout, rates))
        if moe.shared_expert_ffn_hidden_size:
            shared = moe.shared_expert_ffn_hidden_size / tp
            products = products.plus(mlp(model, rates, width=shared))
    else:
        products = products.plus(mlp(model, rates, width=width / tp))
    products = products.plus(elementwise(request, layout, rates, width=width))
    exposed = request.efficiency.launch_exposed * request.efficiency.launch_seconds
    return BlockSeconds(
        Affine(products.per_token, products.fixed + exposed),
        attention_seconds_per_token(request, layout),
    )


def layer_seconds(
    request: PlanRequest, layout: Degrees, rates: Rates, block: BlockSeconds, *, routed: bool
) -> LayerSeconds:
    """Forward and backward of one layer as functions of the rank's tokens.

    `block` is its part of `block_seconds`. Backward is twice the products and element-wise passes
    (once where weights are frozen) and the accumulation of gradients; attention by its own ratio.
    """
    products = block.products
    if routed:
        products = products.plus(routed_mlp(request, layout, rates))
    backward = Affine(block.attention * request.efficiency.backward_attention, 0.0)
    if request.workload.task in ("pretrain", "sft"):
        backward = backward.plus(products.times(2.0)).plus(
            accumulation(request, layout, routed=routed)
        )
    else:
        backward = backward.plus(products)
    return LayerSeconds(
        forward=Affine(products.per_token + block.attention, products.fixed), backward=backward
    )


def accumulation(request: PlanRequest, layout: Degrees, *, routed: bool) -> Affine:
    """Seconds in which one microbatch adds its gradients of one layer to those before.

    Each is read and written once, in the width in which gradients are reduced.
    Source: Megatron-LM `gradient_accumulation_fusion`: the product adds into the gradient buffer.
    """
    moved = 2 * request.framework.gradient_bytes
    dense, experts = layer_params(request.model, layout, routed=routed)
    bandwidth = request.cluster.gpu.hbm_bytes_per_second * request.efficiency.hbm
    return Affine(0.0, moved * (dense + experts) / bandwidth)


def head_seconds(request: PlanRequest, layout: Degrees) -> Affine:
    """Forward and backward seconds of the output head and the loss."""
    model, efficiency = request.model, request.efficiency
    if not model.vocab_size:
        return NOTHING
    multiple = request.framework.vocabulary_multiple
    width = padded_vocabulary(model.vocab_size, layout.tp, multiple) / layout.tp
    rates = Rates(request, _wide(layout.precision, request))
    product = gemm(rates, n=width, k=model.hidden_size)
    loss = Affine(efficiency.logits_passes * width * SIXTEEN_BIT / rates.bytes_per_second, 0.0)
    return product.times(3.0).plus(loss)


def steps(size: int) -> int:
    """Hops one after the other of a collective of `size` ranks: a ring's, or a tree's both ways."""
    return min(size - 1, 2 * (size - 1).bit_length())


def ring_seconds(
    payload_bytes: float, *, size: int, bytes_per_second: float, latency_seconds: float
) -> float:
    """Seconds of an all-gather or reduce-scatter whose full buffer is `payload_bytes`.

    Each rank sends (n - 1) / n of it. Source of the volume: nccl-tests doc/PERFORMANCE.md.
    """
    if size <= 1:
        return 0.0
    return payload_bytes * (size - 1) / size / bytes_per_second + latency_seconds * steps(size)


@mypyc_attr(acyclic=True)
class Links:
    """The links of a cluster as collectives find them: rates reached, seconds per hop.

    Inside one NVLink domain: that link. Across: a ring crosses each node boundary once per channel
    and uses the network cards of all its members there, so g members per domain see g cards' rate,
    at most the inner link's.
    """

    def __init__(self, request: PlanRequest) -> None:
        cluster, efficiency = request.cluster, request.efficiency
        self.domain_size = cluster.domain_size
        self.inner = cluster.intra.bytes_per_second * efficiency.intra_link
        self.outer = cluster.inter.bytes_per_second * efficiency.inter_link
        self.inner_latency = cluster.intra.latency_seconds * efficiency.latency_factor
        self.outer_latency = cluster.inter.latency_seconds * efficiency.latency_factor

    def of_group(self, size: int, stride: int) -> tuple[float, float]:
        """Bytes per second per rank and seconds per hop of `size` ranks that are `stride` apart."""
        members = self.domain_size // stride or 1
        if size <= members:
            return self.inner, self.inner_latency
        together = self.outer * members
        return min(together, self.inner), self.outer_latency

    def ring(self, payload_bytes: float, size: int) -> Affine:
        """Ring of `size` neighbours as `ring_seconds`, by tokens of `payload_bytes` each."""
        rate, latency = self.of_group(size, 1)
        return Affine(payload_bytes * (size - 1) / size / rate, latency * steps(size))


def tp_seconds_per_pass(
    request: PlanRequest, links: Links, layout: Degrees, *, routed: bool
) -> Affine:
    """Exposed seconds of tensor-parallel traffic of one layer in one pass; backward makes one too.

    Two all-reduces (or all-gather plus reduce-scatter pairs) each way around attention and MLP.
    Experts that live whole on a rank (ep > 1) leave only the pair around attention.
    Source: Megatron-LM, arXiv:1909.08053, section 3; Korthikanti et al., section 4.2.2.
    """
    if layout.tp == 1:
        return NOTHING
    pairs = 1 if routed and layout.ep > 1 else 2
    exposed = 1 - request.framework.overlap_tp
    one_way = links.ring(request.model.hidden_size * SIXTEEN_BIT, layout.tp)
    return Affine(2 * one_way.per_token * exposed * pairs, 2 * one_way.fixed * pairs)


def cp_seconds_per_layer(request: PlanRequest, links: Links, layout: Degrees) -> Affine:
    """Seconds that context parallelism adds to one layer: what a whole sequence would not cost.

    Forward passes every rank's keys and values around, backward those and their gradients; what
    attention does not hide is exposed. Attention in cp pieces is slower than in one: each step is
    short, and its partial results are merged (`cp_attention` of the attention time of the remote
    pieces). Every step is launched on its own.
    Source: Ring Attention, arXiv:2310.01889, section 3.
    """
    if layout.cp == 1:
        return NOTHING
    efficiency = request.efficiency
    rate, latency = links.of_group(layout.cp, layout.tp)
    hops = layout.cp - 1
    payload = 2 * request.model.kv_size / layout.tp * SIXTEEN_BIT * hops
    ring = 3 * payload / rate
    attention = attention_seconds_per_token(request, layout) * (1 + efficiency.backward_attention)
    remote = attention * hops / layout.cp
    launched = 2 * hops * efficiency.launch_collective_seconds
    return Affine(
        max(0.0, ring - remote) + efficiency.cp_attention * remote,
        2 * hops * latency + launched,
    )


def other_domains(top_k: int, domains: float) -> float:
    """Expected number of other domains in which a token of `top_k` random experts has one."""
    return (domains - 1) * (1 - (1 - 1 / domains) ** top_k)


def ep_seconds_per_pass(request: PlanRequest, layout: Degrees) -> Affine:
    """Exposed seconds of the all-to-alls of one MoE layer in one pass: dispatch and combine.

    The ranks of the group inside the fast domain are reached over it, the rest over the network at
    `exchange_link` of its rate: a token crosses once to each other domain that has an expert of
    its, and is copied on there. Routing is balanced.
    Source: GShard, arXiv:2006.16668, section 3.2; one copy a node: DeepSeek-V3, arXiv:2412.19437,
    section 3.2.2.
    """
    moe = request.model.moe
    if moe is None or layout.ep == 1:
        return NOTHING
    cluster, efficiency = request.cluster, request.efficiency
    near = min(layout.ep, cluster.domain_size)
    payload = request.model.hidden_size * SIXTEEN_BIT / layout.tp
    inner = cluster.intra.bytes_per_second * efficiency.intra_link
    outer = cluster.inter.bytes_per_second * efficiency.exchange_link
    copies = moe.top_k * (near - 1) / layout.ep
    crossings = other_domains(moe.top_k, layout.ep / near)
    seconds = payload * max(copies / inner, crossings / outer)
    far = layout.ep > near
    latency = cluster.inter.latency_seconds if far else cluster.intra.latency_seconds
    exposed = 1 - request.framework.overlap_ep
    return Affine(2 * seconds * exposed, 2 * latency)


@mypyc_attr(acyclic=True)
class ShardGroups:
    """Who shares what sharding cuts: ranks of one copy, how far apart, and copies of it.

    Dense parameters and routed experts have groups of their own where experts have ranks of theirs.
    """

    def __init__(self, tp: int, cp: int, ep: int, dp: int, dp_shard: int) -> None:
        self.dense = dp_shard * cp
        self.dense_stride = tp
        self.routed = expert_ranks(tp, ep, self.dense)
        self.routed_stride = tp if ep == 1 else ep
        self.replicas = dp // dp_shard


SharedSeconds = tuple[float, float, float]
"""Traffic per microbatch and per step, before any overlap; the parameter update."""

Wire = tuple[float, float, float, float]
"""Seconds on the wire of one set of groups, by what is sent: gradients reduced and weights gathered
once within the groups; one hop to every other rank; gradients summed over the replicas."""


@mypyc_attr(acyclic=True)
class SharedCosts:
    """Data-parallel traffic and update of one request: what no layout changes, worked out once.

    ZeRO-1 reduce-scatters gradients and all-gathers parameters once a step. Where no whole
    gradients stand, every microbatch reduces its own; where the weights that compute are made from
    shards, every microbatch gathers them again, under ZeRO-3 before forward and before backward.
    Under a pipeline FSDP holds both whole, gathers and reduces once. FSDP moves each layer in
    `gathers_per_layer` collectives, whose ring takes a hop for every other rank, which is what
    slows large groups. HSDP adds an all-reduce of the shard over replicas.
    Source: ZeRO, arXiv:1910.02054, section 7; PyTorch FSDP, arXiv:2304.11277, section 3; torch
    distributed/pipelining/stage.py `backward_maybe_with_nosync`.

    The update moves states through device memory. Offloaded, gradients go down over PCIe and
    weights come up; the host keeps pace with that.
    """

    def __init__(self, request: PlanRequest) -> None:
        framework, efficiency, gpu = request.framework, request.efficiency, request.cluster.gpu
        self.links = Links(request)
        self.gradient_bytes = framework.gradient_bytes
        self.parameter_bytes = framework.parameter_bytes
        self.every_microbatch = framework.reduce_every_microbatch
        self.gathers = efficiency.gathers_per_layer * request.model.num_layers
        self.step_seconds = efficiency.step_seconds
        if request.workload.offload == "none":
            bandwidth = gpu.hbm_bytes_per_second * efficiency.hbm
            self.update_seconds = efficiency.optimizer_passes * 4 / bandwidth
        else:
            moved = framework.gradient_bytes + framework.parameter_bytes
            self.update_seconds = moved / gpu.pcie_bytes_per_second

    def wire(self, ranks: ShardGroups, params: StageParams) -> Wire:
        """What each kind of traffic takes for one rank that holds `params` of a stage."""
        gradients = weights = hops = across = 0.0
        if params.dense:
            frozen = params.frozen_dense + params.frozen_routed
            gradients, weights, hops, across = self._group_wire(
                ranks.dense, ranks.dense_stride, ranks.replicas, params.dense, frozen
            )
        if params.routed:
            more = self._group_wire(
                ranks.routed, ranks.routed_stride, ranks.replicas, params.routed, 0.0
            )
            gradients, weights = gradients + more[0], weights + more[1]
            hops, across = hops + more[2], across + more[3]
        return gradients, weights, hops, across

    def _group_wire(
        self, size: int, stride: int, replicas: int, trained: float, frozen: float
    ) -> Wire:
        """The traffic of `trained` parameters and `frozen` ones gathered with them."""
        rate, latency = self.links.of_group(size, stride)
        reduced = trained * self.gradient_bytes
        gathered = (trained + frozen) * self.parameter_bytes
        across = 0.0
        if replicas > 1:
            outer, hop = self.links.of_group(replicas, stride * size)
            across = 2 * ring_seconds(
                reduced / size, size=replicas, bytes_per_second=outer, latency_seconds=hop
            )
        return (
            ring_seconds(reduced, size=size, bytes_per_second=rate, latency_seconds=latency),
            ring_seconds(gathered, size=size, bytes_per_second=rate, latency_seconds=latency),
            latency * (size - 1),
            across,
        )

    def seconds(
        self,
        wire: Wire,
        sharding: str,
        *,
        pp: int,
        owned: float,
        whole_gradients: bool,
        cut_weights: bool,
    ) -> SharedSeconds:
        """Seconds of a sharding, for a rank that updates `owned` parameters.

        `whole_gradients` stand on every rank, `cut_weights` are what weights that compute are made
        from.
        """
        gradients, weights, hops, across = wire
        update = owned * self.update_seconds + self.step_seconds
        each = self.every_microbatch and not whole_gradients
        reshards = sharding in ("zero3", "hsdp")
        if reshards or (each and cut_weights):
            gathers = 2 if reshards and not whole_gradients else 1
            traffic = gathers * weights + gradients + (1 + gathers) * self.gathers / pp * hops
        elif sharding == "none":
            traffic, across = gradients, gradients
        else:
            traffic, across = gradients, weights
        if each:
            return traffic, across, update
        return 0.0, traffic + across, update


def owned_params(params: StageParams, ranks: ShardGroups, *, sharded: bool) -> float:
    """Parameters one rank updates: its own shard where the moments are `sharded`."""
    if not sharded:
        return params.dense + params.routed
    return params.dense / ranks.dense + params.routed / ranks.routed


def launch_routed_seconds(request: PlanRequest) -> float:
    """Host seconds that an MoE layer adds to one pass: little where CUDA graphs replay it."""
    framework, gpu, efficiency = request.framework, request.cluster.gpu, request.efficiency
    seconds = efficiency.launch_routed_seconds
    beyond_node = gpu.nvlink_domain_size > HGX_GPUS
    if framework.captures_routed == "always" or (
        framework.captures_routed == "nvl72" and beyond_node
    ):
        return seconds * efficiency.launch_captured
    return seconds


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """One microbatch on one stage, by cause."""

    compute: float
    tp: float
    cp: float
    ep: float

    @property
    def total(self) -> float:
        """Seconds of one microbatch on the stage."""
        return self.compute + self.tp + self.cp + self.ep


def stage_seconds(
    request: PlanRequest, layout: Layout, *, plain: int, routed: int, last: bool
) -> StageSeconds:
    """One microbatch on a stage of `plain` dense and `routed` MoE layers, the head if `last`."""
    tokens = tokens_per_rank(request, layout)
    fraction = request.framework.recompute_flop_fraction[layout.recompute]
    again = 1.0 if layout.recompute == "full" else 0.0
    passes = 2 + again
    compute = tp = cp = ep = 0.0
    rates = Rates(request, layout.precision)
    links = Links(request)
    for layers, is_routed in ((plain, False), (routed, True)):
        if not layers:
            continue
        block = block_seconds(request, layout, rates, routed=is_routed)
        seconds = layer_seconds(request, layout, rates, block, routed=is_routed)
        compute += layers * seconds.with_recompute(fraction).at(tokens)
        traffic = tp_seconds_per_pass(request, links, layout, routed=is_routed)
        tp += layers * passes * traffic.at(tokens)
        cp += layers * cp_seconds_per_layer(request, links, layout).at(tokens)
        if is_routed:
            ep += layers * passes * ep_seconds_per_pass(request, layout).at(tokens)
    if last:
        compute += head_seconds(request, layout).at(tokens)
    each = request.efficiency.launch_seconds * (3 + fraction)
    if layout.tp > 1:
        each += request.efficiency.launch_collective_seconds * 2 * passes
    launched = (plain + routed) * each
    launched += routed * launch_routed_seconds(request) * (3 + fraction)
    compute = max(compute, launched - tp - cp - ep)
    return StageSeconds(compute=compute, tp=tp, cp=cp, ep=ep)


def _stage_kinds(model: ModelArchitecture, stages: tuple[int, ...]) -> list[tuple[int, int]]:
    """Dense and MoE layers of each stage."""
    kinds, start = [], 0
    for layers in stages:
        plain = max(0, min(start + layers, model.num_dense_layers) - start)
        kinds.append((plain, layers - plain))
        start += layers
    return kinds


def p2p_seconds(request: PlanRequest, links: Links, layout: Degrees) -> Affine:
    """Seconds one microbatch needs to cross one stage boundary, forward and backward.

    Each tensor-parallel rank sends its part; without sequence parallelism the receivers gather.
    Source: Narayanan et al., arXiv:2104.04473, section 4.1.
    """
    if layout.pp == 1:
        return NOTHING
    rate, latency = links.of_group(2, layout.tp * layout.cp * layout.dp)
    payload = request.model.hidden_size * SIXTEEN_BIT
    crossing = Affine(payload / layout.tp / rate, latency)
    if layout.tp > 1 and not layout.sequence_parallel:
        crossing = crossing.plus(links.ring(payload, layout.tp))
    return crossing.times(2.0)


@dataclass(frozen=True, slots=True)
class PipelineSeconds:
    """One microbatch through a pipeline: its slowest stage, and the sum over all stages."""

    slowest: StageSeconds
    all_stages: float


def pipeline_seconds(request: PlanRequest, layout: Layout) -> PipelineSeconds:
    """One microbatch on every stage. Independent of `sharding` and of `dp` beyond its product."""
    stages = stages_or_ceiling(request, layout)
    by_kind: dict[tuple[int, int, bool], StageSeconds] = {}
    seconds = []
    for index, (plain, routed) in enumerate(_stage_kinds(request.model, stages)):
        key = (plain, routed, index == layout.pp - 1)
        if key not in by_kind:
            by_kind[key] = stage_seconds(request, layout, plain=plain, routed=routed, last=key[2])
        seconds.append(by_kind[key])
    slowest = max(seconds, key=lambda stage: stage.total)
    return PipelineSeconds(slowest, sum(stage.total for stage in seconds))


def shared_seconds(request: PlanRequest, layout: Layout) -> SharedSeconds:
    """Data-parallel traffic and update of the first stage, which holds the embedding."""
    ranks = ShardGroups(layout.tp, layout.cp, layout.ep, layout.dp, layout.dp_shard)
    params, costs = stage_params(request, layout, 0), SharedCosts(request)
    states = states_of(request, layout)
    return costs.seconds(
        costs.wire(ranks, params),
        layout.sharding,
        pp=layout.pp,
        owned=owned_params(params, ranks, sharded=states.moments_sharded),
        whole_gradients=states.gradients.replicated > 0,
        cut_weights=states.weights.sharded > 0,
    )


def assemble(
    request: PlanRequest,
    layout: Layout,
    *,
    microbatches: int,
    pipeline: PipelineSeconds,
    shared: SharedSeconds,
) -> TimeSeconds:
    """The step from its parts.

    The slowest stage runs every microbatch; the others add their own once, divided by vpp, which is
    the bubble: (pp - 1) / (vpp m) of the work when stages are equal. Source: Narayanan et al.,
    arXiv:2104.04473, section 2.2.
    """
    framework, slowest = request.framework, pipeline.slowest
    p2p, crossings = 0.0, 0
    if layout.pp > 1:
        crossing = p2p_seconds(request, Links(request), layout).at(tokens_per_rank(request, layout))
        p2p = crossing * (1 - framework.overlap_pp) * layout.vpp
        crossings = microbatches + layout.pp - 1
    dp = exposed_dp(
        shared,
        overlap_each=framework.overlap_each,
        overlap_step=framework.overlap_dp,
        microbatch_seconds=slowest.total,
        microbatches=microbatches,
    )
    return TimeSeconds(
        compute=slowest.compute * microbatches,
        tp=slowest.tp * microbatches,
        cp=slowest.cp * microbatches,
        ep=slowest.ep * microbatches,
        pp_bubble=(pipeline.all_stages - slowest.total) / layout.vpp,
        pp_p2p=p2p * crossings,
        dp=dp,
        optimizer=shared[2],
    )


def step_time(request: PlanRequest, layout: Layout) -> TimeSeconds:
    """Seconds of one optimizer step, by cause."""
    return assemble(
        request,
        layout,
        microbatches=num_microbatches(request, layout),
        pipeline=pipeline_seconds(request, layout),
        shared=shared_seconds(request, layout),
    )


def exposed_dp(
    shared: SharedSeconds,
    *,
    overlap_each: float,
    overlap_step: float,
    microbatch_seconds: float,
    microbatches: int,
) -> float:
    """Data-parallel seconds that do not hide behind compute.

    Each microbatch can hide its own traffic; the once-a-step part hides behind what that leaves of
    one microbatch. So a longer microbatch never makes a shorter step.
    """
    per_microbatch, per_step, _ = shared
    within = max(per_microbatch * (1 - overlap_each), per_microbatch - microbatch_seconds)
    left = microbatch_seconds - (per_microbatch - within)
    after = max(per_step * (1 - overlap_step), per_step - left)
    return within * microbatches + after
