"""The best legal layout that fits: exact branch and bound.

Groups (tp, cp, ep) are visited in the order of a lower bound on compute and layer traffic. In a
group each pp makes a node, whose bound adds the bubble and the cheapest recomputation
that some sharding has memory for. Leaves choose precision, microbatch, recompute, sharding, vpp.

Why no pruning loses the optimum:
- `group_bound` and `node_bound` are proven in their docstrings; a node or group is left out only
  when its bound exceeds the best step found.
- A (precision, microbatch, recompute) is left out when its pipeline alone, at the largest vpp,
  takes longer than the best step: every term `Kernel.step` adds to it is at least zero.
- A sharding is left out when it does not fit under the plain schedule: an interleaved one keeps at
  least as many microbatches in flight, since 2 (pp - i - 1) + (v - 1) pp + 1 >= v (pp - i) for
  every stage i and v >= 2, and m v >= v (pp - i).
Equal times are ordered by `moving_parts`, so the answer does not depend on the order of visits.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, frexp, ldexp

from app.planner.estimate import estimate, limit_bytes
from app.planner.explain import explained
from app.planner.kernel import Kernel
from app.planner.layout import Layout
from app.planner.memory import in_flight
from app.planner.refuse import refused
from app.planner.request import Estimate, NoFeasiblePlan, Plan, PlanRequest, SearchStats
from app.planner.space import Node, count_leaves, fills, groups, leaf, moving_parts

INFEASIBLE = float("inf")

ROUNDING = 1e-9
"""Bounds are lowered by this share, so that rounding never prunes the optimum."""


TIE_BITS = 40


def on_grid(seconds: float) -> float:
    """`seconds` rounded up to `TIE_BITS` bits, so that equal sums added in another order tie.

    Rounding up keeps every lower bound of `seconds` one of the result too.
    """
    mantissa, exponent = frexp(seconds)
    return ldexp(ceil(ldexp(mantissa, TIE_BITS)), exponent - TIE_BITS)


class Incumbent:
    """The best leaf so far, and how much was looked at."""

    def __init__(self) -> None:
        self.layout: Layout | None = None
        self.seconds = float("inf")
        self.parts: tuple[int, ...] = ()
        self.configurations = 0
        self.nodes = 0
        self.evaluated = 0
        self.feasible = 0

    def beaten_by(self, seconds: float, layout: Layout) -> bool:
        """Whether a leaf of that time would replace this one."""
        if seconds != self.seconds:
            return seconds < self.seconds
        return moving_parts(layout) < self.parts

    def take(self, seconds: float, layout: Layout) -> None:
        """Replace the best leaf."""
        self.feasible += 1
        self.layout = layout
        self.seconds = seconds
        self.parts = moving_parts(layout)


class Visit:
    """One node being searched, with the device bytes of its stages.

    `held[i][s]` is what stage s holds whatever the microbatch under layout i (a precision and a
    sharding), `kept[r][s]` and `once[r][s]` what one sequence adds under recomputation r.
    """

    def __init__(self, kernel: Kernel, node: Node, room: tuple[float, float]) -> None:
        axes = node.axes
        self.node = node
        self.axes = axes
        self.per_replica = kernel.batch // node.dp
        self.sequences = kernel.length / node.cp
        self.kinds = kernel.stage_kinds(node.pp)
        self.layouts: list[Layout] = []
        self.offsets: list[int] = []
        self.starts: list[int] = []
        self.held: list[list[float]] = []
        for precision in axes.precisions:
            self.starts.append(len(self.layouts))
            for offset in range(len(axes.shardings)):
                self.place(kernel, precision, offset, room)
        self.starts.append(len(self.layouts))
        self.kept: list[list[float]] = []
        self.once: list[list[float]] = []
        if self.layouts:
            for recompute in axes.recomputes:
                pairs = [kernel.kept(self.layouts[0], kind, recompute) for kind in self.kinds]
                self.kept.append([kept for kept, _ in pairs])
                self.once.append([once for _, once in pairs])

    def place(self, kernel: Kernel, precision: str, offset: int, room: tuple[float, float]) -> None:
        """Add the layout of a precision and sharding, unless its states alone do not fit."""
        layout = leaf(
            self.node,
            precision=precision,
            microbatch=self.axes.microbatches[0],
            recompute=self.axes.recomputes[0],
            sharding=self.axes.shardings[offset],
            vpp=1,
        )
        limit, host_limit = room
        held: list[float] = []
        for kind in self.kinds:
            device, host = kernel.held(layout, kind)
            if device > limit or (host_limit and host * kernel.gpus_per_node > host_limit):
                return
            held.append(device)
        self.layouts.append(layout)
        self.offsets.append(offset)
        self.held.append(held)

    def fits(self, index: int, recompute: int, microbatch: int, vpp: int, limit: float) -> bool:
        """Whether every stage has room for the leaf."""
        count = self.per_replica // microbatch
        held, kept, once = self.held[index], self.kept[recompute], self.once[recompute]
        for place in range(len(held)):
            flight = in_flight(self.node.pp, vpp, self.kinds[place].index, count)
            if held[place] + microbatch * (kept[place] * flight + once[place]) > limit:
                return False
        return True


def model_seconds(
    kernel: Kernel, layout: Layout, fraction: float, again: float
) -> tuple[float, float]:
    """Per token and fixed seconds of all layers and the head, launch floor aside."""
    slope, fixed = kernel.head(layout)
    dense = kernel.num_dense_layers
    for layers, routed in ((dense, False), (kernel.num_layers - dense, True)):
        if layers:
            costs = kernel.layer(layout, routed=routed)
            slope += layers * (
                costs.forward_slope * (1 + fraction)
                + costs.backward_slope
                + costs.traffic_slope
                + again * costs.again_slope
            )
            fixed += layers * (
                costs.forward_fixed * (1 + fraction)
                + costs.backward_fixed
                + costs.traffic_fixed
                + again * costs.again_fixed
            )
    return slope, fixed


def group_bound(kernel: Kernel, node: Node) -> float:
    """A lower bound on the step of every leaf with the tp, cp and ep of `node`, any pp.

    All stages together spend at least A per token; pp stages work side by side, so a step takes at
    least A N / pp for the N = batch * length / (dp * cp) tokens of a rank. As
    dp = world / (tp pp cp) the pp cancels: A * batch * length * tp / world.
    """
    tokens = kernel.batch * kernel.length * node.tp / kernel.world_size
    best = INFEASIBLE
    for precision in node.axes.precisions:
        layout = Layout(
            tp=node.tp,
            cp=node.cp,
            ep=node.ep,
            dp=node.dp,
            sequence_parallel=node.sequence_parallel,
            precision=precision,  # type: ignore[arg-type]
        )
        slope, _ = model_seconds(kernel, layout, 0.0, 0.0)
        best = min(best, slope * tokens)
    return best * (1 - ROUNDING)


def node_bound(kernel: Kernel, visit: Visit, limit: float) -> float:
    """A lower bound on the step of every leaf of a node that fits; infinite if none can.

    Let S(T) = A T + B be the seconds all pp stages together need for a microbatch of T tokens with
    one recomputation, the launch floor aside, which only adds. A step takes at least
        (m - 1/v) slowest + S / v  >=  S / pp * (m + (pp - 1) / v)
    because the slowest stage is at least the mean S / pp and m >= 1 >= 1/v. With m T = N fixed by
    the batch this is (A N + B m + (A T + B) (pp - 1) / v) / pp, least at the largest v, smallest
    m in the B m term and smallest T in the bubble term. Every other term is at least zero.
    A recomputation counts only if some sharding has room for the smallest microbatch in the plain
    schedule: larger microbatches and interleaving hold more.
    """
    node, axes = visit.node, visit.axes
    tokens = visit.per_replica * visit.sequences
    smallest = axes.microbatches[0]
    fewest = visit.per_replica // axes.microbatches[-1]
    fill = (node.pp - 1) / axes.vpps[-1]
    best = INFEASIBLE
    for precision in range(len(axes.precisions)):
        some = range(visit.starts[precision], visit.starts[precision + 1])
        for place in range(len(axes.recomputes)):
            if not [i for i in some if visit.fits(i, place, smallest, 1, limit)]:
                continue
            recompute = axes.recomputes[place]
            again = 1.0 if recompute == "full" else 0.0
            layout = visit.layouts[some.start]
            slope, fixed = model_seconds(kernel, layout, kernel.fractions[recompute], again)
            shortest = slope * smallest * visit.sequences + fixed
            seconds = (slope * tokens + fixed * fewest + shortest * fill) / node.pp
            best = min(best, seconds)
    return best * (1 - ROUNDING) if best < INFEASIBLE else best


def search_node(kernel: Kernel, visit: Visit, best: Incumbent, limit: float) -> None:
    """Look at every (precision, recomputation, microbatch) of one node that may beat `best`."""
    axes = visit.axes
    best.nodes += 1
    for precision in range(len(axes.precisions)):
        some = range(visit.starts[precision], visit.starts[precision + 1])
        for place in range(len(axes.recomputes)):
            for microbatch in reversed(axes.microbatches):
                able = [i for i in some if visit.fits(i, place, microbatch, 1, limit)]
                if able:
                    search_leaves(
                        kernel,
                        visit,
                        best,
                        able=able,
                        place=place,
                        microbatch=microbatch,
                        limit=limit,
                    )


def search_leaves(
    kernel: Kernel,
    visit: Visit,
    best: Incumbent,
    *,
    able: list[int],
    place: int,
    microbatch: int,
    limit: float,
) -> None:
    """Look at every vpp and sharding under one (precision, recomputation, microbatch).

    `able` are the layouts that fit with the plain schedule; interleaving holds more.
    """
    node, axes = visit.node, visit.axes
    count = visit.per_replica // microbatch
    tokens = microbatch * visit.sequences
    layout = visit.layouts[able[0]]
    slowest, total = kernel.pipeline(layout, axes.recomputes[place], tokens, visit.kinds)
    if slowest * count + (total - slowest) / axes.vpps[-1] > best.seconds:
        return
    crossing = 0.0
    if node.pp > 1:
        slope, fixed = kernel.p2p(layout)
        crossing = slope * tokens + fixed
    for vpp in axes.vpps:
        if vpp > 1 and count % node.pp:
            break
        if slowest * count + (total - slowest) / vpp > best.seconds:
            continue
        for index in able:
            shared = kernel.shared(visit.layouts[index])
            step = kernel.step(
                shared,
                pp=node.pp,
                microbatches=count,
                vpp=vpp,
                slowest=slowest,
                total=total,
                crossing=crossing,
            )
            seconds = on_grid(step)
            best.evaluated += 1
            if seconds > best.seconds:
                continue
            found = replace(
                visit.layouts[index],
                microbatch_size=microbatch,
                recompute=axes.recomputes[place],  # type: ignore[arg-type]
                vpp=vpp,
            )
            if best.beaten_by(seconds, found) and (
                vpp == 1 or visit.fits(index, place, microbatch, vpp, limit)
            ):
                best.take(seconds, found)


def best_layout(request: PlanRequest) -> Incumbent:
    """The best leaf of the whole space; its `layout` is `None` when nothing legal fits."""
    kernel, best = Kernel(request), Incumbent()
    room = (limit_bytes(request), float(request.cluster.host_memory_bytes_per_node))
    ordered: list[tuple[float, int, list[Node]]] = []
    for nodes in groups(request):
        ordered.append((group_bound(kernel, nodes[0]), len(ordered), nodes))
        for node in nodes:
            best.configurations += count_leaves(request, node)
    ordered.sort()
    for bound, _, nodes in ordered:
        if bound > best.seconds:
            break
        search_group(kernel, nodes, best, room)
    return best


def search_group(
    kernel: Kernel, nodes: list[Node], best: Incumbent, room: tuple[float, float]
) -> None:
    """Look at the nodes of one group, most promising first."""
    bounded: list[tuple[float, int, Visit]] = []
    for node in nodes:
        visit = Visit(kernel, node, room)
        bound = node_bound(kernel, visit, room[0])
        if bound < INFEASIBLE and bound <= best.seconds:
            bounded.append((bound, node.pp, visit))
    bounded.sort()
    for bound, _, visit in bounded:
        if bound > best.seconds:
            break
        search_node(kernel, visit, best, room[0])


def best_estimate(request: PlanRequest) -> tuple[Estimate | None, SearchStats]:
    """The best layout's estimate, or `None` when nothing legal fits."""
    best = best_layout(request)
    stats = SearchStats(
        configurations=best.configurations,
        evaluated=best.evaluated,
        legal=best.configurations,
        feasible=best.feasible,
    )
    if best.layout is None:
        return None, stats
    return estimate(request, best.layout), stats


def plan(request: PlanRequest) -> Plan | NoFeasiblePlan:
    """The fastest legal layout that fits, explained; or why there is none."""
    found, stats = best_estimate(request)
    if found is None:
        return refused(request, stats, nearest=leanest(request), fits=fits_somewhere)
    return explained(request, found, stats)


def fits_somewhere(request: PlanRequest) -> bool:
    """Whether any legal layout of the request fits.

    The smallest microbatch without interleaving holds least, so a node none of whose such leaves
    fits has none that does.
    """
    kernel = Kernel(request)
    limit = limit_bytes(request)
    host_limit = float(request.cluster.host_memory_bytes_per_node)
    for layout in lean_leaves(request):
        device, host = kernel.worst_bytes(layout)
        if device <= limit and (not host_limit or host <= host_limit):
            return True
    return False


def leanest(request: PlanRequest) -> Estimate | None:
    """The legal layout that needs least memory, fitting or not."""
    kernel = Kernel(request)
    best: Layout | None = None
    least = INFEASIBLE
    for layout in lean_leaves(request):
        device, _ = kernel.worst_bytes(layout)
        if device < least:
            best, least = layout, device
    return None if best is None else estimate(request, best)


def lean_leaves(request: PlanRequest) -> list[Layout]:
    """The leaves of every node with the smallest microbatch and the least interleaving."""
    return [
        leaf(
            node,
            precision=node.axes.precisions[0],
            microbatch=microbatch,
            recompute=recompute,
            sharding=sharding,
            vpp=node.axes.vpps[0],
        )
        for nodes in groups(request)
        for node in nodes
        for microbatch in smallest_microbatch(request, node)
        for recompute in node.axes.recomputes
        for sharding in node.axes.shardings
    ]


def smallest_microbatch(request: PlanRequest, node: Node) -> tuple[int, ...]:
    """The smallest microbatch that fills the least interleaved pipeline of a node, if any does."""
    vpp = node.axes.vpps[0]
    able = [
        size for size in node.axes.microbatches if fills(request, node, microbatch=size, vpp=vpp)
    ]
    return tuple(able[:1])
