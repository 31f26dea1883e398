"""The best legal layout that fits: exact branch and bound.

Nodes (tp, pp, cp, ep) are visited in the order of a lower bound on their step time; the search ends
when the next bound exceeds the best step found. Inside a node, precision, microbatch and
recomputation fix the pipeline's time; vpp and sharding come last. Memory is computed only for
leaves that would win on time.

Why no pruning loses the optimum:
- `node_bound` is proven in its docstring.
- A (precision, microbatch, recompute) group is skipped when its pipeline alone, at the largest vpp,
  takes longer than the best step: every term `assemble` adds to it is at least zero.
- A leaf is skipped before its memory is known only when its exact step time is not better.
Equal times are ordered by `moving_parts`, so the answer does not depend on the order of visits.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace

from app.planner.estimate import complete, estimate, host_fits, judge, limit_bytes
from app.planner.explain import explained, gib, layout_words
from app.planner.layout import Layout
from app.planner.legality import violations
from app.planner.memory import memory
from app.planner.request import (
    Estimate,
    MemoryBytes,
    NoFeasiblePlan,
    Pins,
    Plan,
    PlanRequest,
    SearchStats,
    TimeSeconds,
)
from app.planner.space import (
    Axes,
    Node,
    axes,
    fills,
    leaf,
    moving_parts,
    nodes,
)
from app.planner.timing import (
    PipelineSeconds,
    SharedSeconds,
    assemble,
    cp_seconds_per_layer,
    ep_seconds_per_layer,
    head_seconds,
    layer_seconds,
    pipeline_seconds,
    shared_seconds,
    tp_seconds_per_layer,
)

Key = tuple[object, ...]

MAX_GROWTH = 64
"""The largest growth of the cluster a refusal tries."""


@dataclass(slots=True)
class Costs:
    """Memo of the cost functions for one request; each value depends on its key alone."""

    request: PlanRequest
    layers: dict[Key, tuple[float, float]] = field(default_factory=dict)
    pipelines: dict[Key, PipelineSeconds] = field(default_factory=dict)
    shared: dict[Key, SharedSeconds] = field(default_factory=dict)

    def model_seconds(self, layout: Layout) -> tuple[float, float]:
        """Per token and fixed seconds of all layers and the head, without recomputation."""
        key = (layout.tp, layout.cp, layout.ep, layout.sequence_parallel, layout.precision)
        found = self.layers.get(key)
        if found is None:
            found = self.layers[key] = _model_seconds(self.request, layout)
        return found

    def pipeline(self, layout: Layout) -> PipelineSeconds:
        """One microbatch through the pipeline."""
        even = layout.vpp > 1
        key = (
            layout.tp,
            layout.pp,
            layout.cp,
            layout.ep,
            layout.precision,
            layout.microbatch_size,
            layout.recompute,
            even and self.request.framework.uneven_pipeline,
        )
        found = self.pipelines.get(key)
        if found is None:
            found = self.pipelines[key] = pipeline_seconds(self.request, layout)
        return found

    def sharding(self, layout: Layout) -> SharedSeconds:
        """Data-parallel traffic and update."""
        key = (
            layout.tp,
            layout.pp,
            layout.cp,
            layout.ep,
            layout.sharding,
            layout.dp_shard,
            layout.precision == "fp32",
        )
        found = self.shared.get(key)
        if found is None:
            found = self.shared[key] = shared_seconds(self.request, layout)
        return found

    def step(self, layout: Layout, microbatches: int) -> TimeSeconds:
        """The step time, the same as `timing.step_time`."""
        return assemble(
            self.request,
            layout,
            microbatches=microbatches,
            pipeline=self.pipeline(layout),
            shared=self.sharding(layout),
        )


def _model_seconds(request: PlanRequest, layout: Layout) -> tuple[float, float]:
    model = request.model
    total = head_seconds(request, layout)
    for layers, routed in ((model.num_dense_layers, False), (model.num_moe_layers, True)):
        if not layers:
            continue
        one = layer_seconds(request, layout, routed=routed).with_recompute(0.0)
        one = one.plus(
            tp_seconds_per_layer(request, layout, routed=routed, recompute_fraction=0.0)
        ).plus(cp_seconds_per_layer(request, layout))
        if routed:
            one = one.plus(ep_seconds_per_layer(request, layout, recompute_fraction=0.0))
        total = total.plus(one.times(layers))
    return total.per_token, total.fixed


@dataclass(frozen=True, slots=True)
class BoundedNode:
    """A node, its leaf choices and the lower bound of their step times."""

    bound: float
    node: Node
    axes: Axes


def node_bound(costs: Costs, node: Node, choice: Axes) -> float:
    """A lower bound on the step time of every leaf of `node`.

    Let S(T) = A T + B be the seconds all pp stages together need for a microbatch of T tokens
    without recomputation and launch floor, both of which only add. A step takes at least
        (m - 1/v) slowest + S / v  >=  S / pp * (m + (pp - 1) / v)
    because the slowest stage is at least the mean S / pp and m >= 1 >= 1/v. With m T = N fixed by
    the batch this is (A N + B m + (A T + B) (pp - 1) / v) / pp, which is least at the largest v,
    the smallest m in the B m term and the smallest T in the bubble term. Every other term is >= 0.
    """
    request = costs.request
    length = request.workload.sequence_length
    per_replica = request.workload.global_batch_size // node.dp
    tokens = per_replica * length / node.cp
    fewest = per_replica // max(choice.microbatches)
    smallest = min(choice.microbatches) * length / node.cp
    fill = (node.pp - 1) / max(choice.vpps)
    best = float("inf")
    for precision in choice.precisions:
        probe = leaf(
            node,
            precision=precision,
            microbatch=1,
            recompute=choice.recomputes[0],
            sharding=choice.shardings[0],
            vpp=1,
        )
        per_token, fixed = costs.model_seconds(probe)
        seconds = per_token * tokens + fixed * fewest + (per_token * smallest + fixed) * fill
        best = min(best, seconds / node.pp)
    return best * (1 - 1e-12)


@dataclass(slots=True)
class Incumbent:
    """The best leaf so far."""

    layout: Layout | None = None
    time: TimeSeconds | None = None
    memory: MemoryBytes | None = None
    seconds: float = float("inf")
    parts: tuple[int, ...] = ()
    evaluated: int = 0
    feasible: int = 0

    def beaten_by(self, seconds: float, layout: Layout) -> bool:
        """Whether a leaf of that time would replace this one."""
        if seconds != self.seconds:
            return seconds < self.seconds
        return moving_parts(layout) < self.parts


def search_node(costs: Costs, bounded: BoundedNode, best: Incumbent) -> None:
    """Look at every leaf of one node that may beat `best`."""
    request, node, choice = costs.request, bounded.node, bounded.axes
    per_replica = request.workload.global_batch_size // node.dp
    largest = max(choice.vpps)
    for precision in choice.precisions:
        for microbatch in reversed(choice.microbatches):
            count = per_replica // microbatch
            for recompute in choice.recomputes:
                probe = leaf(
                    node,
                    precision=precision,
                    microbatch=microbatch,
                    recompute=recompute,
                    sharding=choice.shardings[0],
                    vpp=1,
                )
                pipeline = costs.pipeline(probe)
                slowest = pipeline.slowest.total
                floor = slowest * count + (pipeline.all_stages - slowest) / largest
                if floor > best.seconds:
                    continue
                for sharding in choice.shardings:
                    for vpp in choice.vpps:
                        if fills(request, node, microbatch=microbatch, vpp=vpp):
                            consider(
                                costs,
                                leaf(
                                    node,
                                    precision=precision,
                                    microbatch=microbatch,
                                    recompute=recompute,
                                    sharding=sharding,
                                    vpp=vpp,
                                ),
                                count,
                                best,
                            )


def consider(costs: Costs, layout: Layout, microbatches: int, best: Incumbent) -> None:
    """Replace `best` by `layout` if it is better and fits."""
    request = costs.request
    best.evaluated += 1
    time = costs.step(layout, microbatches)
    if not best.beaten_by(time.total, layout):
        return
    held = memory(request, layout)
    if held.total > limit_bytes(request) or not host_fits(request, held):
        return
    best.feasible += 1
    best.layout, best.time, best.memory = layout, time, held
    best.seconds, best.parts = time.total, moving_parts(layout)


def bounded_nodes(costs: Costs) -> list[BoundedNode]:
    """Every node with at least one leaf, cheapest bound first."""
    request = costs.request
    found = []
    for node in nodes(request):
        choice = axes(request, node)
        if (
            choice.precisions
            and choice.microbatches
            and choice.recomputes
            and choice.shardings
            and choice.vpps
        ):
            found.append(BoundedNode(node_bound(costs, node, choice), node, choice))
    found.sort(key=lambda each: each.bound)
    return found


def count_leaves(request: PlanRequest, ordered: list[BoundedNode]) -> int:
    """Leaves of the whole space."""
    total = 0
    for bounded in ordered:
        node, choice = bounded.node, bounded.axes
        kinds = len(choice.precisions) * len(choice.recomputes) * len(choice.shardings)
        pairs = sum(
            fills(request, node, microbatch=microbatch, vpp=vpp)
            for microbatch in choice.microbatches
            for vpp in choice.vpps
        )
        total += kinds * pairs
    return total


def best_estimate(request: PlanRequest) -> tuple[Estimate | None, SearchStats]:
    """The best layout's estimate, or `None` when nothing legal fits."""
    costs = Costs(request)
    ordered = bounded_nodes(costs)
    best = Incumbent()
    for bounded in ordered:
        if bounded.bound > best.seconds:
            break
        search_node(costs, bounded, best)
    leaves = count_leaves(request, ordered)
    stats = SearchStats(
        configurations=leaves,
        evaluated=best.evaluated,
        legal=leaves,
        feasible=best.feasible,
    )
    if best.layout is None or best.time is None or best.memory is None:
        return None, stats
    judged = judge(request, best.layout, broken=(), held=best.memory, time=best.time, known=True)
    return judged, stats


def leanest(request: PlanRequest, ordered: list[BoundedNode]) -> Estimate | None:
    """The legal layout that needs least memory, fitting or not.

    One microbatch of the smallest size at a time, no interleaving: larger ones hold more.
    """
    best: tuple[float, Layout] | None = None
    for bounded in ordered:
        for recompute in bounded.axes.recomputes:
            for sharding in bounded.axes.shardings:
                layout = leaf(
                    bounded.node,
                    precision=bounded.axes.precisions[0],
                    microbatch=min(bounded.axes.microbatches),
                    recompute=recompute,
                    sharding=sharding,
                    vpp=min(bounded.axes.vpps),
                )
                total = memory(request, layout).total
                if best is None or total < best[0]:
                    best = (total, layout)
    return None if best is None else estimate(request, best[1])


def more_nodes(request: PlanRequest) -> int:
    """The smallest doubling of the nodes that makes the job fit, 0 if none up to `MAX_GROWTH`.

    The global batch grows with the nodes, so that every rank keeps its share.
    """
    factor = 2
    while factor <= MAX_GROWTH:
        grown = replace(
            request,
            cluster=replace(request.cluster, nodes=request.cluster.nodes * factor),
            workload=replace(
                request.workload,
                global_batch_size=request.workload.global_batch_size * factor,
            ),
        )
        if best_estimate(grown)[0] is not None:
            return grown.cluster.nodes
        factor *= 2
    return 0


def remedies(request: PlanRequest) -> tuple[str, ...]:
    """What would make it fit, each tried by a search."""
    found = []
    nodes_needed = more_nodes(request)
    if nodes_needed:
        found.append(f"{nodes_needed} nodes instead of {request.cluster.nodes} would fit")
    if request.workload.offload == "none" and "optimizer" in request.framework.offloads:
        moved = replace(request, workload=replace(request.workload, offload="optimizer"))
        if best_estimate(moved)[0] is not None:
            found.append("offloading the optimizer to host memory would fit")
    if request.workload.optimizer == "adamw":
        lean = replace(request, workload=replace(request.workload, optimizer="adamw_8bit"))
        if best_estimate(lean)[0] is not None:
            found.append("an 8-bit optimizer without fp32 master weights would fit")
    if request.pins != Pins():
        free = replace(request, pins=Pins())
        if best_estimate(free)[0] is not None:
            found.append("without the pinned fields a layout fits")
    return tuple(found)


def refused(request: PlanRequest, stats: SearchStats) -> NoFeasiblePlan:
    """Why nothing fits: the nearest miss with its numbers, or the rules that leave no layout."""
    nearest = leanest(request, bounded_nodes(Costs(request)))
    if nearest is None:
        return NoFeasiblePlan(
            reasons=no_layout_reasons(request),
            nearest=None,
            short_by_bytes=0.0,
            remedies=remedies(request),
            search=stats,
            request=request,
        )
    short = max(0.0, nearest.memory.total - nearest.limit_bytes)
    if short:
        reason = (
            f"no layout fits: the leanest ({layout_words(nearest.layout)}) needs "
            f"{gib(nearest.memory.total)} GiB of the {gib(nearest.limit_bytes)} GiB usable on "
            f"{request.cluster.gpu.name}, {gib(short)} GiB too much"
        )
    else:
        host = request.cluster.host_memory_bytes_per_node
        reason = (
            f"offloading needs {gib(nearest.memory.host)} GiB of host memory per node and a node "
            f"has {gib(host)} GiB"
        )
    return NoFeasiblePlan(
        reasons=(reason,),
        nearest=nearest,
        short_by_bytes=short,
        remedies=remedies(request),
        search=stats,
        request=request,
    )


def no_layout_reasons(request: PlanRequest) -> tuple[str, ...]:
    """The rules that the pinned fields, or the plainest layout, break."""
    given = {name: value for name, value in asdict(request.pins).items() if value is not None}
    layout = complete(request, given)
    if isinstance(layout, Layout):
        broken = violations(request, layout)
        if broken:
            return tuple(each.message for each in broken)
    batch, world = request.workload.global_batch_size, request.cluster.world_size
    reason = (
        f"no legal layout of {request.model.name} on {world} GPUs with a global batch of {batch}; "
        f"a global batch that is a multiple of {world} gives the most choices"
    )
    return (reason,)


def plan(request: PlanRequest) -> Plan | NoFeasiblePlan:
    """The fastest legal layout that fits, explained; or why there is none."""
    estimate_found, stats = best_estimate(request)
    if estimate_found is None:
        return refused(request, stats)
    return explained(request, estimate_found, stats)
