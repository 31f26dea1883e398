"""Why this layout, and why not its neighbours, in words a person can check against the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from math import isclose
from typing import Any

from app.planner.estimate import complete, estimate, host_fits, limit_bytes
from app.planner.framework import FrameworkProfile
from app.planner.hardware import SIXTEEN_BIT_OR_WIDER
from app.planner.layout import RECOMPUTES, SHARDINGS, Layout
from app.planner.legality import uneven_stages
from app.planner.memory import dense_shard_group
from app.planner.request import (
    Alternative,
    Estimate,
    MemoryBytes,
    Plan,
    PlanRequest,
    SearchStats,
    TimeSeconds,
)

GIB = 1024**3
FITTING_SHOWN = 5
TOO_BIG_SHOWN = 3
ROUNDS_TO_ONE, ROUNDS_TO_1000 = 0.9995, 999.5
"""From here on three digits read `1.00` and `1,000`."""
PRINTS_AS_NOTHING = "0.0"
NAMED = 5e-4
"""The least share of a step that is named: 0.1 % in print."""

TIME_WORDS = {
    "compute": "compute",
    "tp": "tensor-parallel traffic",
    "cp": "context-parallel traffic",
    "ep": "expert all-to-all",
    "pp_bubble": "pipeline bubble",
    "pp_p2p": "pipeline sends",
    "dp": "data-parallel traffic",
    "optimizer": "optimizer step",
}
DATA_PARALLEL_WORDS = {"none": "DDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3"}
FULLY_SHARDED = ("zero2", "zero3")
MEMORY_WORDS = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer states",
    "activations": "activations",
    "logits": "logits",
    "buffers": "gathered layers and buckets",
    "communicators": "NCCL",
    "reserve": "CUDA context and fragmentation",
}


def gib(amount: float) -> str:
    """Bytes in GiB: one decimal below ten, none above."""
    value = amount / GIB
    return f"{value:.1f}" if abs(value) < 10 else f"{value:.0f}"  # noqa: PLR2004 - a print rule


def excess(amount: float) -> str:
    """Bytes over a limit in GiB: too many, however few."""
    words = gib(amount)
    return "under 0.1" if words == PRINTS_AS_NOTHING else words


def memory_against(best: MemoryBytes, other: MemoryBytes) -> str:
    """How much more or less memory `other` takes: `2.0 GiB less`."""
    grown = other.total - best.total
    words = gib(abs(grown))
    if words == PRINTS_AS_NOTHING:
        return "as much memory"
    return f"{words} GiB {'more' if grown > 0 else 'less'}"


def short_seconds(seconds: float) -> str:
    """Seconds for a person, three digits: `2.35 s`, `87 ms`, `2,150 s`."""
    value, unit = (seconds, "s") if seconds >= ROUNDS_TO_ONE else (seconds * 1000, "ms")
    return f"{value:,.0f} {unit}" if value >= ROUNDS_TO_1000 else f"{value:.3g} {unit}"


def data_parallel_words(layout: Layout, framework: FrameworkProfile) -> str:
    """The data-parallel degree by the framework's name: `FSDP=8`, `ZeRO-1=8`, `DDP=8`.

    `HSDP=2x4` is two copies, each sharded over four ranks.
    """
    if layout.sharding == "hsdp":
        return f"HSDP={layout.dp // layout.dp_shard}x{layout.dp_shard}"
    if layout.sharding in FULLY_SHARDED and framework.fully_sharded == "FSDP":
        return f"FSDP={layout.dp}"
    return f"{DATA_PARALLEL_WORDS[layout.sharding]}={layout.dp}"


def layout_words(layout: Layout, framework: FrameworkProfile) -> str:
    """`TP=8 PP=4 CP=1 FSDP=8 mb=1 bf16`, with EP and VPP where they matter."""
    words = [f"TP={layout.tp}", f"PP={layout.pp}", f"CP={layout.cp}"]
    if layout.ep > 1:
        words.append(f"EP={layout.ep}")
    if layout.vpp > 1:
        words.append(f"VPP={layout.vpp}")
    words += [
        data_parallel_words(layout, framework),
        f"mb={layout.microbatch_size}",
        layout.precision,
    ]
    return " ".join(words)


def headline(plan: Plan) -> str:
    """The plan in one line, short enough for a kubectl warning."""
    return estimate_line(plan.estimate, plan.request.framework)


def estimate_line(judged: Estimate, framework: FrameworkProfile) -> str:
    """Layout, memory of the card, speed: one line."""
    rate = judged.model_flop_per_second_per_gpu / 1e12
    return (
        f"{layout_words(judged.layout, framework)}: {gib(judged.memory.total)} of "
        f"{gib(judged.gpu_memory_bytes)} GiB, ~{rate:.0f} TFLOP/s per GPU"
    )


def largest_terms(
    values: MemoryBytes | TimeSeconds, words: dict[str, str]
) -> list[tuple[str, float]]:
    """Terms of a memory or time breakdown that have a word, largest first."""
    named = [
        (words[each.name], getattr(values, each.name))
        for each in fields(values)
        if each.name in words
    ]
    return sorted(named, key=lambda pair: -pair[1])


def grown_most(
    best: MemoryBytes | TimeSeconds, other: MemoryBytes | TimeSeconds, words: dict[str, str]
) -> tuple[str, float]:
    """The term of a breakdown that `other` has most more of, by its word, and by how much."""
    grown = ((word, getattr(other, name) - getattr(best, name)) for name, word in words.items())
    return max(grown, key=lambda pair: pair[1])


def largest_other_cost(time: TimeSeconds) -> tuple[str, float] | None:
    """What costs most beside compute, and its share of the step; `None` under 0.1 %."""
    word, seconds = next(
        pair for pair in largest_terms(time, TIME_WORDS) if pair[0] != TIME_WORDS["compute"]
    )
    share = seconds / time.total
    return (word, share) if share >= NAMED else None


def neighbours(layout: Layout, world_size: int) -> Iterator[dict[str, Any]]:
    """One change at a time: every degree halved and doubled, the other kinds of each choice."""
    for name in ("tp", "pp", "cp", "ep", "microbatch_size"):
        size = getattr(layout, name)
        for changed in (size // 2, size * 2):
            if 1 <= changed <= world_size or (name == "microbatch_size" and changed):
                yield {name: changed}
    for name, kinds in (("recompute", RECOMPUTES), ("sharding", SHARDINGS)):
        for kind in kinds:
            if kind != getattr(layout, name):
                yield {name: kind}
    if layout.pp > 1:
        yield {"vpp": 1 if layout.vpp > 1 else 2}


def changed_layout(request: PlanRequest, layout: Layout, change: dict[str, Any]) -> Layout | None:
    """`layout` with one field changed and `dp` following; `None` if GPUs do not divide."""
    given: dict[str, Any] = {
        "tp": layout.tp,
        "pp": layout.pp,
        "cp": layout.cp,
        "ep": layout.ep,
        "vpp": layout.vpp,
        "microbatch_size": layout.microbatch_size,
        "recompute": layout.recompute,
        "precision": layout.precision,
        "sharding": layout.sharding,
        **change,
    }
    if request.cluster.world_size % (given["tp"] * given["pp"] * given["cp"]):
        return None
    if given["pp"] == 1:
        given["vpp"] = 1
    given["stage_layers"] = uneven_stages(request, given["pp"])
    made = complete(request, given)
    return made if isinstance(made, Layout) else None


def why_not(request: PlanRequest, best: Estimate, other: Estimate) -> str:
    """One sentence: the rule it breaks, the bytes it lacks, or the seconds it loses and to what.

    One that fits and loses none is not the search's to choose: it says what keeps it out.
    """
    if other.violations:
        return other.violations[0].message
    over = other.memory.total - limit_bytes(request)
    if over > 0:
        term, amount = grown_most(best.memory, other.memory, MEMORY_WORDS)
        return f"does not fit: {excess(over)} GiB too much ({term} grow by {excess(amount)} GiB)"
    if not host_fits(request, other.memory):
        return f"does not fit: {host_reason(request, other.memory)}"
    lost = other.step_time_seconds - best.step_time_seconds
    share = lost / best.step_time_seconds
    if lost < 0:
        return f"{pace(share)}, but {kept_out(request, other.layout)}"
    if share < NAMED:
        return f"{pace(share)}; {memory_against(best.memory, other.memory)}"
    term, amount = grown_most(best.time, other.time, TIME_WORDS)
    return f"{pace(share)}: {term} costs {short_seconds(amount)} more"


def pace(share: float) -> str:
    """How much slower a step is that takes `share` longer, as far as that prints."""
    if abs(share) < NAMED:
        return "as fast to 0.1%"
    return f"{abs(share):.1%} {'slower' if share > 0 else 'faster'}"


def host_reason(request: PlanRequest, held: MemoryBytes) -> str:
    """What is moved to the host, and what a node has for it."""
    host = request.cluster.host_memory_bytes_per_node
    return (
        f"offloading needs {gib(held.host)} GiB of host memory per node and a node "
        f"has {gib(host)} GiB"
    )


def kept_out(request: PlanRequest, layout: Layout) -> str:
    """Why the search may not choose a legal layout that fits: a pin, or it is none of its space."""
    for each in fields(request.pins):
        pin = getattr(request.pins, each.name)
        if pin is not None and pin != getattr(layout, each.name):
            return f"{each.name} is pinned to {str(pin).lower()}"
    if request.pins.precision is None and layout.precision not in request.allowed_precisions:
        return f"{layout.precision} is not among the allowed precisions"
    return "the search does not try it"


def alternatives(request: PlanRequest, best: Estimate) -> tuple[Alternative, ...]:
    """The legal neighbours of the best layout: those that fit, fastest first.

    Then those that do not fit, the smallest excess first: those would be faster, or nothing would
    be said of them. One that costs the same as the best or a neighbour before it is left out.
    """
    fitting: list[Alternative] = []
    too_big: list[Alternative] = []
    seen = {best.layout}
    told = [best]
    for change in neighbours(best.layout, request.cluster.world_size):
        other = changed_layout(request, best.layout, change)
        if other is None or other in seen or shards_nothing(other):
            continue
        seen.add(other)
        judged = estimate(request, other)
        if not judged.legal or any(_same_cost(each, judged) for each in told):
            continue
        told.append(judged)
        fits = judged.memory.total <= judged.limit_bytes and host_fits(request, judged.memory)
        (fitting if fits else too_big).append(
            Alternative(layout=other, estimate=judged, why_not=why_not(request, best, judged))
        )
    fitting.sort(key=lambda each: each.estimate.step_time_seconds)
    too_big.sort(key=lambda each: each.estimate.memory.total)
    return (*fitting[:FITTING_SHOWN], *too_big[:TOO_BIG_SHOWN])


def shards_nothing(layout: Layout) -> bool:
    """Whether a sharded layout has one rank to shard over."""
    return layout.sharding != "none" and dense_shard_group(layout) == 1


def _same_cost(one: Estimate, other: Estimate) -> bool:
    """Whether nobody could tell the two apart: same step, same bytes, as far as they print."""
    return (
        isclose(other.step_time_seconds, one.step_time_seconds, rel_tol=NAMED)
        and gib(abs(other.memory.total - one.memory.total)) == PRINTS_AS_NOTHING
    )


def sentences(request: PlanRequest, best: Estimate, stats: SearchStats) -> list[str]:
    """The explanation, a sentence each."""
    layout, time = best.layout, best.time
    said = [f"{estimate_line(best, request.framework)}, {short_seconds(time.total)} a step."]
    said.append(
        f"Fastest that fits, of {stats.configurations:,} legal layouts of {request.model.name} on "
        f"{request.cluster.world_size} x {request.cluster.gpu.name}."
    )
    other = largest_other_cost(time)
    said.append(
        f"Compute is {time.compute / time.total:.0%} of the step"
        + (f"; the largest other cost is {other[0]} with {other[1]:.1%}." if other else ".")
    )
    memory_terms = largest_terms(best.memory, MEMORY_WORDS)
    held = ", ".join(f"{word} {gib(amount)}" for word, amount in memory_terms[:3])
    said.append(
        f"Stage {best.memory.stage} holds most: {held} GiB; "
        f"{gib(best.limit_bytes - best.memory.total)} GiB below the limit of "
        f"{gib(best.limit_bytes)}."
    )
    if layout.precision not in SIXTEEN_BIT_OR_WIDER:
        said.append(narrow_sentence(request, best))
    return said


def narrow_sentence(request: PlanRequest, best: Estimate) -> str:
    """What a precision narrower than 16 bits gains, and the pin that keeps the wider one."""
    wide = request.cluster.gpu.default_precision
    same = changed_layout(request, best.layout, {"precision": wide})
    gain = ""
    if same is not None:
        ratio = estimate(request, same).step_time_seconds / best.step_time_seconds
        gain = f" is {ratio:.2f}x the speed of {wide} in this layout"
    return f"{best.layout.precision}{gain}; pin precision={wide} to keep {wide}."


def explained(request: PlanRequest, best: Estimate, stats: SearchStats) -> Plan:
    """The plan with its reasons."""
    return Plan(
        layout=best.layout,
        estimate=best,
        search=stats,
        explanation=" ".join(sentences(request, best, stats)),
        request=request,
    )
