"""The layouts worth considering: every legal one on a fixed grid, level by level.

Levels TP -> CP -> EP make a group, PP below it a `Node`; the leaf chooses precision, microbatch,
recomputation, sharding and vpp. The grid: tp a power of two in the fast domain; pp any divisor; cp
a power of two that leaves each rank `MIN_TOKENS_PER_CP_RANK`; ep any divisor of the experts;
microbatches any divisor of a replica's batch up to `MAX_MICROBATCH`. A pinned field takes the
pinned value alone, on or off the grid. `enumerate_layouts` lists the space; the search must find
its optimum.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

from app.planner.estimate import hsdp_shard_group
from app.planner.layout import Layout
from app.planner.legality import (
    FP8_TOKEN_MULTIPLE,
    NARROW_PRECISIONS,
    interleaves,
    split_layers,
    uneven_stages,
)
from app.planner.request import PlanRequest

MIN_TOKENS_PER_CP_RANK = 2048
"""Below this a rank's part of a sequence is too short for context parallelism to pay."""

MAX_MICROBATCH = 64


class Axes:
    """The leaf choices of one node. Every combination is legal, vpp given the microbatch aside."""

    def __init__(
        self,
        *,
        precisions: tuple[str, ...],
        microbatches: tuple[int, ...],
        recomputes: tuple[str, ...],
        shardings: tuple[tuple[str, int], ...],
        vpps: tuple[int, ...],
    ) -> None:
        self.precisions = precisions
        self.microbatches = microbatches
        self.recomputes = recomputes
        self.shardings = shardings
        self.vpps = vpps

    def empty(self) -> bool:
        """Whether some choice has no value, so that there is no leaf."""
        return not (
            self.precisions
            and self.microbatches
            and self.recomputes
            and self.shardings
            and self.vpps
        )


class Node:
    """The degrees of one subtree of the search, and its leaf choices."""

    def __init__(
        self,
        *,
        tp: int,
        pp: int,
        cp: int,
        ep: int,
        dp: int,
        sequence_parallel: bool,
        axes: Axes,
        stage_layers: tuple[int, ...],
    ) -> None:
        self.tp = tp
        self.pp = pp
        self.cp = cp
        self.ep = ep
        self.dp = dp
        self.sequence_parallel = sequence_parallel
        self.axes = axes
        self.stage_layers = stage_layers


def powers_of_two(limit: int) -> list[int]:
    """1, 2, 4, ... up to `limit`."""
    return [1 << shift for shift in range(limit.bit_length())] if limit >= 1 else []


def divisors(number: int) -> list[int]:
    """Every divisor of a positive number, ascending."""
    small = [each for each in range(1, int(number**0.5) + 1) if number % each == 0]
    return sorted({*small, *(number // each for each in small)})


def _pinned(pin: int | None, choices: list[int]) -> list[int]:
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


def groups(request: PlanRequest) -> list[list[Node]]:
    """Every node, grouped by (tp, cp, ep), the degrees that decide what a layer costs."""
    world, pins = request.cluster.world_size, request.pins
    if not request.cluster.exclusive and world > 1:
        return []
    found: list[list[Node]] = []
    for tp in tp_choices(request):
        wanted = request.framework.sequence_parallel and tp > 1
        parallel = wanted if pins.sequence_parallel is None else pins.sequence_parallel
        if request.model.moe is not None and tp > 1 and not parallel:
            continue
        rest = world // tp
        for cp in cp_choices(request, rest, tp, sequence_parallel=parallel):
            members = pipelines(request, tp=tp, cp=cp)
            for ep in ep_choices(request, rest * tp):
                nodes = [
                    Node(
                        tp=tp,
                        pp=pp,
                        cp=cp,
                        ep=ep,
                        dp=dp,
                        sequence_parallel=parallel,
                        axes=axes,
                        stage_layers=uneven_stages(request, pp),
                    )
                    for pp, dp, axes in members
                    if tp * cp * dp % ep == 0
                ]
                if nodes:
                    found.append(nodes)
    return found


def pipelines(request: PlanRequest, *, tp: int, cp: int) -> list[tuple[int, int, Axes]]:
    """Every pp and dp that go with tp and cp, with the leaf choices, where there are any."""
    batch, pin = request.workload.global_batch_size, request.pins.dp
    rest = request.cluster.world_size // (tp * cp)
    found: list[tuple[int, int, Axes]] = []
    for pp in pp_choices(request, rest):
        dp = rest // pp
        if batch % dp or batch // dp < pp or pin not in (None, dp):
            continue
        axes = leaf_axes(request, tp=tp, pp=pp, cp=cp, dp=dp)
        if not axes.empty():
            found.append((pp, dp, axes))
    return found


@cache
def microbatch_sizes(per_replica: int) -> list[int]:
    """Divisors of a replica's part of the global batch, up to `MAX_MICROBATCH`."""
    return [size for size in range(1, MAX_MICROBATCH + 1) if per_replica % size == 0]


def leaf_axes(request: PlanRequest, *, tp: int, pp: int, cp: int, dp: int) -> Axes:
    """The leaf choices under these degrees."""
    pins = request.pins
    per_replica = request.workload.global_batch_size // dp
    sizes = _pinned(pins.microbatch_size, microbatch_sizes(per_replica))
    microbatches = tuple(
        size for size in sizes if per_replica % size == 0 and per_replica // size >= pp
    )
    recomputes = tuple(kind for kind in request.framework.kept if pins.recompute in (None, kind))
    return Axes(
        precisions=precision_choices(request, cp=cp, microbatches=microbatches),
        microbatches=microbatches,
        recomputes=recomputes,
        shardings=sharding_choices(request, tp=tp, pp=pp, cp=cp, dp=dp),
        vpps=vpp_choices(request, pp),
    )


@cache
def equal_chunks(num_layers: int, pp: int, *, uneven: bool) -> list[int]:
    """Every vpp that cuts the layers of `pp` stages into equal chunks, and 1."""
    deepest = -(-num_layers // pp)
    able = [vpp for vpp in range(2, deepest + 1) if interleaves(num_layers, pp, vpp, uneven=uneven)]
    return [1, *able]


def vpp_choices(request: PlanRequest, pp: int) -> tuple[int, ...]:
    """Interleaving degrees: those that make equal chunks, where the framework interleaves."""
    framework = request.framework
    vpps = [1]
    if pp > 1 and framework.supports_vpp:
        vpps = equal_chunks(request.model.num_layers, pp, uneven=framework.uneven_pipeline)
    return tuple(vpp for vpp in _pinned(request.pins.vpp, vpps) if vpp in vpps)


def precision_choices(
    request: PlanRequest, *, cp: int, microbatches: tuple[int, ...]
) -> tuple[str, ...]:
    """Precisions the operator allows (or the user pinned) that GPU and framework have."""
    pin = request.pins.precision
    wanted = request.allowed_precisions if pin is None else (pin,)
    gpu, tokens = request.cluster.gpu, request.workload.sequence_length // cp
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


def sharding_choices(
    request: PlanRequest, *, tp: int, pp: int, cp: int, dp: int
) -> tuple[tuple[str, int], ...]:
    """Shardings with their shard group. HSDP only where it differs from plain ZeRO-3."""
    framework, pins = request.framework, request.pins
    usable = tuple(framework.states) if pp == 1 else framework.pipeline_shardings
    chosen: list[tuple[str, int]] = []
    for kind in usable:
        if pins.sharding not in (None, kind):
            continue
        group = dp
        if kind == "hsdp":
            group = pins.dp_shard or hsdp_shard_group(request, tp=tp, cp=cp, dp=dp)
            if dp % group or (group in (1, dp) and pins.sharding is None):
                continue
        elif pins.dp_shard not in (None, dp):
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
        stage_layers=node.stage_layers,
    )


def fills(request: PlanRequest, node: Node, *, microbatch: int, vpp: int) -> bool:
    """Whether interleaving's demand holds: microbatches a multiple of pp."""
    return vpp == 1 or request.workload.global_batch_size // node.dp // microbatch % node.pp == 0


def count_leaves(request: PlanRequest, node: Node) -> int:
    """Leaves of one node."""
    axes = node.axes
    per_replica = request.workload.global_batch_size // node.dp
    interleaved = sum(per_replica // size % node.pp == 0 for size in axes.microbatches)
    plain = 1 if axes.vpps[0] == 1 else 0
    pairs = plain * len(axes.microbatches) + (len(axes.vpps) - plain) * interleaved
    return pairs * len(axes.precisions) * len(axes.recomputes) * len(axes.shardings)


def enumerate_layouts(request: PlanRequest) -> Iterator[Layout]:
    """Every layout of the space, in a fixed order."""
    for nodes in groups(request):
        for node in nodes:
            yield from leaves(request, node)


def leaves(request: PlanRequest, node: Node) -> Iterator[Layout]:
    """Every leaf of one node."""
    axes = node.axes
    for precision, microbatch, recompute, sharding, vpp in product(
        axes.precisions, axes.microbatches, axes.recomputes, axes.shardings, axes.vpps
    ):
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
