"""Many layouts of one question at once, memory beside speed: what `/v1/candidates` answers.

A picture of the space, not a search: the plan is exact, this is a bounded sample of what it was
chosen from, and the plan itself. The first half of the budget goes evenly over the nodes of the
space (degrees), the second half to the nodes whose layouts lie on the Pareto front so far.

One layout costs about a tenth of a millisecond, and the webhook shares the event loop. So the work
is a generator: it stops after every `SLICE` layouts, and whoever drives it lets reviews pass.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from app.advisor.advise import Desk, resolve
from app.advisor.answers import Json, layout_body, question_body
from app.advisor.errors import Refusal
from app.advisor.requests import parse_plan_body
from app.planner.estimate import judge, limit_bytes
from app.planner.intent import TrainIntent
from app.planner.layout import Layout
from app.planner.memory import memory
from app.planner.request import Estimate, Plan, PlanRequest
from app.planner.space import Node, fills, groups, leaf
from app.planner.timing import step_time

T = TypeVar("T")

BUDGET = 600
"""Layouts evaluated for one answer: about a tenth of a second."""

SLICE = 8
"""Layouts between two pauses: a millisecond or two, less than a search takes."""

SHOWN = 400
"""Layouts in one answer: more dots than that hide each other."""

NO_NODE = -1
GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One layout of the sample, and the node it is a leaf of."""

    node: int
    estimate: Estimate

    @property
    def cost(self) -> tuple[float, float]:
        """Seconds and bytes: less of either is better."""
        return self.estimate.step_time_seconds, self.estimate.memory.total


def answer_candidates(body: Any, desk: Desk) -> Generator[None, None, Json | Refusal]:
    """A sample of the layouts that `body` allows; yields where others may have their turn."""
    question = parse_plan_body(body)
    if not isinstance(question, TrainIntent):
        return Refusal(code="invalid_request", errors=question)
    request = resolve(question, desk)
    if isinstance(request, Refusal):
        return request
    nodes = [node for members in groups(request) for node in members]
    yield
    outcome = desk.planner(request)
    yield
    found = yield from sample(request, nodes)
    if isinstance(outcome, Plan):
        found = [Candidate(node=NO_NODE, estimate=outcome.estimate), *found]
    return _body(request, nodes, found)


def sample(
    request: PlanRequest, nodes: Sequence[Node], *, budget: int = BUDGET
) -> Generator[None, None, list[Candidate]]:
    """At most `budget` candidates, evenly from all nodes first, then from those on the front."""
    every = dict.fromkeys(evenly(len(nodes), budget // 2), 1)
    first = yield from evaluated(request, nodes, every, budget=budget // 2)
    best = dict.fromkeys(candidate.node for candidate in front(first))
    # From where the first round stopped, so that no leaf is drawn twice.
    drawn = _quota(len(every), budget // 2)
    again = dict.fromkeys(best, drawn + 1)
    second = yield from evaluated(request, nodes, again, budget=budget - len(first))
    return [*first, *second]


def evaluated(
    request: PlanRequest, nodes: Sequence[Node], starts: dict[int, int], *, budget: int
) -> Generator[None, None, list[Candidate]]:
    """Candidates of the nodes at the keys of `starts`, each from its leaf of that number on."""
    found: list[Candidate] = []
    quota = _quota(len(starts), budget)
    for place, start in starts.items():
        for layout in spread(request, nodes[place], start=start, count=quota):
            held, time = memory(request, layout), step_time(request, layout)
            estimate = judge(request, layout, broken=(), held=held, time=time, known=True)
            found.append(Candidate(node=place, estimate=estimate))
            if len(found) % SLICE == 0:
                yield
    return found


def spread(request: PlanRequest, node: Node, *, start: int, count: int) -> Iterator[Layout]:
    """Up to `count` leaves of a node, from the `start`th (1 is the first) of a scattered order."""
    axes = node.axes
    sizes = (axes.precisions, axes.microbatches, axes.recomputes, axes.shardings, axes.vpps)
    numbers = scattered(math.prod(map(len, sizes)))
    for number in islice(numbers, start - 1, start - 1 + count):
        precision, rest = _picked(axes.precisions, number)
        microbatch, rest = _picked(axes.microbatches, rest)
        recompute, rest = _picked(axes.recomputes, rest)
        sharding, rest = _picked(axes.shardings, rest)
        vpp, _ = _picked(axes.vpps, rest)
        if fills(request, node, microbatch=microbatch, vpp=vpp):
            yield leaf(
                node,
                precision=precision,
                microbatch=microbatch,
                recompute=recompute,
                sharding=sharding,
                vpp=vpp,
            )


def _picked(values: tuple[T, ...], number: int) -> tuple[T, int]:
    """The value that the last digit of `number` stands for, and the other digits."""
    return values[number % len(values)], number // len(values)


def scattered(size: int) -> Iterator[int]:
    """0 to `size` - 1, each once, any beginning of it spread over the whole.

    Steps of the golden section, rounded to the nearest step that shares no divisor with `size`.
    """
    step = max(1, round(size * GOLDEN))
    while math.gcd(step, size) != 1:
        step += 1
    return (number * step % size for number in range(size))


def evenly(size: int, count: int) -> range:
    """At most `count` places of 0 to `size` - 1, equally far apart."""
    return range(0, size, max(1, -(-size // max(1, count))))


def front(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those no other is both faster and smaller than, fastest first."""
    chosen: list[Candidate] = []
    least = math.inf
    for candidate in sorted(candidates, key=lambda one: one.cost):
        if candidate.cost[1] < least:
            chosen.append(candidate)
            least = candidate.cost[1]
    return chosen


def _quota(members: int, budget: int) -> int:
    return max(1, budget // max(1, members))


def _body(request: PlanRequest, nodes: Sequence[Node], found: Sequence[Candidate]) -> Json:
    best = front(found)
    on_front = {id(candidate) for candidate in best}
    others = [candidate for candidate in found if id(candidate) not in on_front]
    kept = best + [others[place] for place in evenly(len(others), SHOWN - len(best))]
    limit = limit_bytes(request)
    return {
        "candidates": [
            {
                "layout": layout_body(candidate.estimate.layout),
                "memory_bytes": candidate.cost[1],
                "step_time_seconds": candidate.cost[0],
                "tokens_per_second_per_gpu": candidate.estimate.tokens_per_second_per_gpu,
                "within_limit": candidate.estimate.fits and candidate.cost[1] <= limit,
                "pareto": id(candidate) in on_front,
            }
            for candidate in kept
        ],
        "configurations": sum(node.axes.leaves for node in nodes),
        "evaluated": len(found),
        "limit_bytes": limit,
        "gpu_memory_bytes": request.cluster.gpu.memory_bytes,
        **question_body(request),
    }
