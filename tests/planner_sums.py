"""Every leaf of a space with the sums the search would make of it, none pruned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from app.planner.kernel import Kernel
from app.planner.layout import Layout
from app.planner.request import PlanRequest
from app.planner.search import INFEASIBLE, Placement, Visit, group_of
from app.planner.space import Node, fills, groups, leaf


@dataclass(slots=True)
class Sums:
    """One leaf: its choices, seconds of a step, bytes of the fullest device, bytes of a host."""

    node: Node
    placement: Placement
    recompute: str
    size: int
    vpp: int
    seconds: float
    device_bytes: float
    host_bytes: float

    @property
    def layout(self) -> Layout:
        """The leaf as a layout, made when asked for: a space has tens of thousands."""
        return leaf(
            self.node,
            precision=self.placement.precision,
            microbatch=self.size,
            recompute=self.recompute,
            sharding=self.placement.sharding,
            vpp=self.vpp,
        )


def sums(request: PlanRequest) -> Iterator[Sums]:
    """Every leaf of the space as the flattened cost model sees it."""
    kernel = Kernel(request)
    for members in groups(request):
        group = group_of(kernel, members[0])
        for node in members:
            visit = Visit(kernel, group, node, (INFEASIBLE, 0.0))
            for place, able in enumerate(visit.placements):
                for placement in able:
                    yield from leaves(request, visit, placement, place)


def leaves(request: PlanRequest, visit: Visit, placement: Placement, place: int) -> Iterator[Sums]:
    """Every leaf of one precision and sharding of a node."""
    node, kernel = visit.node, visit.kernel
    host = kernel.host_bytes(placement.states, visit.stages, placement.ranks)
    for recompute in kernel.wanted:
        costs = kernel.passes(visit.group, visit.pipe.firsts[place], recompute)
        for size in node.axes.microbatches:
            count, tokens = visit.pipe.per_replica // size, size * visit.pipe.tokens
            slowest, total = costs.pipeline(tokens, visit.pipe.kinds)
            exposed = kernel.exposed(placement.shared, microbatches=count, slowest=slowest)
            for vpp in node.axes.vpps:
                if not fills(request, node, microbatch=size, vpp=vpp):
                    continue
                pipeline = slowest * count + (total - slowest) / vpp
                pipeline += visit.crossings(tokens, count) * vpp
                kept = visit.kept[place][recompute]
                yield Sums(
                    node,
                    placement,
                    kernel.recomputes[recompute],
                    size,
                    vpp,
                    pipeline + exposed,
                    visit.device_bytes(placement, kept, size, vpp),
                    host,
                )
