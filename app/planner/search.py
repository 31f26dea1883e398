"""The best legal layout that fits: exact branch and bound.

Nodes (tp, pp, cp, ep) are visited in the order of a lower bound on compute, layer traffic and
bubble, the (precision, microbatch, recompute) of a node in the order of a sharper one that knows
what fits, and sharding and vpp below that, the fastest schedule first.

Why no pruning loses the optimum:
- `work_bound` is proven in its docstring; what is left out has a bound above the best step found.
- `Kernel.with_shared` adds what the data-parallel traffic and the update take at least.
- A sharding is left out when it does not fit under the plain schedule: an interleaved one keeps at
  least as many microbatches in flight, since 2 (pp - i - 1) + (v - 1) pp + 1 >= v (pp - i) for
  every stage i and v >= 2, and m v >= v (pp - i).
Equal times are ordered by `moving_parts`, so the answer does not depend on the order of visits.

`stop` is asked before every node and every leanest layout, of remedies too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil, frexp, ldexp

from app.planner.estimate import estimate, limit_bytes
from app.planner.explain import explained
from app.planner.kernel import LOWERED, Kernel, PassCosts, SharedCosts
from app.planner.layout import Layout
from app.planner.memory import in_flight
from app.planner.refuse import refused
from app.planner.request import (
    Estimate,
    NoFeasiblePlan,
    Plan,
    PlanRequest,
    SearchStats,
    Stop,
    keep_going,
    never,
)
from app.planner.space import Node, count_leaves, fills, groups, leaf, moving_parts

INFEASIBLE = float("inf")

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
    """One node being searched: its layouts (a precision and a sharding) and their room.

    `held[i][s]` is what stage s holds whatever the microbatch under layout i, `kept[r][s]` and
    `once[r][s]` what one sequence adds under recomputation r. `most[i][r]` is the largest
    microbatch that fits under the plain schedule, which keeps pp - i microbatches of stage i: the
    space has no leaf with fewer microbatches than stages.
    """

    def __init__(self, kernel: Kernel, node: Node, room: tuple[float, float]) -> None:
        axes = node.axes
        self.node = node
        self.axes = axes
        self.limit = room[0]
        self.per_replica = kernel.batch // node.dp
        self.sequences = kernel.length / node.cp
        self.kinds = kernel.stage_kinds(node.pp)
        self.layouts: list[Layout] = []
        self.starts: list[int] = []
        self.held: list[list[float]] = []
        for precision in axes.precisions:
            self.starts.append(len(self.layouts))
            for sharding in axes.shardings:
                self.place(kernel, precision, sharding, room)
        self.starts.append(len(self.layouts))
        self.kept: list[list[float]] = []
        self.once: list[list[float]] = []
        self.most: list[list[float]] = []
        if self.layouts:
            for recompute in axes.recomputes:
                pairs = [kernel.kept(self.layouts[0], kind, recompute) for kind in self.kinds]
                self.kept.append([kept for kept, _ in pairs])
                self.once.append([once for _, once in pairs])
            for held in self.held:
                self.most.append([self.largest(held, r) for r in range(len(self.kept))])

    def place(
        self,
        kernel: Kernel,
        precision: str,
        sharding: tuple[str, int],
        room: tuple[float, float],
    ) -> None:
        """Add the layout of a precision and sharding, unless its states alone do not fit."""
        layout = leaf(
            self.node,
            precision=precision,
            microbatch=self.axes.microbatches[0],
            recompute=self.axes.recomputes[0],
            sharding=sharding,
            vpp=1,
        )
        limit, host_limit = room
        held, host = kernel.held(layout)
        if max(held) <= limit and (not host_limit or host * kernel.gpus_per_node <= host_limit):
            self.layouts.append(layout)
            self.held.append(held)

    def largest(self, held: list[float], recompute: int) -> float:
        """The largest microbatch all stages have room for under the plain schedule."""
        kept, once, kinds, pp = self.kept[recompute], self.once[recompute], self.kinds, self.node.pp
        most = INFEASIBLE
        for place in range(len(held)):
            each = kept[place] * (pp - kinds[place].index) + once[place]
            if each > 0:
                most = min(most, (self.limit - held[place]) / each)
        return most

    def fits(self, index: int, recompute: int, microbatch: int, vpp: int) -> bool:
        """Whether every stage has room for the leaf."""
        if vpp == 1:
            return microbatch <= self.most[index][recompute]
        count = self.per_replica // microbatch
        held, kept, once = self.held[index], self.kept[recompute], self.once[recompute]
        for place in range(len(held)):
            flight = in_flight(self.node.pp, vpp, self.kinds[place].index, count)
            if held[place] + microbatch * (kept[place] * flight + once[place]) > self.limit:
                return False
        return True


def work_bound(
    costs: PassCosts, node: Node, *, tokens: float, fewest: int, shortest: float
) -> float:
    """A lower bound on compute, layer traffic and bubble of a node's leaves.

    Let S(T) = max(A T + B, L) be the least seconds all pp stages together need for a microbatch of
    T tokens. A step takes at least
        m slowest + (S - slowest) / v  >=  S / pp * (m + (pp - 1) / v)
    because the slowest stage is at least the mean S / pp and m >= 1 >= 1/v. With m T = N fixed by
    the batch, m S(T) = max(A N + B m, L m) is least at the smallest m, and the bubble term at the
    smallest T and largest v.
    """
    work = max(costs.whole_slope * tokens + costs.whole_fixed * fewest, costs.launched * fewest)
    bubble = costs.least(shortest) * (node.pp - 1) / node.axes.vpps[-1]
    return (work + bubble) / node.pp


def node_bound(kernel: Kernel, node: Node, passes: list[PassCosts]) -> float:
    """A lower bound on the step of every leaf of a node, memory and shared costs aside.

    `passes` holds, per precision, the recomputations that no other undercuts.
    """
    sequences = kernel.length / node.cp
    per_replica = kernel.batch // node.dp
    microbatches = node.axes.microbatches
    best = INFEASIBLE
    for costs in passes:
        seconds = work_bound(
            costs,
            node,
            tokens=per_replica * sequences,
            fewest=per_replica // microbatches[-1],
            shortest=microbatches[0] * sequences,
        )
        best = min(best, seconds)
    return best * LOWERED


def cheapest_passes(kernel: Kernel, node: Node) -> list[PassCosts]:
    """Per precision, the seconds without recomputation, or all of them where that is not there.

    They depend on tp, cp and ep alone, so one list serves every pp.
    """
    found: list[PassCosts] = []
    kinds = node.axes.recomputes
    for precision in node.axes.precisions:
        layout = Layout(
            tp=node.tp,
            cp=node.cp,
            ep=node.ep,
            dp=node.dp,
            sequence_parallel=node.sequence_parallel,
            precision=precision,  # type: ignore[arg-type]
        )
        found += [kernel.passes(layout, kind) for kind in (("none",) if "none" in kinds else kinds)]
    return found


def promising(kernel: Kernel, visit: Visit, best: Incumbent) -> list[tuple[float, int, int, int]]:
    """Every (bound, precision, recomputation, microbatch) of a node that fits and may beat `best`.

    The bound is the S(T) / pp * (m + (pp - 1) / v) of `work_bound`, of this microbatch alone.
    """
    node, axes = visit.node, visit.axes
    fill = (node.pp - 1) / axes.vpps[-1]
    found: list[tuple[float, int, int, int]] = []
    for precision in range(len(axes.precisions)):
        some = range(visit.starts[precision], visit.starts[precision + 1])
        for place in range(len(axes.recomputes)):
            room = max([visit.most[index][place] for index in some], default=0.0)
            if room < axes.microbatches[0]:
                continue
            costs = kernel.passes(visit.layouts[some.start], axes.recomputes[place])
            for microbatch in axes.microbatches:
                if microbatch > room:
                    break
                count = visit.per_replica // microbatch
                least = costs.least(microbatch * visit.sequences) * (count + fill) / node.pp
                if least * LOWERED <= best.seconds:
                    found.append((least * LOWERED, precision, place, microbatch))
    found.sort()
    return found


def search_node(kernel: Kernel, visit: Visit, best: Incumbent) -> None:
    """Look at what is promising in one node, most promising first, until the rest is worse."""
    waiting = promising(kernel, visit, best)
    if not waiting:
        return
    best.nodes += 1
    shared = [kernel.shared(layout) for layout in visit.layouts]
    for least, precision, place, microbatch in waiting:
        if least > best.seconds:
            break
        count = visit.per_replica // microbatch
        able = [
            index
            for index in range(visit.starts[precision], visit.starts[precision + 1])
            if microbatch <= visit.most[index][place]
            and kernel.with_shared(shared[index], least, count) <= best.seconds
        ]
        if able:
            search_leaves(
                kernel, visit, best, shared=shared, able=able, place=place, microbatch=microbatch
            )


def search_leaves(
    kernel: Kernel,
    visit: Visit,
    best: Incumbent,
    *,
    shared: list[SharedCosts],
    able: list[int],
    place: int,
    microbatch: int,
) -> None:
    """Look at every sharding and vpp under one (precision, recomputation, microbatch).

    `able` are the layouts that fit with the plain schedule; interleaving holds more. A sharding
    adds the same to every schedule, so the schedules are tried fastest first.
    """
    recompute = visit.axes.recomputes[place]
    count = visit.per_replica // microbatch
    tokens = microbatch * visit.sequences
    layout = visit.layouts[able[0]]
    slowest, total = kernel.pipeline(layout, recompute, tokens, visit.kinds)
    crossing = kernel.crossings(layout, tokens, count)
    waiting = [
        (slowest * count + (total - slowest) / vpp + crossing * vpp, vpp)
        for vpp in visit.axes.vpps
        if vpp == 1 or count % visit.node.pp == 0
    ]
    waiting.sort()
    for index in able:
        exposed = kernel.exposed(shared[index], microbatches=count, slowest=slowest)
        for pipeline, vpp in waiting:
            best.evaluated += 1
            if pipeline + exposed > best.seconds:
                break
            seconds = on_grid(pipeline + exposed)
            found = replace(
                visit.layouts[index],
                microbatch_size=microbatch,
                recompute=recompute,  # type: ignore[arg-type]
                vpp=vpp,
            )
            if best.beaten_by(seconds, found) and visit.fits(index, place, microbatch, vpp):
                best.take(seconds, found)


def best_layout(request: PlanRequest, *, stop: Stop = never) -> Incumbent:
    """The best leaf of the whole space; its `layout` is `None` when nothing legal fits."""
    kernel, best = Kernel(request), Incumbent()
    room = (limit_bytes(request), float(request.cluster.host_memory_bytes_per_node))
    ordered: list[tuple[float, int, Node]] = []
    for nodes in groups(request):
        keep_going(stop)
        passes = cheapest_passes(kernel, nodes[0])
        for node in nodes:
            ordered.append((node_bound(kernel, node, passes), len(ordered), node))
            best.configurations += count_leaves(request, node)
    ordered.sort()
    for bound, _, node in ordered:
        if bound > best.seconds:
            break
        keep_going(stop)
        visit = Visit(kernel, node, room)
        if visit.layouts:
            search_node(kernel, visit, best)
    return best


def best_estimate(
    request: PlanRequest, *, stop: Stop = never
) -> tuple[Estimate | None, SearchStats]:
    """The best layout's estimate, or `None` when nothing legal fits."""
    best = best_layout(request, stop=stop)
    stats = SearchStats(
        configurations=best.configurations,
        evaluated=best.evaluated,
        legal=best.configurations,
        feasible=best.feasible,
    )
    if best.layout is None:
        return None, stats
    return estimate(request, best.layout), stats


def plan(request: PlanRequest, *, stop: Stop = never) -> Plan | NoFeasiblePlan:
    """The fastest legal layout that fits, explained; or why there is none.

    Raises `OutOfTime` when `stop` was true before the answer was there.
    """
    found, stats = best_estimate(request, stop=stop)
    if found is not None:
        return explained(request, found, stats)
    return refused(
        request,
        stats,
        nearest=leanest(request, stop=stop),
        fits=lambda changed: fits_somewhere(changed, stop=stop),
    )


def fits_somewhere(request: PlanRequest, *, stop: Stop = never) -> bool:
    """Whether any legal layout of the request fits.

    The smallest microbatch without interleaving holds least, so a node none of whose such leaves
    fits has none that does.
    """
    if request.pins.vpp not in (None, 1):
        return any(interleaved_fits(request, stop=stop))
    kernel = Kernel(request)
    room = (limit_bytes(request), float(request.cluster.host_memory_bytes_per_node))
    for nodes in groups(request):
        for node in nodes:
            keep_going(stop)
            smallest = node.axes.microbatches[0]
            for most in Visit(kernel, node, room).most:
                if max(most) >= smallest:
                    return True
    return False


def interleaved_fits(request: PlanRequest, *, stop: Stop = never) -> Iterator[bool]:
    """Whether each of the leanest layouts fits, for requests that pin an interleaved schedule."""
    kernel = Kernel(request)
    limit = limit_bytes(request)
    host_limit = float(request.cluster.host_memory_bytes_per_node)
    for layout in lean_leaves(request):
        keep_going(stop)
        device, host = kernel.worst_bytes(layout)
        yield device <= limit and (not host_limit or host <= host_limit)


def leanest(request: PlanRequest, *, stop: Stop = never) -> Estimate | None:
    """The legal layout that needs least memory, fitting or not."""
    kernel = Kernel(request)
    best: Layout | None = None
    least = INFEASIBLE
    for layout in lean_leaves(request):
        keep_going(stop)
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
