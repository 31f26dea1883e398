"""The layouts worth considering: every legal one on a fixed grid, level by level.

Levels TP -> PP -> CP -> EP make a `Node`; the leaf below it chooses precision, microbatch,
recomputation, sharding and vpp. The grid: tp a power of two in the fast domain; pp any divisor; cp
a power of two that leaves each rank `MIN_TOKENS_PER_CP_RANK`; ep any divisor of the experts;
microbatches powers of two up to `MAX_MICROBATCH`. A pinned field takes the pinned value alone, on
or off the grid. `enumerate_layouts` lists the space; the search must find its optimum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from app.planner.estimate import hsdp_shard_group
from app.planner.layout import Layout
from app.planner.legality import FP8_TOKEN_MULTIPLE, NARROW_PRECISIONS, split_layers
from app.planner.request import PlanRequest

MIN_TOKENS_PER_CP_RANK = 2048
"""Below this a rank's part of a sequence is too short for context parallelism to pay."""

MAX_MICROBATCH = 64


@dataclass(frozen=True, slots=True)
class Node:
    """The degrees of one subtree of the search."""

    tp: int
    pp: int
    cp: int
    ep: int
    dp: int
    sequence_parallel: bool


@dataclass(frozen=True, slots=True)
class Axes:
    """The leaf choices of one node. Every combination is legal, vpp given the microbatch aside."""

    precisions: tuple[str, ...]
    microbatches: tuple[int, ...]
    recomputes: tuple[str, ...]
    shardings: tuple[tuple[str, int], ...]
    vpps: tuple[int, ...]


def powers_of_two(limit: int) -> list[int]:
    """1, 2, 4, ... up to `limit`."""
    return [1 << shift for shift in range(limit.bit_length())] if limit >= 1 else []


def divisors(number: int) -> list[int]:
    """Every divisor of a positive number, ascending."""
    small = [each for each in range(1, int(number**0.5) + 1) if number % each == 0]
    return sorted({*small, *(number // each for each in small)})


def _pinned(pin: Any, choices: list[int]) -> list[int]:
    return choices if pin is None else [pin]


def tp_choices(request: PlanRequest) -> list[int]:
    """Tensor-parallel degrees that divide the heads and stay in the fast domain."""
    model, cluster = request.model, request.cluster
    limit = min(cluster.domain_size, cluster.world_size) if request.framework.supports_tp else 1
    return [
        tp
        for tp in _pinned(request.pins.tp, powers_of_two(limit))
        if tp <= limit
        and tp & (tp - 1) == 0
        and model.num_heads % tp == 0
        and (model.attention == "mla" or model.num_kv_heads % tp == 0)
        and cluster.world_size % tp == 0
    ]


def pp_choices(request: PlanRequest, rest: int) -> list[int]:
    """Pipeline degrees that divide the `rest` GPUs and split the layers."""
    framework = request.framework
    if not framework.supports_pp or not framework.pipeline_shardings:
        return [1] if request.pins.pp in (None, 1) else []
    return [
        pp
        for pp in _pinned(request.pins.pp, divisors(rest))
        if rest % pp == 0
        and split_layers(request.model.num_layers, pp, uneven=framework.uneven_pipeline)
    ]


def cp_choices(request: PlanRequest, rest: int, tp: int, *, sequence_parallel: bool) -> list[int]:
    """Context-parallel degrees that divide the `rest` GPUs and the sequence."""
    length = request.workload.sequence_length
    limit = length // MIN_TOKENS_PER_CP_RANK if request.framework.supports_cp else 1
    chosen = []
    for cp in _pinned(request.pins.cp, powers_of_two(max(1, min(limit, rest)))):
        if rest % cp or (cp > 1 and not request.framework.supports_cp):
            continue
        per_rank = tp if sequence_parallel else 1
        unit = cp * max(2, per_rank) if cp > 1 else per_rank
        if length % unit == 0:
            chosen.append(cp)
    return chosen


def ep_choices(request: PlanRequest, group: int) -> list[int]:
    """Expert-parallel degrees that divide the experts and the `group` ranks of a stage."""
    moe = request.model.moe
    if moe is None or not request.framework.supports_ep:
        return [1] if request.pins.ep in (None, 1) else []
    return [
        ep
        for ep in _pinned(request.pins.ep, divisors(moe.num_experts))
        if moe.num_experts % ep == 0 and group % ep == 0
    ]


def nodes(request: PlanRequest) -> Iterator[Node]:
    """Every node whose degrees are legal and that has at least one microbatch."""
    world, pins = request.cluster.world_size, request.pins
    if not request.cluster.exclusive and world > 1:
        return
    batch = request.workload.global_batch_size
    for tp in tp_choices(request):
        wanted = request.framework.sequence_parallel and tp > 1
        parallel = wanted if pins.sequence_parallel is None else pins.sequence_parallel
        if request.model.moe is not None and tp > 1 and not parallel:
            continue
        for pp in pp_choices(request, world // tp):
            for cp in cp_choices(request, world // (tp * pp), tp, sequence_parallel=parallel):
                dp = world // (tp * pp * cp)
                if batch % dp or batch // dp < pp or pins.dp not in (None, dp):
                    continue
                for ep in ep_choices(request, tp * cp * dp):
                    yield Node(tp, pp, cp, ep, dp, parallel)


def axes(request: PlanRequest, node: Node) -> Axes:
    """The leaf choices of `node`."""
    pins, framework, model = request.pins, request.framework, request.model
    per_replica = request.workload.global_batch_size // node.dp
    microbatches = tuple(
        size
        for size in _pinned(pins.microbatch_size, powers_of_two(min(per_replica, MAX_MICROBATCH)))
        if per_replica % size == 0 and per_replica // size >= node.pp
    )
    recomputes = tuple(kind for kind in framework.kept if pins.recompute in (None, kind))
    vpps = [1]
    if node.pp > 1 and framework.supports_vpp and model.num_layers % node.pp == 0:
        vpps = divisors(model.num_layers // node.pp)
    even = model.num_layers % node.pp == 0
    chosen = tuple(vpp for vpp in _pinned(pins.vpp, vpps) if vpp == 1 or (even and vpp in vpps))
    return Axes(
        precision_choices(request, node, microbatches),
        microbatches,
        recomputes,
        sharding_choices(request, node),
        chosen,
    )


def precision_choices(
    request: PlanRequest, node: Node, microbatches: tuple[int, ...]
) -> tuple[str, ...]:
    """Precisions the operator allows (or the user pinned) that GPU and framework have."""
    pin = request.pins.precision
    wanted = request.allowed_precisions if pin is None else (pin,)
    gpu, tokens = request.cluster.gpu, request.workload.sequence_length // node.cp
    chosen = [
        each
        for each in wanted
        if gpu.supports(each)
        and each in request.framework.precisions
        and each in request.efficiency.gemm
        and (each not in NARROW_PRECISIONS or _aligned(tokens, microbatches))
    ]
    if pin is None and gpu.default_precision in chosen:
        chosen = [each for each in chosen if each not in ("fp16", "fp32")] or chosen
        if gpu.default_precision not in chosen:
            chosen.append(gpu.default_precision)
    return tuple(chosen)


def _aligned(tokens: int, microbatches: tuple[int, ...]) -> bool:
    return all(tokens * size % FP8_TOKEN_MULTIPLE == 0 for size in microbatches)


def sharding_choices(request: PlanRequest, node: Node) -> tuple[tuple[str, int], ...]:
    """Shardings with their shard group. HSDP only where it differs from plain ZeRO-3."""
    framework, pins = request.framework, request.pins
    usable = tuple(framework.states) if node.pp == 1 else framework.pipeline_shardings
    chosen = []
    for kind in usable:
        if pins.sharding not in (None, kind):
            continue
        group = node.dp
        if kind == "hsdp":
            group = pins.dp_shard or hsdp_shard_group(request, tp=node.tp, cp=node.cp, dp=node.dp)
            if node.dp % group or (group == node.dp and pins.sharding is None):
                continue
        elif pins.dp_shard not in (None, node.dp):
            continue
        chosen.append((kind, group))
    return tuple(chosen)


def leaf(
    node: Node,
    *,
    precision: str,
    microbatch: int,
    recompute: str,
    sharding: tuple[str, int],
    vpp: int,
) -> Layout:
    """The layout of one leaf."""
    return Layout(
        tp=node.tp,
        pp=node.pp,
        vpp=vpp,
        cp=node.cp,
        ep=node.ep,
        dp=node.dp,
        dp_shard=sharding[1],
        sharding=sharding[0],  # type: ignore[arg-type]
        sequence_parallel=node.sequence_parallel,
        microbatch_size=microbatch,
        recompute=recompute,  # type: ignore[arg-type]
        precision=precision,  # type: ignore[arg-type]
    )


def fills(request: PlanRequest, node: Node, *, microbatch: int, vpp: int) -> bool:
    """Whether interleaving's demand holds: microbatches a multiple of pp."""
    return vpp == 1 or request.workload.global_batch_size // node.dp // microbatch % node.pp == 0


def enumerate_layouts(request: PlanRequest) -> Iterator[Layout]:
    """Every layout of the space, in a fixed order."""
    for node in nodes(request):
        choice = axes(request, node)
        for precision in choice.precisions:
            for microbatch in choice.microbatches:
                for recompute in choice.recomputes:
                    for sharding in choice.shardings:
                        for vpp in choice.vpps:
                            if fills(request, node, microbatch=microbatch, vpp=vpp):
                                yield leaf(
                                    node,
                                    precision=precision,
                                    microbatch=microbatch,
                                    recompute=recompute,
                                    sharding=sharding,
                                    vpp=vpp,
                                )


def moving_parts(layout: Layout) -> tuple[int, ...]:
    """How complicated a layout is, for breaking ties: smaller is simpler."""
    shardings = ("none", "zero1", "zero2", "zero3", "hsdp")
    recomputes = ("none", "selective", "full")
    precisions = ("bf16", "fp16", "fp32", "fp8", "mxfp8", "nvfp4")
    return (
        precisions.index(layout.precision),
        layout.pp,
        layout.tp,
        layout.cp,
        layout.ep,
        layout.vpp,
        recomputes.index(layout.recompute),
        shardings.index(layout.sharding),
        -layout.microbatch_size,
    )
