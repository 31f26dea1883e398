"""Seconds of one optimizer step under a layout, term by term.

A roofline by shape. A matrix product of m x k by k x n costs the sum of
    2 m n k / (peak * gemm)                       arithmetic at the rate large products reach
    (m k + k n + m n) * bytes / (hbm bandwidth)   operand traffic: what makes thin products slow
    2 * 128 * 256 * k * wave * SMs / peak / 2     on average half a last wave of 128 x 256 tiles
so that, for a fixed sequence length, the time of a layer is affine in the tokens of a microbatch:
`seconds = per_token * tokens + fixed`. That is what makes the search fast and its bounds sound.

Symbols: T tokens of one microbatch on one rank, h hidden, f feed-forward, s sequence length.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.planner.architecture import ModelArchitecture
from app.planner.hardware import Cluster
from app.planner.layout import Layout
from app.planner.legality import num_microbatches, padded_vocabulary, stages_or_ceiling
from app.planner.memory import (
    SIXTEEN_BIT,
    StageParams,
    dense_shard_group,
    expert_shard_group,
    stage_params,
    states_of,
    tokens_per_rank,
)
from app.planner.request import PlanRequest, TimeSeconds

TILE = 128 * 256
"""Output elements of one thread-block tile of a large 16-bit product on Ampere and later."""

OPERAND_BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "mxfp8": 1.0, "nvfp4": 0.5}


HEAD_ALIGNMENT = 8
"""16-bit products want rows of 16 bytes, head sizes of 8 values; kernels for less are slower."""


@dataclass(frozen=True, slots=True)
class Affine:
    """Seconds as a function of tokens: `per_token * tokens + fixed`."""

    per_token: float
    fixed: float

    def at(self, tokens: float) -> float:
        """Seconds for so many tokens; nothing takes no time."""
        return self.per_token * tokens + self.fixed

    def plus(self, other: Affine) -> Affine:
        """The two one after the other."""
        return Affine(self.per_token + other.per_token, self.fixed + other.fixed)

    def times(self, factor: float) -> Affine:
        """The same `factor` times."""
        return Affine(self.per_token * factor, self.fixed * factor)


NOTHING = Affine(0.0, 0.0)


def gemm(request: PlanRequest, precision: str, *, n: float, k: float) -> Affine:
    """Forward seconds of a product of T x k by k x n, as a function of T."""
    gpu, efficiency = request.cluster.gpu, request.efficiency
    peak = gpu.peak_flop_per_second[precision]
    reached = peak * efficiency.gemm[precision]
    operand = OPERAND_BYTES[precision]
    bandwidth = gpu.hbm_bytes_per_second * efficiency.hbm
    per_token = 2 * n * k / reached + (k * operand + n * SIXTEEN_BIT) / bandwidth
    half_wave = efficiency.wave * TILE * k * gpu.num_sms / reached
    return Affine(per_token, k * n * operand / bandwidth + half_wave)


def attention_seconds_per_token(request: PlanRequest, layout: Layout) -> float:
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


def elementwise(request: PlanRequest, layout: Layout, *, width: float) -> Affine:
    """Forward seconds of norms, residuals, activation functions and casts of one layer."""
    gpu, efficiency = request.cluster.gpu, request.efficiency
    bandwidth = gpu.hbm_bytes_per_second * efficiency.hbm
    split = layout.tp if layout.sequence_parallel else 1
    values = efficiency.elementwise_hidden * request.model.hidden_size / split
    values += efficiency.elementwise_mlp * width / layout.tp
    return Affine(values * SIXTEEN_BIT / 3 / bandwidth, 0.0)


@dataclass(frozen=True, slots=True)
class LayerSeconds:
    """One layer's microbatch on one rank: forward, and backward without recomputation."""

    forward: Affine
    backward: Affine

    def with_recompute(self, fraction: float) -> Affine:
        """Forward, backward and the share of forward that is done again."""
        return self.forward.times(1 + fraction).plus(self.backward)


def attention_projections(request: PlanRequest, layout: Layout) -> Affine:
    """Forward seconds of the query, key, value and output products of one layer."""
    model, precision, tp = request.model, layout.precision, layout.tp
    h = model.hidden_size
    output = gemm(request, precision, n=h, k=model.value_size / tp)
    latent = model.latent
    if latent is None:
        width = (model.query_size + 2 * model.kv_size) / tp
        return gemm(request, precision, n=width, k=h).plus(output)
    down = latent.q_lora_rank + latent.kv_lora_rank + latent.qk_rope_head_dim
    query_in = latent.q_lora_rank or h
    compressed = gemm(request, precision, n=down, k=h)
    queries = gemm(request, precision, n=model.query_size / tp, k=query_in)
    expanded = model.num_heads * (latent.qk_nope_head_dim + latent.v_head_dim) / tp
    keys = gemm(request, precision, n=expanded, k=latent.kv_lora_rank)
    return compressed.plus(queries).plus(keys).plus(output)


def mlp(request: PlanRequest, layout: Layout, *, width: float) -> Affine:
    """Forward seconds of one MLP of that width on one rank's tokens."""
    model, precision = request.model, layout.precision
    h = model.hidden_size
    up = gemm(request, precision, n=(model.mlp_matrices - 1) * width, k=h)
    return up.plus(gemm(request, precision, n=h, k=width))


def routed_mlp(request: PlanRequest, layout: Layout) -> Affine:
    """Forward seconds of the router and the experts of one MoE layer, balanced routing.

    A rank's share: top_k copies of its tokens (after ep exchange as many as it sent), over the
    experts it holds. Permutation and its inverse move `moe_dispatch_passes` copies through memory.
    """
    model, moe = request.model, request.model.moe
    if moe is None:
        return NOTHING
    gpu, efficiency = request.cluster.gpu, request.efficiency
    whole = layout.ep > 1
    width = moe.expert_ffn_hidden_size / (1 if whole else layout.tp)
    copies = moe.top_k / (layout.tp if whole else 1)
    held = moe.num_experts / layout.ep
    one = mlp(request, layout, width=width)
    experts = Affine(one.per_token * copies, one.fixed * held)
    bandwidth = gpu.hbm_bytes_per_second * efficiency.hbm
    moved = efficiency.moe_dispatch_passes * copies * model.hidden_size * SIXTEEN_BIT / bandwidth
    split = layout.tp if layout.sequence_parallel else 1
    router = gemm(request, _wide(layout.precision, request), n=moe.num_experts, k=model.hidden_size)
    total = experts.plus(router.times(1 / split)).plus(Affine(moved, 0.0))
    if moe.shared_expert_ffn_hidden_size:
        shared = mlp(request, layout, width=moe.shared_expert_ffn_hidden_size / layout.tp)
        total = total.plus(shared)
    return total


def layer_seconds(request: PlanRequest, layout: Layout, *, routed: bool) -> LayerSeconds:
    """Forward and backward of one layer as functions of the rank's tokens.

    Backward is twice the products and element-wise passes; attention by its own ratio.
    """
    model, efficiency = request.model, request.efficiency
    products = attention_projections(request, layout)
    width = float(model.ffn_hidden_size)
    if routed and model.moe is not None:
        moe = model.moe
        width = float(moe.top_k * moe.expert_ffn_hidden_size + moe.shared_expert_ffn_hidden_size)
        products = products.plus(routed_mlp(request, layout))
    else:
        products = products.plus(mlp(request, layout, width=width / layout.tp))
    products = products.plus(elementwise(request, layout, width=width))
    attention = Affine(attention_seconds_per_token(request, layout), 0.0)
    exposed = efficiency.launch_exposed * efficiency.launch_seconds
    products = products.plus(Affine(0.0, exposed))
    trained = 2.0 if request.workload.task in ("pretrain", "sft") else 1.0
    return LayerSeconds(
        forward=products.plus(attention),
        backward=products.times(trained).plus(attention.times(efficiency.backward_attention)),
    )


def head_seconds(request: PlanRequest, layout: Layout) -> Affine:
    """Forward and backward seconds of the output head and the loss."""
    model, efficiency = request.model, request.efficiency
    if not model.vocab_size:
        return NOTHING
    multiple = request.framework.vocabulary_multiple
    width = padded_vocabulary(model.vocab_size, layout.tp, multiple) / layout.tp
    product = gemm(request, _wide(layout.precision, request), n=width, k=model.hidden_size)
    bandwidth = request.cluster.gpu.hbm_bytes_per_second * efficiency.hbm
    loss = Affine(efficiency.logits_passes * width * SIXTEEN_BIT / bandwidth, 0.0)
    return product.times(3.0).plus(loss)


def steps(size: int) -> int:
    """Hops one after the other of a collective of `size` ranks: a ring's, or a tree's both ways."""
    return min(size - 1, 2 * (size - 1).bit_length())


@dataclass(frozen=True, slots=True)
class GroupLink:
    """What a collective of one group gets: bytes per second per rank, seconds per hop, size."""

    bytes_per_second: float
    latency_seconds: float
    size: int

    def ring_seconds(self, payload_bytes: float) -> float:
        """Seconds of an all-gather or reduce-scatter whose full buffer is `payload_bytes`.

        Each rank sends (n - 1) / n of it. Source of the volume: nccl-tests doc/PERFORMANCE.md.
        """
        if self.size <= 1:
            return 0.0
        moved = payload_bytes * (self.size - 1) / self.size
        return moved / self.bytes_per_second + self.latency_seconds * steps(self.size)


def group_link(request: PlanRequest, *, size: int, stride: int) -> GroupLink:
    """The link of a group of `size` ranks that are `stride` apart.

    Inside one NVLink domain: that link. Across: a ring crosses each node boundary once per channel
    and uses the network cards of all its members there, so g members per domain see g cards' rate,
    at most the inner link's.
    """
    cluster: Cluster = request.cluster
    efficiency = request.efficiency
    inner = cluster.intra.bytes_per_second * efficiency.intra_link
    latency = efficiency.latency_factor
    members = max(1, cluster.domain_size // stride)
    if size <= members:
        return GroupLink(inner, cluster.intra.latency_seconds * latency, size)
    outer = cluster.inter.bytes_per_second * efficiency.inter_link * members
    return GroupLink(min(inner, outer), cluster.inter.latency_seconds * latency, size)


def tp_seconds_per_layer(
    request: PlanRequest, layout: Layout, *, routed: bool, recompute_fraction: float
) -> Affine:
    """Exposed seconds of tensor-parallel traffic of one layer, forward and backward.

    Two all-reduces (or all-gather plus reduce-scatter pairs) each way around attention and MLP.
    Experts that live whole on a rank (ep > 1) leave only the pair around attention.
    Source: Megatron-LM, arXiv:1909.08053, section 3; Korthikanti et al., section 4.2.2.
    """
    if layout.tp == 1:
        return NOTHING
    pairs = 1 if routed and layout.ep > 1 else 2
    link = group_link(request, size=layout.tp, stride=1)
    exposed = 1 - request.framework.overlap_tp
    payload = request.model.hidden_size * SIXTEEN_BIT
    passes = pairs * (2 + recompute_fraction)
    one_way = payload * (layout.tp - 1) / layout.tp / link.bytes_per_second
    latency = link.latency_seconds * steps(layout.tp)
    return Affine(2 * one_way * exposed * passes, 2 * latency * passes)


def cp_seconds_per_layer(request: PlanRequest, layout: Layout) -> Affine:
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
    link = group_link(request, size=layout.cp, stride=layout.tp)
    hops = layout.cp - 1
    payload = 2 * request.model.kv_size / layout.tp * SIXTEEN_BIT * hops
    ring = 3 * payload / link.bytes_per_second
    attention = attention_seconds_per_token(request, layout) * (1 + efficiency.backward_attention)
    remote = attention * hops / layout.cp
    launched = 2 * hops * efficiency.launch_collective_seconds
    return Affine(
        max(0.0, ring - remote) + efficiency.cp_attention * remote,
        2 * hops * link.latency_seconds + launched,
    )


def ep_seconds_per_layer(
    request: PlanRequest, layout: Layout, *, recompute_fraction: float
) -> Affine:
    """Exposed seconds of the all-to-alls of one MoE layer: dispatch and combine, each way.

    The ranks of the group inside the fast domain are reached over it, the rest over the network.
    Source: GShard, arXiv:2006.16668, section 3.2; volume balanced.
    """
    moe = request.model.moe
    if moe is None or layout.ep == 1:
        return NOTHING
    cluster, efficiency = request.cluster, request.efficiency
    near = min(layout.ep, cluster.domain_size)
    copies = moe.top_k / layout.tp * request.model.hidden_size * SIXTEEN_BIT
    inner = cluster.intra.bytes_per_second * efficiency.intra_link
    outer = cluster.inter.bytes_per_second * efficiency.inter_link
    seconds = copies * max((near - 1) / layout.ep / inner, (layout.ep - near) / layout.ep / outer)
    far = layout.ep > near
    latency = cluster.inter.latency_seconds if far else cluster.intra.latency_seconds
    passes = 2 * (2 + recompute_fraction)
    exposed = 1 - request.framework.overlap_ep
    return Affine(seconds * passes * exposed, latency * passes)


@dataclass(frozen=True, slots=True)
class DataParallelSeconds:
    """Data-parallel traffic of one rank: per microbatch and once a step, before any overlap."""

    per_microbatch: float
    per_step: float


def dp_traffic(request: PlanRequest, layout: Layout, params: StageParams) -> DataParallelSeconds:
    """Seconds on the wire of gradients and, under ZeRO, of parameters.

    ZeRO-1 and 2 reduce-scatter gradients and all-gather parameters once a step. ZeRO-3 gathers
    parameters before forward and again before backward, at every microbatch unless the framework
    keeps them, and reduces gradients: each layer in `gathers_per_layer` collectives, whose ring
    takes a hop for every other rank, which is what slows large groups. HSDP adds an all-reduce of
    the shard over replicas.
    Source: ZeRO, arXiv:1910.02054, section 7; PyTorch FSDP, arXiv:2304.11277, section 3.
    """
    framework = request.framework
    per_microbatch = per_step = 0.0
    for count, group, stride in (
        (params.dense, dense_shard_group(layout), layout.tp),
        (params.routed, expert_shard_group(layout), _expert_stride(layout)),
    ):
        if not count:
            continue
        gradients = count * framework.gradient_bytes
        weights = (count + _frozen_share(params, count)) * framework.parameter_bytes
        if layout.sharding in ("zero3", "hsdp"):
            link = group_link(request, size=group, stride=stride)
            traffic = 2 * link.ring_seconds(weights) + link.ring_seconds(gradients)
            pieces = request.efficiency.gathers_per_layer * request.model.num_layers / layout.pp
            traffic += 3 * pieces * link.latency_seconds * (group - 1)
            if framework.reduce_every_microbatch:
                per_microbatch += traffic
            else:
                per_step += traffic
            replicas = layout.dp // layout.dp_shard
            across = group_link(request, size=replicas, stride=stride * group)
            per_step += 2 * across.ring_seconds(gradients / group)
        else:
            link = group_link(request, size=group, stride=stride)
            second = weights if layout.sharding in ("zero1", "zero2") else gradients
            per_step += link.ring_seconds(gradients) + link.ring_seconds(second)
    return DataParallelSeconds(per_microbatch, per_step)


def _expert_stride(layout: Layout) -> int:
    return layout.ep if layout.ep > 1 else layout.tp


def _frozen_share(params: StageParams, count: float) -> float:
    """Frozen parameters gathered together with `count` trained ones."""
    return params.frozen_dense + params.frozen_routed if count == params.dense else 0.0


def optimizer_seconds(request: PlanRequest, layout: Layout, params: StageParams) -> float:
    """Seconds of the parameter update: states through device memory.

    Offloaded, gradients go down over PCIe and weights come up; the host keeps pace with that.
    """
    states = states_of(request, layout)
    sharded = states.moments_sharded
    owned = params.dense / (dense_shard_group(layout) if sharded else 1)
    owned += params.routed / (expert_shard_group(layout) if sharded else 1)
    gpu, efficiency = request.cluster.gpu, request.efficiency
    if request.workload.offload != "none":
        moved = request.framework.gradient_bytes + request.framework.parameter_bytes
        return owned * moved / gpu.pcie_bytes_per_second + efficiency.step_seconds
    each = efficiency.optimizer_passes * 4
    return owned * each / (gpu.hbm_bytes_per_second * efficiency.hbm) + efficiency.step_seconds


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
    compute = tp = cp = ep = 0.0
    for layers, is_routed in ((plain, False), (routed, True)):
        if not layers:
            continue
        seconds = layer_seconds(request, layout, routed=is_routed).with_recompute(fraction)
        compute += layers * seconds.at(tokens)
        traffic = tp_seconds_per_layer(request, layout, routed=is_routed, recompute_fraction=again)
        tp += layers * traffic.at(tokens)
        cp += layers * cp_seconds_per_layer(request, layout).at(tokens)
        if is_routed:
            exchange = ep_seconds_per_layer(request, layout, recompute_fraction=again)
            ep += layers * exchange.at(tokens)
    if last:
        compute += head_seconds(request, layout).at(tokens)
    each = request.efficiency.launch_seconds * (3 + fraction)
    if layout.tp > 1:
        each += request.efficiency.launch_collective_seconds * 2 * (2 + again)
    launched = (plain + routed) * each
    launched += routed * request.efficiency.launch_routed_seconds * (3 + fraction)
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


def p2p_seconds(request: PlanRequest, layout: Layout) -> float:
    """Seconds one microbatch needs to cross one stage boundary, forward and backward.

    Each tensor-parallel rank sends its part; without sequence parallelism the receivers gather.
    Source: Narayanan et al., arXiv:2104.04473, section 4.1.
    """
    if layout.pp == 1:
        return 0.0
    link = group_link(request, size=2, stride=layout.tp * layout.cp * layout.dp)
    payload = tokens_per_rank(request, layout) * request.model.hidden_size * SIXTEEN_BIT
    crossing = payload / layout.tp / link.bytes_per_second + link.latency_seconds
    if layout.tp > 1 and not layout.sequence_parallel:
        crossing += group_link(request, size=layout.tp, stride=1).ring_seconds(payload)
    return 2 * crossing


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


@dataclass(frozen=True, slots=True)
class SharedSeconds:
    """What the sharding decides: data-parallel traffic and the parameter update."""

    traffic: DataParallelSeconds
    optimizer: float


def shared_seconds(request: PlanRequest, layout: Layout) -> SharedSeconds:
    """Data-parallel traffic and update of the first stage, which holds the embedding."""
    params = stage_params(request, layout, 0)
    return SharedSeconds(
        dp_traffic(request, layout, params), optimizer_seconds(request, layout, params)
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
        p2p = p2p_seconds(request, layout) * (1 - framework.overlap_pp) * layout.vpp
        crossings = microbatches + layout.pp - 1
    dp = exposed_dp(
        shared.traffic,
        overlap=framework.overlap_dp,
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
        optimizer=shared.optimizer,
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
    traffic: DataParallelSeconds, *, overlap: float, microbatch_seconds: float, microbatches: int
) -> float:
    """Data-parallel seconds that do not hide behind compute.

    Each microbatch can hide its own traffic; the once-a-step part hides behind one microbatch.
    """
    within = max(
        traffic.per_microbatch * (1 - overlap), traffic.per_microbatch - microbatch_seconds
    )
    after = max(traffic.per_step * (1 - overlap), traffic.per_step - microbatch_seconds)
    return within * microbatches + after
