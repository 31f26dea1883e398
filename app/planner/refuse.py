"""Why nothing fits, how near the nearest layout comes, and what would help, each remedy tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from math import gcd

from app.planner.estimate import complete
from app.planner.explain import excess, gib, host_reason, layout_words
from app.planner.layout import Layout
from app.planner.legality import uneven_stages, violations
from app.planner.request import Estimate, NoFeasiblePlan, Pins, PlanRequest, SearchStats
from app.planner.wording import counted

Fits = Callable[[PlanRequest], bool]
"""Whether a changed request has a layout that fits: the search, handed in by the caller."""

OFFLOAD_REMEDY = "the optimizer offloaded to host memory would fit"
OPTIMIZER_REMEDY = "an 8-bit optimizer without fp32 master weights would fit"
LOSS_CHUNKS = 8
"""Parts a chunked cross-entropy cuts its tokens into (torchtitan's default)."""

WITHOUT_PINS = "the same job without its pinned fields would fit"

MAX_GROWTH = 32
"""The largest growth of the cluster a refusal tries."""

MAX_HALVINGS = 5
"""Searches between the last doubling that does not fit and the first that does."""

MAX_GPUS_TRIED = 16_384
"""The largest cluster a refusal tries: beyond it each search takes long and nobody has one."""


def more_nodes(request: PlanRequest, fits: Fits) -> int:
    """Nodes with which the job fits, 0 if none up to `MAX_GROWTH`; as few as halving finds.

    The nodes double until the job fits, then `MAX_HALVINGS` tries halve the gap to the last that
    did not. The global batch grows with the nodes, so that every rank keeps its share.
    """
    here = request.cluster.nodes
    most = min(here * MAX_GROWTH, MAX_GPUS_TRIED // request.cluster.gpus_per_node)
    few, nodes = here, here * 2
    while nodes <= most and not fits(grown(request, nodes)):
        few, nodes = nodes, nodes * 2
    if nodes > most:
        return 0
    step = here // gcd(here, request.workload.global_batch_size)
    for _ in range(MAX_HALVINGS):
        middle = few + max(1, (nodes - few) // 2 // step) * step
        if middle >= nodes:
            break
        few, nodes = (few, middle) if fits(grown(request, middle)) else (middle, nodes)
    return nodes


def grown(request: PlanRequest, nodes: int) -> PlanRequest:
    """The question on other nodes, the global batch in proportion."""
    batch = request.workload.global_batch_size * nodes // request.cluster.nodes
    return replace(
        request,
        cluster=replace(request.cluster, nodes=nodes),
        workload=replace(request.workload, global_batch_size=batch),
    )


def remedies(request: PlanRequest, fits: Fits) -> tuple[str, ...]:
    """What would make it fit, each tried by a search."""
    found = []
    nodes_needed = more_nodes(request, fits)
    if nodes_needed:
        found.append(f"{nodes_needed} nodes instead of {request.cluster.nodes} would fit")
    workload = request.workload
    changes = []
    if workload.offload == "none" and "optimizer" in request.framework.offloads:
        changes.append(
            (
                replace(request, workload=replace(workload, offload="optimizer")),
                OFFLOAD_REMEDY,
            )
        )
    if workload.optimizer == "adamw":
        changes.append(
            (
                replace(request, workload=replace(workload, optimizer="adamw_8bit")),
                OPTIMIZER_REMEDY,
            )
        )
    loss = request.framework.logits_bytes / LOSS_CHUNKS
    chunked = replace(request, framework=replace(request.framework, logits_bytes=loss))
    changes.append((chunked, "a fused or chunked cross-entropy loss would fit"))
    if request.pins != Pins():
        changes.append((replace(request, pins=Pins()), WITHOUT_PINS))
    found += [sentence for changed, sentence in changes if fits(changed)]
    return tuple(found)


def memory_reason(request: PlanRequest, nearest: Estimate) -> str:
    """What the leanest layout lacks, on the device or on the host."""
    short = nearest.memory.total - nearest.limit_bytes
    if short > 0:
        words = layout_words(nearest.layout, request.framework)
        return (
            f"no layout fits: the leanest ({words}) needs "
            f"{gib(nearest.memory.total)} GiB of the {gib(nearest.limit_bytes)} GiB usable on "
            f"{request.cluster.gpu.name}, {excess(short)} GiB too much"
        )
    return host_reason(request, nearest.memory)


def no_layout_reasons(request: PlanRequest) -> tuple[str, ...]:
    """The rules that the pinned fields, or the plainest layout, break."""
    given = {name: value for name, value in asdict(request.pins).items() if value is not None}
    given["stage_layers"] = uneven_stages(request, given.get("pp", 1))
    layout = complete(request, given)
    if isinstance(layout, Layout):
        broken = violations(request, layout)
        if broken:
            return tuple(each.message for each in broken)
    batch, world = request.workload.global_batch_size, request.cluster.world_size
    reason = (
        f"no legal layout of {request.model.name} on {counted(world, 'GPU')} with a global batch "
        f"of {batch}; a global batch that is a multiple of {world} gives the most choices"
    )
    return (reason,)


def refused(
    request: PlanRequest, stats: SearchStats, *, nearest: Estimate | None, fits: Fits
) -> NoFeasiblePlan:
    """The refusal: the nearest miss with its numbers, or the rules that leave no layout."""
    reasons = no_layout_reasons(request) if nearest is None else (memory_reason(request, nearest),)
    short = 0.0 if nearest is None else max(0.0, nearest.memory.total - nearest.limit_bytes)
    return NoFeasiblePlan(
        reasons=reasons,
        nearest=nearest,
        short_by_bytes=short,
        remedies=remedies(request, fits),
        search=stats,
        request=request,
    )
