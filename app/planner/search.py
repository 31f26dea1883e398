"""The best legal layout that fits: exact best-first branch and bound.

A node (tp, pp, cp, ep) waits under a lower bound on every step in it. When that is the least of all
it is looked at more closely, a level at a time, and waits again under the sharper bound:
    degrees  compute, layer traffic and bubble of what the leanest states leave room for
             (`node_bound`)
    stage    the same of what the first stage has room for, and shared costs (`first_bound`)
    room     of what every stage has room for (`Visit.promising`)
    leaves   every sharding and vpp, the most promising first (`search_node`)
The search ends when the least bound exceeds the best step found.

Why no pruning loses the optimum:
- `room_bound`, of which both `node_bound` and `first_bound` are made, and `Visit.promising` are
  proven in the docstrings; what still waits at the end has a bound above the best step found.
- A sharding is left out when it does not fit under the plain schedule: an interleaved one keeps at
  least as many microbatches in flight, since 2 (pp - i - 1) + (v - 1) pp + 1 >= v (pp - i) for
  every stage i and v >= 2, and m v >= v (pp - i).
Equal times are ordered by `moving_parts`, so the answer does not depend on the order of visits.

`stop` is asked before every group and every visit, of remedies too.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import ceil, frexp, ldexp, sqrt
from typing import Final

from app.planner.estimate import estimate, limit_bytes
from app.planner.explain import explained
from app.planner.kernel import (
    LOWERED,
    FirstStage,
    Group,
    KeptBytes,
    Kernel,
    PassCosts,
    Pipe,
    StateBytes,
)
from app.planner.layout import Layout
from app.planner.memory import StageParams, expert_ranks, in_flight
from app.planner.native import mypyc_attr
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
from app.planner.space import Axes, Node, fills, groups, leaf, moving_parts
from app.planner.timing import ShardGroups, SharedSeconds

INFEASIBLE: Final = float("inf")

TIE_BITS: Final = 40


def on_grid(seconds: float) -> float:
    """`seconds` rounded up to `TIE_BITS` bits, so that equal sums added in another order tie.

    Rounding up keeps every lower bound of `seconds` one of the result too.
    """
    mantissa, exponent = frexp(seconds)
    return ldexp(ceil(ldexp(mantissa, TIE_BITS)), exponent - TIE_BITS)


@mypyc_attr(acyclic=True)
class Incumbent:
    """The best leaf so far, and how much was looked at."""

    def __init__(self) -> None:
        self.layout: Layout | None = None
        self.seconds = INFEASIBLE
        self.parts: tuple[int, ...] = ()
        self.configurations = 0
        self.nodes = 0
        self.evaluated = 0
        self.feasible = 0

    def offer(self, seconds: float, layout: Layout) -> None:
        """Keep a leaf that fits, if it is better; of equal ones that with fewer moving parts."""
        parts = moving_parts(layout)
        if seconds < self.seconds or parts < self.parts:
            self.feasible += 1
            self.layout = layout
            self.seconds = seconds
            self.parts = parts


@mypyc_attr(acyclic=True)
class Placement:
    """A precision and a sharding whose states leave room on every stage of a node.

    `held[s]` is what stage s holds whatever the microbatch, `most[r]` the largest microbatch that
    fits beside it on every stage under recomputation r and the plain schedule.
    """

    def __init__(
        self,
        precision: str,
        sharding: tuple[str, int],
        *,
        states: StateBytes,
        ranks: ShardGroups,
        shared: SharedSeconds,
        held: list[float],
    ) -> None:
        self.precision = precision
        self.sharding = sharding
        self.states = states
        self.ranks = ranks
        self.shared = shared
        self.held = held
        self.most: list[float] = []

    def wants(self, microbatch: int, recompute: int, quickest: int) -> bool:
        """Whether it takes this recomputation to fit; `quickest` does without, -1: unknown."""
        if microbatch > self.most[recompute]:
            return False
        return quickest in (-1, recompute) or microbatch > self.most[quickest]


def largest_size(axes: Axes, each: float, room: float) -> int:
    """The largest microbatch whose sequences have room at `each` a sequence; 0 if none has."""
    if axes.largest * each <= room:
        return axes.largest
    largest = 0
    for size in axes.microbatches:
        if size * each > room:
            break
        largest = size
    return largest


def node_bound(kernel: Kernel, group: Group, node: Node, limit: float) -> float:
    """A lower bound on the step of every leaf of a node whose `least_states` leave room.

    Without data-parallel traffic.
    """
    pipe, best = kernel.pipe(group, node), INFEASIBLE
    for first in pipe.firsts:
        room = limit - least_states(kernel, group, node, pipe, first)
        best = min(
            best, room_bound(kernel, group, node, pipe, first, room=room, shared=(0.0, 0.0, 0.0))
        )
    return best * LOWERED


def least_states(kernel: Kernel, group: Group, node: Node, pipe: Pipe, first: FirstStage) -> float:
    """Bytes a first stage holds at least, whatever the microbatch and the sharding.

    The leanest states of trained parameters over all ranks that could share them, and the context.
    """
    dense, routed = kernel.trained(group, pipe.kinds[0])
    ranks = node.dp * node.cp
    held = dense * (first.replicated + first.sharded / ranks)
    split = expert_ranks(node.tp, node.ep, ranks)
    return kernel.context + held + routed * (first.replicated + first.sharded / split)


def first_bound(kernel: Kernel, group: Group, node: Node, limit: float) -> float:
    """A lower bound on the step of every leaf whose first stage has room for its sharding."""
    pp, pipe = node.pp, kernel.pipe(group, node)
    stage = kernel.first_stage(group, pipe)
    free = limit - kernel.node_bytes(node.tp, pp, node.cp, node.ep, node.dp)
    best = INFEASIBLE
    for first in pipe.firsts:
        dp_shard = 0
        for sharding, shard in node.axes.shardings:
            if shard != dp_shard:
                dp_shard = shard
                ranks = ShardGroups(node.tp, node.cp, node.ep, node.dp, shard)
                table = kernel.states(first.precision, piped=pp > 1, ranks=ranks.dense)
                wire = kernel.shared_costs.wire(ranks, stage)
            states = table[sharding]
            room = free - kernel.device_bytes(states, stage, ranks)
            if room > 0:
                shared = kernel.shared(wire, states, ranks, stage, sharding=sharding, pp=pp)
                best = min(
                    best, room_bound(kernel, group, node, pipe, first, room=room, shared=shared)
                )
    return best * LOWERED


def room_bound(
    kernel: Kernel,
    group: Group,
    node: Node,
    pipe: Pipe,
    first: FirstStage,
    *,
    room: float,
    shared: SharedSeconds,
) -> float:
    """A lower bound on the step of what has so much `room` on the first stage in one precision.

    That stage keeps most microbatches in flight. What has room for b sequences there has for fewer,
    and `pipeline_bound` holds for all of those. With p and q seconds of data-parallel traffic per
    microbatch and step, of which the share u never hides, m microbatches of the slowest stage and
    the traffic take
        m max(slowest + p u, p) + max(q u, q - max(0, slowest - p (1 - u)))
    which is least for the fewest too, as m slowest grows with m and slowest falls. It grows with
    slowest, so a recomputation that makes no larger microbatch possible than going without loses.
    """
    axes, kept = node.axes, first.kept
    best, without = INFEASIBLE, 0
    for recompute in kernel.ordered:
        largest = largest_size(axes, kept[recompute], room)
        if largest <= without:
            continue
        costs = kernel.passes(group, first, recompute)
        slowest, seconds = pipeline_bound(costs, pipe, axes, largest)
        fewest = pipe.per_replica // largest
        best = min(best, seconds + kernel.exposed(shared, microbatches=fewest, slowest=slowest))
        if recompute == kernel.quickest:
            if largest == axes.largest:
                break
            without = largest
    return best


def pipeline_bound(costs: PassCosts, pipe: Pipe, axes: Axes, largest: int) -> tuple[float, float]:
    """The slowest stage's seconds for `largest` sequences; a lower bound on a step of at most that.

    Data-parallel traffic and the update aside. In m microbatches of T tokens, m T = N fixed by the
    batch, the slowest stage takes m slowest = max(A N + B m, L m) over the stages, least with the
    largest T. All the others together take least with the smallest T. A crossing of seconds affine
    in T happens v (m + pp - 1) times.
    """
    fewest = pipe.per_replica // largest
    slowest, total = costs.pipeline(largest * pipe.tokens, pipe.kinds)
    work = slowest * fewest
    if pipe.pp == 1:
        return slowest, work
    shortest, others = axes.smallest * pipe.tokens, total - slowest
    if axes.smallest < largest:
        longest, total = costs.pipeline(shortest, pipe.kinds)
        others = total - longest
    return slowest, work + interleaved(others, pipe.crossings(shortest, fewest), axes.deepest)


@mypyc_attr(acyclic=True)
class Visit:
    """One node being searched: who holds what on its stages.

    `placements[p]` are the shardings that leave room in precision p, `kept[p][r]` what a sequence
    adds under recomputation r, `waiting` what is promising. The plain schedule keeps pp - i
    microbatches of stage i, as no leaf has fewer microbatches than stages.
    """

    def __init__(self, kernel: Kernel, group: Group, node: Node, room: tuple[float, float]) -> None:
        self.kernel = kernel
        self.node = node
        self.group = group
        self.room = room
        self.pipe: Pipe = kernel.pipe(group, node)
        self.stages: list[StageParams] = kernel.stage_params(group, self.pipe)
        self.placements: list[list[Placement]] = []
        self.kept: list[list[KeptBytes]] = kernel.kept(group, self.pipe)
        for place, precision in enumerate(node.axes.precisions):
            self.placements.append(self.placed(precision, self.kept[place]))
        self.waiting = self.promising()

    def placed(self, precision: str, kept: list[KeptBytes]) -> list[Placement]:
        """The shardings whose states leave room on every stage and on the host."""
        kernel, node, limit = self.kernel, self.node, self.room[0]
        base = kernel.node_bytes(node.tp, node.pp, node.cp, node.ep, node.dp)
        found: list[Placement] = []
        shared_by, stage = 0, self.stages[0]
        for sharding, dp_shard in node.axes.shardings:
            if dp_shard != shared_by:
                shared_by = dp_shard
                ranks = ShardGroups(node.tp, node.cp, node.ep, node.dp, dp_shard)
                table = kernel.states(precision, piped=node.pp > 1, ranks=ranks.dense)
                wire = kernel.shared_costs.wire(ranks, stage)
            states = table[sharding]
            fixed = base
            if sharding == "hsdp" and ranks.replicas > 1:
                fixed += kernel.communicator
            held = [fixed + kernel.device_bytes(states, stage, ranks) for stage in self.stages]
            if max(held) > limit or not self.hosted(states, ranks):
                continue
            placement = Placement(
                precision,
                (sharding, dp_shard),
                states=states,
                ranks=ranks,
                shared=kernel.shared(wire, states, ranks, stage, sharding=sharding, pp=node.pp),
                held=held,
            )
            placement.most = [most(each.plain, held, limit) for each in kept]
            found.append(placement)
        return found

    def hosted(self, states: StateBytes, ranks: ShardGroups) -> bool:
        """Whether a node's host has room for what is offloaded; true where that is not known."""
        limit = self.room[1]
        return not limit or self.kernel.host_bytes(states, self.stages, ranks) <= limit

    def promising(self) -> list[tuple[float, int, int, int]]:
        """Every (bound, precision, recomputation, microbatch) that has room, least bound first.

        The time of the leaf without its choice of vpp: the best any would be up to the deepest that
        the microbatches allow, the sharding that exposes least. Where there is no interleaving to
        make room for, recomputing what has room without is slower.
        """
        node, kernel = self.node, self.kernel
        quickest = kernel.quickest if node.axes.vpps[-1] == 1 else -1
        found: list[tuple[float, int, int, int]] = []
        for place in range(len(self.placements)):
            able = self.placements[place]
            for recompute in kernel.wanted:
                room = 0.0
                for placement in able:
                    room = max(room, placement.most[recompute])
                if room < node.axes.smallest:
                    continue
                costs = kernel.passes(self.group, self.pipe.firsts[place], recompute)
                for microbatch in node.axes.microbatches:
                    if microbatch > room:
                        break
                    tokens = microbatch * self.pipe.tokens
                    count = self.pipe.per_replica // microbatch
                    slowest, total = costs.pipeline(tokens, self.pipe.kinds)
                    vpp = node.axes.vpps[-1] if count % node.pp == 0 else 1
                    pipeline = slowest * count
                    pipeline += interleaved(total - slowest, self.crossings(tokens, count), vpp)
                    exposed = INFEASIBLE
                    for placement in able:
                        if placement.wants(microbatch, recompute, quickest):
                            each = kernel.exposed(
                                placement.shared, microbatches=count, slowest=slowest
                            )
                            exposed = min(exposed, each)
                    if exposed < INFEASIBLE:
                        least = (pipeline + exposed) * LOWERED
                        found.append((least, place, recompute, microbatch))
        found.sort()
        return found

    def crossings(self, tokens: float, count: int) -> float:
        """Exposed seconds of all stage crossings of a step without interleaving."""
        return self.pipe.crossing.at(tokens) * (count + self.pipe.pp - 1)

    def device_bytes(
        self, placement: Placement, kept: KeptBytes, microbatch: int, vpp: int
    ) -> float:
        """What the fullest stage of a leaf holds."""
        count = self.pipe.per_replica // microbatch
        most = 0.0
        for place in range(len(self.pipe.kinds)):
            flight = in_flight(self.node.pp, vpp, self.pipe.kinds[place].index, count)
            each = kept.kept[place] * flight + kept.once[place]
            most = max(most, placement.held[place] + microbatch * each)
        return most


def most(each: list[float], held: list[float], limit: float) -> float:
    """The largest microbatch all stages have room for when a sequence adds `each`."""
    found = INFEASIBLE
    for place in range(len(held)):
        if each[place] > 0:
            found = min(found, (limit - held[place]) / each[place])
    return found


def interleaved(bubble: float, crossings: float, deepest: int) -> float:
    """The least of `bubble / v + crossings * v` over 1 <= v <= `deepest`, v any number.

    Without bounds on v that is 2 sqrt(bubble crossings), where v = sqrt(bubble / crossings).
    """
    if crossings * deepest * deepest <= bubble:
        return bubble / deepest + crossings * deepest
    if crossings >= bubble:
        return bubble + crossings
    return 2 * sqrt(bubble * crossings)


def search_node(visit: Visit, best: Incumbent) -> None:
    """Look at what is promising in one node, most promising first, until the rest is worse."""
    best.nodes += 1
    for least, place, recompute, microbatch in visit.waiting:
        if least > best.seconds:
            break
        able = [each for each in visit.placements[place] if microbatch <= each.most[recompute]]
        search_leaves(visit, best, able=able, place=place, recompute=recompute, size=microbatch)


def search_leaves(
    visit: Visit,
    best: Incumbent,
    *,
    able: list[Placement],
    place: int,
    recompute: int,
    size: int,
) -> None:
    """Look at every sharding and vpp under one (precision, recomputation, microbatch of `size`).

    `able` are the placements that fit with the plain schedule; interleaving holds more. A sharding
    adds the same to every schedule, so the schedules are tried fastest first.
    """
    kernel, node = visit.kernel, visit.node
    count = visit.pipe.per_replica // size
    tokens = size * visit.pipe.tokens
    costs = kernel.passes(visit.group, visit.pipe.firsts[place], recompute)
    slowest, total = costs.pipeline(tokens, visit.pipe.kinds)
    crossings = visit.crossings(tokens, count)
    waiting = [
        (slowest * count + (total - slowest) / vpp + crossings * vpp, vpp)
        for vpp in node.axes.vpps
        if vpp == 1 or count % node.pp == 0
    ]
    waiting.sort()
    kept = visit.kept[place][recompute]
    for placement in able:
        exposed = kernel.exposed(placement.shared, microbatches=count, slowest=slowest)
        for pipeline, vpp in waiting:
            best.evaluated += 1
            if pipeline + exposed > best.seconds:
                break
            seconds = on_grid(pipeline + exposed)
            if seconds <= best.seconds and (
                vpp == 1 or visit.device_bytes(placement, kept, size, vpp) <= visit.room[0]
            ):
                best.offer(
                    seconds,
                    leaf(
                        node,
                        precision=placement.precision,
                        microbatch=size,
                        recompute=kernel.recomputes[recompute],
                        sharding=placement.sharding,
                        vpp=vpp,
                    ),
                )


def room_of(request: PlanRequest) -> tuple[float, float]:
    """Bytes a plan may use of a device, and of a host (0: not known)."""
    return limit_bytes(request), float(request.cluster.host_memory_bytes_per_node)


def group_of(kernel: Kernel, node: Node) -> Group:
    """The costs of a node's degrees."""
    return kernel.group(node.tp, node.cp, node.ep, sequence_parallel=node.sequence_parallel)


def best_layout(request: PlanRequest, *, stop: Stop = never) -> Incumbent:
    """The best leaf of the whole space; its `layout` is `None` when nothing legal fits."""
    kernel, best, room = Kernel(request), Incumbent(), room_of(request)
    bounds: list[float] = []
    nodes: list[Node] = []
    owners: list[Group] = []
    for members in groups(request):
        keep_going(stop)
        group = group_of(kernel, members[0])
        for node in members:
            best.configurations += node.axes.leaves
            bound = node_bound(kernel, group, node, room[0])
            if bound == INFEASIBLE:
                continue
            bounds.append(bound)
            nodes.append(node)
            owners.append(group)
    unseen = sorted(range(len(bounds)), key=bounds.__getitem__, reverse=True)
    seen: list[tuple[float, int]] = []
    visits: dict[int, Visit] = {}
    while unseen or seen:
        keep_going(stop)
        if unseen and not (seen and seen[0][0] <= bounds[unseen[-1]]):
            place = unseen.pop()
            if bounds[place] > best.seconds:
                break
            bound = first_bound(kernel, owners[place], nodes[place], room[0])
        else:
            bound, place = heappop(seen)
            if bound > best.seconds:
                break
            visit = visits.get(place)
            if visit is not None:
                search_node(visit, best)
                continue
            visit = Visit(kernel, owners[place], nodes[place], room)
            visits[place] = visit
            bound = visit.waiting[0][0] if visit.waiting else INFEASIBLE
        if bound < INFEASIBLE:
            heappush(seen, (bound, place))
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

    The smallest microbatch with the least interleaving holds least, so a node none of whose such
    leaves fits has none that does.
    """
    kernel, room = Kernel(request), room_of(request)
    for members in groups(request):
        group = group_of(kernel, members[0])
        for node in members:
            keep_going(stop)
            if first_bytes(kernel, group, node, room[0]) > room[0]:
                continue
            for leanest in lean_leaves(request, Visit(kernel, group, node, room)):
                if leanest.device_bytes <= room[0]:
                    return True
    return False


def first_bytes(kernel: Kernel, group: Group, node: Node, limit: float) -> float:
    """The least the first stage of a node holds: the smallest microbatch, no interleaving.

    Without end where `least_states` say that it is more than `limit`.
    """
    pp, pipe = node.pp, kernel.pipe(group, node)
    least = INFEASIBLE
    for first in pipe.firsts:
        kept = node.axes.smallest * first.lightest
        if (least_states(kernel, group, node, pipe, first) + kept) * LOWERED > limit:
            continue
        stage = kernel.first_stage(group, pipe)
        for sharding, dp_shard in node.axes.shardings:
            ranks = ShardGroups(node.tp, node.cp, node.ep, node.dp, dp_shard)
            states = kernel.states(first.precision, piped=pp > 1, ranks=ranks.dense)[sharding]
            least = min(least, kernel.device_bytes(states, stage, ranks) + kept)
    return least + kernel.node_bytes(node.tp, pp, node.cp, node.ep, node.dp)


@mypyc_attr(acyclic=True)
class LeanLeaf:
    """A leaf with the smallest microbatch and least interleaving of its node, and its bytes."""

    def __init__(
        self, placement: Placement, recompute: str, size: int, device_bytes: float
    ) -> None:
        self.placement = placement
        self.recompute = recompute
        self.size = size
        self.device_bytes = device_bytes


def lean_leaves(request: PlanRequest, visit: Visit) -> list[LeanLeaf]:
    """The leanest leaf of each placement and recomputation of a node."""
    node, vpp = visit.node, visit.node.axes.vpps[0]
    size = 0
    for microbatch in node.axes.microbatches:
        if fills(request, node, microbatch=microbatch, vpp=vpp):
            size = microbatch
            break
    found: list[LeanLeaf] = []
    if size:
        for place in range(len(visit.placements)):
            for placement in visit.placements[place]:
                for recompute in visit.kernel.wanted:
                    held = visit.device_bytes(placement, visit.kept[place][recompute], size, vpp)
                    found.append(
                        LeanLeaf(placement, visit.kernel.recomputes[recompute], size, held)
                    )
    return found


def leanest(request: PlanRequest, *, stop: Stop = never) -> Estimate | None:
    """The legal layout that needs least memory, fitting or not."""
    kernel, least = Kernel(request), INFEASIBLE
    best: LeanLeaf | None = None
    where: Node | None = None
    for members in groups(request):
        group = group_of(kernel, members[0])
        for node in members:
            keep_going(stop)
            if first_bytes(kernel, group, node, least) >= least:
                continue
            visit = Visit(kernel, group, node, (INFEASIBLE, 0.0))
            for each in lean_leaves(request, visit):
                if each.device_bytes < least:
                    best, where, least = each, node, each.device_bytes
    if best is None or where is None:
        return None
    return estimate(
        request,
        leaf(
            where,
            precision=best.placement.precision,
            microbatch=best.size,
            recompute=best.recompute,
            sharding=best.placement.sharding,
            vpp=where.axes.vpps[0],
        ),
    )
