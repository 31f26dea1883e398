"""The plan against a layout somebody names: what `/v1/explain` and `trainjob-advisor explain` say.

Term by term where the time and the memory differ, which rules forbid the layout, how many bytes it
lacks, and which single change would make it legal and fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from app.advisor.advise import Desk, resolve
from app.advisor.answers import Json, judged_body, layout_body, question_body, search_body
from app.advisor.errors import Refusal
from app.advisor.requests import EstimateQuestion, parse_estimate_body
from app.planner.estimate import complete, estimate, hsdp_shard_group, limit_bytes
from app.planner.explain import (
    MEMORY_WORDS,
    NAMED,
    TIME_WORDS,
    excess,
    gib,
    grown_most,
    kept_out,
    layout_words,
    memory_against,
    pace,
    short_seconds,
)
from app.planner.layout import RECOMPUTES, Layout
from app.planner.legality import uneven_stages
from app.planner.request import Estimate, NoFeasiblePlan, Plan, PlanRequest

MAX_REMEDIES: Final = 5
COMPARED: Final = (
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "dp",
    "dp_shard",
    "sharding",
    "sequence_parallel",
    "microbatch_size",
    "recompute",
    "precision",
    "stage_layers",
)
DEGREES: Final = ("tp", "pp", "cp", "ep", "vpp", "microbatch_size")
APART: Final = "; on other numbers of GPUs, terms are not compared"
KIND_DISTANCE: Final = 1.0
"""How far another kind of recomputation, sharding or precision is: as far as a factor of two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A layout one change away that is legal and fits what a plan may use."""

    change: Mapping[str, Any]
    distance: float
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A layout of the user's beside the plan; `planned` is why there is none, if there is none."""

    request: PlanRequest
    asked: Estimate
    planned: Plan | NoFeasiblePlan
    remedies: tuple[Remedy, ...]
    body: Json


def answer_explain(body: Any, desk: Desk) -> Comparison | Refusal:
    """The layout of `body` against the plan for the same question."""
    question = parse_estimate_body(body)
    if not isinstance(question, EstimateQuestion):
        return Refusal(code="invalid_request", errors=question)
    request = resolve(question.intent, desk)
    if isinstance(request, Refusal):
        return request
    layout = complete(request, question.layout)
    if not isinstance(layout, Layout):
        errors = tuple(replace(one, path=f"layout.{one.path}") for one in layout)
        return Refusal(code="invalid_request", errors=errors)
    started = desk.clock()
    planned = desk.planner(request)
    seconds = desk.clock() - started
    asked = estimate(request, layout)
    found = remedies(request, asked)
    return Comparison(
        request=request,
        asked=asked,
        planned=planned,
        remedies=found,
        body=_body(request, asked, planned, found, seconds),
    )


def works(request: PlanRequest, judged: Estimate) -> bool:
    """Legal, and within what a plan may use of the card."""
    return judged.legal and judged.fits and judged.memory.total <= limit_bytes(request)


def remedies(request: PlanRequest, asked: Estimate) -> tuple[Remedy, ...]:
    """Single changes that make the layout legal and fit, nearest first; none if it already is."""
    if works(request, asked):
        return ()
    found = []
    for change, distance in single_changes(request, asked.layout):
        made = changed(request, asked.layout, change)
        if made is None or made == asked.layout:
            continue
        judged = estimate(request, made)
        if works(request, judged):
            found.append(Remedy(change=change, distance=distance, estimate=judged))
    found.sort(key=lambda one: (one.distance, one.estimate.step_time_seconds))
    return tuple(found[:MAX_REMEDIES])


def single_changes(
    request: PlanRequest, layout: Layout
) -> Iterator[tuple[Mapping[str, Any], float]]:
    """Every other value of one field, and how far it is from the layout's."""
    world, batch = request.cluster.world_size, request.workload.global_batch_size
    for name in DEGREES:
        here = getattr(layout, name)
        limit = batch if name == "microbatch_size" else world
        for value in _divisors(limit, most=request.model.num_layers if name == "vpp" else limit):
            if value != here:
                yield {name: value}, abs(math.log2(value / here))
    kinds: Mapping[str, tuple[Any, ...]] = {
        "recompute": RECOMPUTES,
        "sharding": tuple(request.framework.states),
        "precision": request.allowed_precisions,
        "sequence_parallel": (True, False),
        "stage_layers": ((), uneven_stages(request, layout.pp)),
    }
    for name, values in kinds.items():
        for value in values:
            if value != getattr(layout, name):
                yield {name: value}, KIND_DISTANCE
    if layout.world_size != world:
        yield {"dp": max(1, world // (layout.tp * layout.pp * layout.cp))}, 0.0


def changed(request: PlanRequest, layout: Layout, change: Mapping[str, Any]) -> Layout | None:
    """`layout` with one field changed, `dp` and what hangs on it following; `None` if it can't."""
    made = replace(layout, **change)
    if "dp" not in change:
        rest = made.tp * made.pp * made.cp
        if request.cluster.world_size % rest:
            return None
        made = replace(made, dp=request.cluster.world_size // rest)
    if made.pp == 1 and made.vpp > 1:
        made = replace(made, vpp=1)
    if made.pp != layout.pp:
        made = replace(made, stage_layers=uneven_stages(request, made.pp))
    if "tp" in change:
        follows = request.framework.sequence_parallel and made.tp > 1
        made = replace(made, sequence_parallel=follows)
    shard = (
        hsdp_shard_group(request, tp=made.tp, cp=made.cp, dp=made.dp)
        if made.sharding == "hsdp"
        else made.dp
    )
    return replace(made, dp_shard=shard)


def _divisors(number: int, *, most: int) -> Iterator[int]:
    """Divisors of `number`, ascending, none above `most`."""
    low = [one for one in range(1, math.isqrt(number) + 1) if number % one == 0]
    for one in sorted({*low, *(number // each for each in low)}):
        if one <= most:
            yield one


def _body(
    request: PlanRequest,
    asked: Estimate,
    planned: Plan | NoFeasiblePlan,
    found: tuple[Remedy, ...],
    seconds: float,
) -> Json:
    best = planned.estimate if isinstance(planned, Plan) else None
    alike = best if comparable(asked, planned) else None
    over = asked.memory.total - asked.limit_bytes
    return {
        "verdict": verdict(request, asked, planned),
        "layout": layout_body(asked.layout),
        "estimate": judged_body(asked),
        "plan": None
        if best is None
        else {"layout": layout_body(best.layout), "estimate": judged_body(best)},
        "infeasible": None
        if isinstance(planned, Plan)
        else {"reasons": list(planned.reasons), "remedies": list(planned.remedies)},
        "works": works(request, asked),
        "short_by_bytes": over if over > 0 and math.isfinite(over) else 0.0,
        "changed_fields": [] if best is None else changed_fields(best.layout, asked.layout),
        "time": [] if alike is None else differences(alike, asked, "time"),
        "memory": [] if alike is None else differences(alike, asked, "memory"),
        "remedies": [_remedy(asked, one) for one in found],
        "search": search_body(planned.search, duration_seconds=seconds),
        **question_body(request),
    }


def changed_fields(best: Layout, asked: Layout) -> list[Json]:
    """The fields in which two layouts differ."""
    return [
        {"field": name, "asked": _plain(asked, name), "plan": _plain(best, name)}
        for name in COMPARED
        if getattr(best, name) != getattr(asked, name)
    ]


def _plain(layout: Layout, name: str) -> Any:
    value = getattr(layout, name)
    return list(value) if isinstance(value, tuple) else value


def differences(best: Estimate, asked: Estimate, kind: str) -> list[Json]:
    """Each term of the time (seconds) or the memory (bytes), the largest difference first."""
    words = TIME_WORDS if kind == "time" else MEMORY_WORDS
    unit = "seconds" if kind == "time" else "bytes"
    ours, theirs = getattr(best, kind), getattr(asked, kind)
    if theirs.total <= 0:
        return []
    rows = [
        {
            "term": name,
            "words": word,
            f"asked_{unit}": getattr(theirs, name),
            f"plan_{unit}": getattr(ours, name),
            f"difference_{unit}": getattr(theirs, name) - getattr(ours, name),
        }
        for name, word in words.items()
    ]
    return sorted(rows, key=lambda row: -abs(float(str(row[f"difference_{unit}"]))))


def comparable(asked: Estimate, planned: Plan | NoFeasiblePlan) -> bool:
    """Whether both are of the same GPUs, so that their terms say what a choice costs."""
    return isinstance(planned, NoFeasiblePlan) or (
        planned.layout.world_size == asked.layout.world_size
    )


def verdict(request: PlanRequest, asked: Estimate, planned: Plan | NoFeasiblePlan) -> str:
    """One sentence: what is wrong with the layout, or what it costs against the plan."""
    words = layout_words(asked.layout, request.framework)
    if not asked.legal:
        more = len(asked.violations) - 1
        also = f" (and {more} more)" if more else ""
        apart = "" if comparable(asked, planned) else APART
        return f"{words} is not legal: {asked.violations[0].message}{also}{apart}"
    over = asked.memory.total - limit_bytes(request)
    if over > 0:
        tight = " It may start all the same, and fail later." if asked.fits else ""
        return (
            f"{words} does not fit: {excess(over)} GiB above the {gib(asked.limit_bytes)} GiB "
            f"a plan may use.{tight}"
        )
    if not asked.fits:
        return f"{words} does not fit the memory of the host."
    if not isinstance(planned, Plan):
        return f"{words} is legal and fits, though the search with these pins found nothing."
    return _pace(words, request, asked, planned.estimate)


def _pace(words: str, request: PlanRequest, asked: Estimate, best: Estimate) -> str:
    if asked.layout == best.layout:
        return f"{words} is the plan."
    lost = asked.step_time_seconds - best.step_time_seconds
    share = lost / best.step_time_seconds
    than = "than" if abs(share) >= NAMED else "as"
    if lost < 0:
        return f"{words} is {pace(share)} {than} the plan, but {kept_out(request, asked.layout)}."
    term, amount = grown_most(best.time, asked.time, TIME_WORDS)
    against = layout_words(best.layout, request.framework)
    if against == words:
        differing = changed_fields(best.layout, asked.layout)
        against = "the plan's " + ", ".join(f"{one['field']} {one['plan']}" for one in differing)
    cost = (
        f": {term} costs {short_seconds(amount)} more a step"
        if share >= NAMED
        else f"; {memory_against(best.memory, asked.memory)}"
    )
    return f"{words} is legal and fits, and is {pace(share)} {than} {against}{cost}."


def _remedy(asked: Estimate, one: Remedy) -> Json:
    (name, value), *_ = one.change.items()
    was = _plain(asked.layout, name)
    value = list(value) if isinstance(value, tuple) else value
    says = (
        f"{name} {was} -> {value}: {gib(one.estimate.memory.total)} of "
        f"{gib(one.estimate.gpu_memory_bytes)} GiB, "
        f"{short_seconds(one.estimate.step_time_seconds)} a step"
    )
    return {
        "field": name,
        "from": was,
        "to": value,
        "says": says,
        "layout": layout_body(one.estimate.layout),
        "estimate": judged_body(one.estimate),
    }
