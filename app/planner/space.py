"""The layouts worth considering: every legal one on a fixed grid, level by level.

Levels TP -> CP -> EP make a group, PP below it a `Node`; the leaf chooses precision, microbatch,
recomputation, sharding and vpp. The grid: tp a power of two that divides the fast domain; pp any
divisor; cp a power of two that leaves each rank `MIN_TOKENS_PER_CP_RANK`, or as many ranks as there
are for a sequence of the batch; ep any divisor of the experts; microbatches any divisor of a
replica's batch up to `MAX_MICROBATCH`. A pinned field takes the pinned value alone, on or off the
grid. `enumerate_layouts` lists the space; the search must find its optimum.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from app.planner.estimate import hsdp_shard_group
from app.planner.layout import Layout
from app.planner.legality import FP8_TOKEN_MULTIPLE, NARROW_PRECISIONS, interleaves, split_layers
from app.planner.native import mypyc_attr
from app.planner.request import PlanRequest

MIN_TOKENS_PER_CP_RANK: Final = 2048
"""Below this a rank's part of a sequence is too short for context parallelism to pay."""

MAX_MICROBATCH: Final = 64


@mypyc_attr(acyclic=True)
class Axes:
    """The leaf choices of one node. Every combination is legal, vpp given the microbatch aside.

    `microbatches` ascend from `smallest` to `largest`, `vpps` to `deepest`. `interleaving` counts
    the microbatches that fill an interleaved pipeline, `leaves` all leaves.
    """

    def __init__(
        self,
        *,
        precisions: tuple[str, ...],
        microbatches: tuple[int, ...],
        recomputes: tuple[str, ...],
        shardings: tuple[tuple[str, int], ...],
        vpps: tuple[int, ...],
        interleaving: int,
    ) -> None:
        self.precisions = precisions
        self.microbatches = microbatches
        self.recomputes = recomputes
        self.shardings = shardings
        self.vpps = vpps
        self.leaves = self.smallest = self.largest = self.deepest = 0
        if vpps and microbatches:
            self.smallest, self.largest = microbatches[0], microbatches[-1]
            self.deepest = vpps[-1]
            plain = 1 if vpps[0] == 1 else 0
            pairs = plain * len(microbatches) + (len(vpps) - plain) * interleaving
            self.leaves = pairs * len(precisions) * len(recomputes) * len(shardings)


@mypyc_attr(acyclic=True)
class Pipeline:
    """A pipeline degree and what it leaves for data parallelism, with the leaf choices."""

    def __init__(self, pp: int, dp: int, axes: Axes, stage_layers: tuple[int, ...]) -> None:
        self.pp = pp
        self.dp = dp
        self.axes = axes
        self.stage_layers = stage_layers


@mypyc_attr(acyclic=True)
class Node:
    """The degrees of one subtree of the search, and its leaf choices."""

    def __init__(
        self, tp: int, cp: int, ep: int, pipeline: Pipeline, *, sequence_parallel: bool
    ) -> None:
        self.tp = tp
        self.pp = pipeline.pp
        self.cp = cp
        self.ep = ep
        self.dp = pipeline.dp
        self.sequence_parallel = sequence_parallel
        self.axes = pipeline.axes
        self.stage_layers = pipeline.stage_layers


def powers_of_two(limit: int) -> list[int]:
    """1, 2, 4, ... up to `limit`."""
    return [1 << shift for shift in range(limit.bit_length())] if limit >= 1 else []


def divisors(number: int, most: int) -> list[int]:
    """Every divisor of a positive number up to `most`, ascending."""
    return [each for each in range(1, min(number, most) + 1) if number % each == 0]


def _pinned(pin: int | None, choices: list[int]) -> list[int]:
    return choices if pin is None else [pin]


def tp_choices(request: PlanRequest) -> list[int]:
    """Tensor-parallel degrees that divide the heads and stay in the fast domain.

    One that does not divide the domain has groups in two of them: only a pin chooses it.
    """
    model, cluster = request.model, request.cluster
    limit = min(cluster.domain_size, cluster.world_size) if request.framework.supports_tp else 1
    inside = [each for each in powers_of_two(limit) if limit % each == 0]
    return [
        tp
        for tp in _pinned(request.pins.tp, inside)
        if tp <= limit
        and tp & (tp - 1) == 0
        and model.num_heads % tp == 0
        and (model.attention == "mla" or model.num_kv_heads % tp == 0)
        and cluster.world_size % tp == 0
    ]


def cp_choices(request: PlanRequest, rest: int, tp: int, *, sequence_parallel: bool) -> list[int]:
    """Context-parallel degrees that divide the `rest` GPUs and the sequence.

    A batch of fewer sequences than GPUs needs several for one, however short their parts.
    """
    length = request.workload.sequence_length
    needed = rest // request.workload.global_batch_size
    limit = max(length // MIN_TOKENS_PER_CP_RANK, needed) if request.framework.supports_cp else 1
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
        for ep in _pinned(request.pins.ep, divisors(moe.num_experts, group))
        if moe.num_experts % ep == 0 and group % ep == 0
    ]


def pp_choices(request: PlanRequest, rest: int) -> list[int]:
    """Pipeline degrees that divide the `rest` GPUs, where the framework has pipelines."""
    framework, pin = request.framework, request.pins.pp
    if not framework.supports_pp or not framework.pipeline_shardings:
        return [1] if pin in (None, 1) else []
    if pin is not None:
        return [pin] if rest % pin == 0 else []
    return divisors(rest, request.model.num_layers)


def groups(request: PlanRequest) -> list[list[Node]]:
    """Every node, grouped by (tp, cp, ep), the degrees that decide what a layer costs."""
    world, pins, model = request.cluster.world_size, request.pins, request.model
    if not request.cluster.exclusive and world > 1:
        return []
    pipelines = Pipelines(request)
    experts = ep_choices(request, world)
    found: list[list[Node]] = []
    for tp in tp_choices(request):
        wanted = request.framework.sequence_parallel and tp > 1
        parallel = wanted if pins.sequence_parallel is None else pins.sequence_parallel
        if model.moe is not None and tp > 1 and not parallel:
            continue
        for cp in cp_choices(request, world // tp, tp, sequence_parallel=parallel):
            members = pipelines.beside(tp, cp)
            for ep in experts:
                nodes = [
                    Node(tp, cp, ep, each, sequence_parallel=parallel)
                    for each in members
                    if tp * cp * each.dp % ep == 0
                ]
                if nodes:
                    found.append(nodes)
    return found


@mypyc_attr(acyclic=True)
class Pipelines:
    """Every pp and dp that go with a tp and a cp; what their product alone decides is kept."""

    def __init__(self, request: PlanRequest) -> None:
        framework, pins = request.framework, request.pins
        self.request = request
        self.layers = request.model.num_layers
        self.length = request.workload.sequence_length
        self.batch = request.workload.global_batch_size
        self.world = request.cluster.world_size
        self.recomputes = tuple([kind for kind in framework.kept if pins.recompute in (None, kind)])
        self.aligned = precision_choices(request, aligned=True)
        self.unaligned = precision_choices(request, aligned=False)
        self.shardings = [sharding_kinds(request, pp=1), sharding_kinds(request, pp=2)]
        self.sizes: dict[int, list[int]] = {}
        self.splits: dict[int, tuple[int, ...]] = {}
        self.chunks: dict[int, tuple[int, ...]] = {}
        self.known: dict[tuple[int, int], list[Pipeline]] = {}

    def beside(self, tp: int, cp: int) -> list[Pipeline]:
        """Every pipeline that has leaves beside these degrees."""
        tokens = FP8_TOKEN_MULTIPLE
        if self.aligned != self.unaligned:
            tokens = self.length // cp % FP8_TOKEN_MULTIPLE
        found = self.known.get((tp * cp, tokens))
        if found is None:
            found = self._beside(tp, cp, tokens)
            self.known[tp * cp, tokens] = found
        return found

    def _beside(self, tp: int, cp: int, tokens: int) -> list[Pipeline]:
        rest, pin = self.world // (tp * cp), self.request.pins.dp
        found: list[Pipeline] = []
        for pp in pp_choices(self.request, rest):
            split, dp = self.split(pp), rest // pp
            if not split or self.batch % dp or self.batch // dp < pp or pin not in (None, dp):
                continue
            axes = self.axes(tp=tp, pp=pp, cp=cp, dp=dp, tokens=tokens)
            if axes.leaves:
                found.append(Pipeline(pp, dp, axes, split if self.layers % pp else ()))
        return found

    def split(self, pp: int) -> tuple[int, ...]:
        """Layers of each stage; `()` where the framework has no such split."""
        found = self.splits.get(pp)
        if found is None:
            uneven = self.request.framework.uneven_pipeline
            found = split_layers(self.request.model.num_layers, pp, uneven=uneven)
            self.splits[pp] = found
        return found

    def vpps(self, pp: int) -> tuple[int, ...]:
        """Interleaving degrees of a pipeline."""
        found = self.chunks.get(pp)
        if found is None:
            found = vpp_choices(self.request, pp)
            self.chunks[pp] = found
        return found

    def axes(self, *, tp: int, pp: int, cp: int, dp: int, tokens: int) -> Axes:
        """The leaf choices under these degrees; `tokens` of one sequence on a rank."""
        pin, per_replica = self.request.pins.microbatch_size, self.batch // dp
        sizes = self.sizes.get(per_replica)
        if sizes is None:
            sizes = microbatch_sizes(per_replica)
            if pin is not None:
                sizes = [pin] if per_replica % pin == 0 else []
            self.sizes[per_replica] = sizes
        microbatches: list[int] = []
        interleaving, aligned = 0, True
        for size in sizes:
            count = per_replica // size
            if count < pp:
                break
            microbatches.append(size)
            interleaving += count % pp == 0
            aligned = aligned and tokens * size % FP8_TOKEN_MULTIPLE == 0
        return Axes(
            precisions=self.aligned if aligned else self.unaligned,
            microbatches=tuple(microbatches),
            recomputes=self.recomputes,
            shardings=self.sharded(tp, pp, cp, dp),
            vpps=self.vpps(pp),
            interleaving=interleaving,
        )

    def sharded(self, tp: int, pp: int, cp: int, dp: int) -> tuple[tuple[str, int], ...]:
        """Shardings with their shard group. HSDP only where it differs from plain ZeRO-3."""
        chosen: list[tuple[str, int]] = []
        pins = self.request.pins
        for kind in self.shardings[1 if pp > 1 else 0]:
            group = dp
            if kind == "hsdp":
                group = pins.dp_shard or hsdp_shard_group(self.request, tp=tp, cp=cp, dp=dp)
                if dp % group or (group in (1, dp) and pins.sharding is None):
                    continue
            elif pins.dp_shard not in (None, dp):
                continue
            chosen.append((kind, group))
        return tuple(chosen)


def microbatch_sizes(per_replica: int) -> list[int]:
    """Divisors of a replica's part of the global batch, up to `MAX_MICROBATCH`."""
    return divisors(per_replica, MAX_MICROBATCH)


def equal_chunks(num_layers: int, pp: int, *, uneven: bool) -> list[int]:
    """Every vpp that cuts the layers of `pp` stages into equal chunks, and 1."""
    deepest = -(-num_layers // pp)
    able = [vpp for vpp in range(2, deepest + 1) if interleaves(num_layers, pp, vpp, uneven=uneven)]
    return [1, *able]


def vpp_choices(request: PlanRequest, pp: int) -> tuple[int, ...]:
    """Interleaving degrees: those that make equal chunks, where the framework interleaves."""
    framework, pin = request.framework, request.pins.vpp
    vpps = [1]
    if pp > 1 and framework.supports_vpp:
        vpps = equal_chunks(request.model.num_layers, pp, uneven=framework.uneven_pipeline)
    if pin is not None:
        return (pin,) if pin in vpps else ()
    return tuple(vpps)


def precision_choices(request: PlanRequest, *, aligned: bool) -> tuple[str, ...]:
    """Precisions the operator allows (or the user pinned) that GPU and framework have.

    Narrow ones only where the tokens of every rank are `aligned` to `FP8_TOKEN_MULTIPLE`.
    """
    pin, gpu = request.pins.precision, request.cluster.gpu
    wanted = request.allowed_precisions if pin is None else (pin,)
    chosen = [
        each
        for each in wanted
        if gpu.supports(each)
        and each in request.framework.precisions
        and each in request.efficiency.gemm
        and (aligned or each not in NARROW_PRECISIONS)
    ]
    if pin is None and gpu.default_precision in chosen:
        chosen = [each for each in chosen if each not in ("fp16", "fp32")] or chosen
        if gpu.default_precision not in chosen:
            chosen.append(gpu.default_precision)
    return tuple(chosen)


def sharding_kinds(request: PlanRequest, *, pp: int) -> list[str]:
    """Shardings the framework offers beside a pipeline of `pp` stages."""
    framework, pin = request.framework, request.pins.sharding
    usable = list(framework.states) if pp == 1 else list(framework.pipeline_shardings)
    return [kind for kind in usable if pin in (None, kind)]


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
