"""What a number of tokens costs: every priced instance type, at every size, planned.

The answer of `/v1/cost` and `trainjob-advisor cost`. Money is list price times time; there is no
discount, no storage and no network in it. Time is that of the planned step, without failures: what
those add on spot machines is said beside it.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final

from app.advisor.advise import Desk, resolve
from app.advisor.answers import Json, layout_body
from app.advisor.errors import Refusal
from app.advisor.requests import (
    PLAN_FIELDS,
    Check,
    parse_plan_body,
    positive,
    whole_number,
)
from app.catalog.loader import Unknown
from app.catalog.reading import nearest, quoted, shown
from app.catalog.records import Instance
from app.planner.explain import estimate_line, short_seconds
from app.planner.hardware import MAX_GPUS_PER_NODE, MAX_NODES
from app.planner.intent import FieldError, TrainIntent
from app.planner.refuse import refused as refusal_of
from app.planner.request import Estimate, PlanRequest, SearchStats
from app.planner.search import leanest
from app.planner.wording import counted

HOUR: Final = 3600.0
BILLION: Final = 1e9
JOULES_PER_KWH: Final = 3.6e6
DEFAULT_MAX_GPUS: Final = 1024
MAX_TOKENS: Final = 10**16

FAILURE_GPU_HOURS: Final = 54 * 24 * 16384 / 419
"""GPU-hours between unexpected interruptions, where machines are not taken away.

419 in 54 days on 16,384 GPUs: "The Llama 3 Herd of Models", arXiv:2407.21783, section 3.3.4.
"""
SPOT_NODE_HOURS: Final = 168.0
"""Hours between interruptions of one spot machine: an assumption of a week; markets differ."""
CHECKPOINT_BYTES_PER_PARAMETER: Final = 12.0
"""fp32 weights and both AdamW moments."""
CHECKPOINT_BYTES_PER_SECOND_PER_NODE: Final = 1e9
"""What one node writes to storage: an assumption; sharded checkpoints are written by all nodes."""
RESTART_SECONDS: Final = 600.0
"""From an interruption to the first new step: an assumption."""

PAYING_SPEEDUP: Final = 1.6
"""A doubling of machines pays while it gives this much speed: a token then costs 25 % more."""

BY_TIME: Final = attrgetter("hours", "usd")
BY_MONEY: Final = attrgetter("usd", "hours")
"""The order of offers; of equal ones the cheaper, or the faster, first."""
SPEED_PREMIUM: Final = 0.1
"""What speed may cost over the cheapest where neither deadline nor budget is given."""

COST_FIELDS: Final[Mapping[str, Check]] = {
    "tokens": whole_number(1, MAX_TOKENS),
    "deadline_hours": positive,
    "budget_usd": positive,
    "max_gpus": whole_number(1, MAX_NODES * MAX_GPUS_PER_NODE),
    "spot_interruption_hours": positive,
    "checkpoint_bytes_per_second_per_node": positive,
}
ASKED_FIELDS: Final = tuple(name for name in PLAN_FIELDS if name != "gpus_per_node")


NOT_COUNTED: Final = SearchStats(configurations=0, evaluated=0, legal=0, feasible=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostQuestion:
    """What is to be trained, and within what. `intent` names no machine."""

    intent: TrainIntent
    instances: tuple[Instance, ...]
    unpriced: tuple[str, ...]
    nodes: int | None
    tokens: int
    deadline_hours: float | None = None
    budget_usd: float | None = None
    max_gpus: int = DEFAULT_MAX_GPUS
    spot_interruption_hours: float = SPOT_NODE_HOURS
    checkpoint_bytes_per_second_per_node: float = CHECKPOINT_BYTES_PER_SECOND_PER_NODE


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One instance type at one size: its best layout, and what the tokens take and cost there."""

    instance: Instance
    request: PlanRequest
    estimate: Estimate
    hours: float
    usd: float
    spot_usd: float | None
    tokens_per_second: float
    energy_kwh: float | None

    @property
    def nodes(self) -> int:
        """Machines of the job."""
        return self.request.cluster.nodes

    @property
    def gpus(self) -> int:
        """GPUs of the whole job."""
        return self.request.cluster.world_size


@dataclass(frozen=True, slots=True, kw_only=True)
class CostAnswer:
    """Every offer, what was chosen of them, and the same as JSON."""

    offers: tuple[Offer, ...]
    recommended: Offer | None
    body: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a sweep is."""

    done: int
    total: int
    name: str


def answer_cost(body: Any, desk: Desk) -> Generator[Progress, None, CostAnswer | Refusal]:
    """The answer, after a pause before each plan, so that whoever waits has a turn."""
    question = parse_cost_body(body, desk)
    if isinstance(question, Refusal):
        return question
    sizes = [(each, nodes) for each in question.instances for nodes in node_counts(question, each)]
    offers: list[Offer] = []
    refused: dict[str, str | PlanRequest] = {}
    for done, (instance, nodes) in enumerate(sizes):
        yield Progress(done=done, total=len(sizes), name=instance.name)
        request = _sized(question.intent, instance, nodes, desk)
        if isinstance(request, Refusal):
            if not _machine_fault(request):
                return request
            refused[instance.name] = request.errors[0].message
        elif (found := desk.best(decisive(request))) is not None:
            offers.append(offer(question, instance, request, found))
        else:
            refused[instance.name] = request
    never = {}
    for name in refused.keys() - _names(offers):
        yield Progress(done=len(sizes), total=len(sizes), name=name)
        why = refused[name]
        never[name] = why if isinstance(why, str) else why_not(why)
    return _answer(question, tuple(offers), dict(sorted(never.items())), desk)


def _names(offers: Sequence[Offer]) -> set[str]:
    return {one.instance.name for one in offers}


def _machine_fault(refusal: Refusal) -> bool:
    """Whether only this machine cannot be asked, such as one without the fabric named."""
    machine = ("gpu", "fabric", "instance_type", "nodes", "gpus_per_node")
    return all(one.path.split(".")[0] in machine for one in refusal.errors)


def _sized(
    intent: TrainIntent, instance: Instance, nodes: int, desk: Desk
) -> PlanRequest | Refusal:
    """The question on so many of these machines."""
    machines = replace(
        intent,
        instance_type=instance.name,
        gpu=instance.gpu,
        nodes=nodes,
        gpus_per_node=int(instance.gpus_per_node),
    )
    return resolve(machines, desk)


def decisive(request: PlanRequest) -> PlanRequest:
    """The question without what no layout depends on, so that equal machines are planned once.

    Names and assumptions are only shown, one node sends nothing to another, and without offloading
    the host's memory holds nothing.
    """
    cluster = replace(request.cluster, instance_type="", fabric="")
    if cluster.nodes == 1:
        cluster = replace(cluster, inter=cluster.intra)
    if request.workload.offload == "none":
        cluster = replace(cluster, host_memory_bytes_per_node=0)
    return replace(request, cluster=cluster, assumptions=())


def why_not(request: PlanRequest) -> str:
    """The first reason why nothing fits, on the most machines that were tried."""
    nearest = leanest(request)
    answer = refusal_of(request, NOT_COUNTED, nearest=nearest, fits=lambda changed: False)  # noqa: ARG005
    return answer.reasons[0]


def parse_cost_body(body: Any, desk: Desk) -> CostQuestion | Refusal:
    """What a `POST /v1/cost` body asks, or everything that is wrong with it."""
    if not isinstance(body, Mapping):
        keys = quoted((*COST_FIELDS, *ASKED_FIELDS))
        message = f"the request must be a JSON object with the keys {keys}"
        return _refused([FieldError(path="", value=body, message=message)])
    own = {name: body[name] for name in COST_FIELDS if body.get(name) is not None}
    rest = {name: value for name, value in body.items() if name not in COST_FIELDS}
    errors = [
        FieldError(path=name, value=value, message=f"`{name}` {must}, not {shown(value)}")
        for name, value in own.items()
        if (must := COST_FIELDS[name](value))
    ]
    if "tokens" not in own:
        message = "`tokens` must be given: how many the job trains on"
        errors.append(FieldError(path="tokens", value=None, message=message))
    if rest.pop("gpus_per_node", None) is not None:
        message = "`gpus_per_node` is not known here: each instance type has its own"
        errors.append(FieldError(path="gpus_per_node", value=None, message=message))
    intent = parse_plan_body({"gpu": "any", **{k: v for k, v in rest.items() if v is not None}})
    if not isinstance(intent, TrainIntent):
        return _refused([*errors, *intent])
    instances = chosen(intent, "gpu" in rest and rest["gpu"] is not None, desk)
    if isinstance(instances, FieldError):
        errors.append(instances)
    if errors or isinstance(instances, FieldError):
        return _refused(errors)
    return CostQuestion(
        intent=intent,
        instances=tuple(one for one in instances if on_demand(one)),
        unpriced=tuple(one.name for one in instances if not on_demand(one)),
        nodes=intent.nodes if rest.get("nodes") is not None else None,
        **own,
    )


def _refused(errors: list[FieldError]) -> Refusal:
    return Refusal(code="invalid_request", errors=tuple(errors))


def chosen(intent: TrainIntent, by_gpu: bool, desk: Desk) -> list[Instance] | FieldError:
    """The instance types of whole GPUs that the filters leave."""
    catalog = desk.catalog
    found = [one for one in catalog.instances.values() if one.gpus_per_node >= 1]
    if intent.instance_type is not None:
        name = intent.instance_type
        found = [one for one in found if one.name.casefold() == name.casefold()]
        if not found:
            near = quoted(nearest(name, catalog.instances))
            message = f"`instance_type` {shown(name)} is not in the catalog; near it: {near}"
            return FieldError(path="instance_type", value=name, message=message)
    if by_gpu:
        gpu = catalog.gpu(intent.gpu or "")
        if isinstance(gpu, Unknown):
            return FieldError(path="gpu", value=intent.gpu, message=f"`gpu` {gpu.message}")
        found = [one for one in found if one.gpu == gpu.entry.gpu.name]
    return found


def on_demand(instance: Instance) -> float:
    """USD an hour of one machine on demand, 0 if no price is known."""
    return instance.on_demand_usd_per_hour or instance.usd_per_gpu_hour * instance.gpus_per_node


def node_counts(question: CostQuestion, instance: Instance) -> tuple[int, ...]:
    """Powers of two up to the most GPUs, or the one number that was asked for."""
    if question.nodes is not None:
        return (question.nodes,)
    most = int(question.max_gpus // instance.gpus_per_node)
    return tuple(2**power for power in range(most.bit_length())) if most else ()


def offer(
    question: CostQuestion, instance: Instance, request: PlanRequest, found: Estimate
) -> Offer:
    """Time and money of a layout."""
    cluster = request.cluster
    nodes = cluster.nodes
    rate = found.tokens_per_second_per_gpu * cluster.world_size
    hours = question.tokens / rate / HOUR
    watts = cluster.gpu.tdp_watts * cluster.world_size
    spot = instance.spot_usd_per_hour
    return Offer(
        instance=instance,
        request=request,
        estimate=found,
        hours=hours,
        usd=hours * nodes * on_demand(instance),
        spot_usd=hours * nodes * spot if spot else None,
        tokens_per_second=rate,
        energy_kwh=watts * hours * HOUR / JOULES_PER_KWH if watts else None,
    )


def pareto(offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """Offers that nothing beats in both time and money, fastest first."""
    front: list[Offer] = []
    for one in sorted(offers, key=lambda one: (one.hours, one.usd, one.instance.name)):
        if not front or one.usd < front[-1].usd:
            front.append(one)
    return tuple(front)


def recommend(question: CostQuestion, offers: Sequence[Offer]) -> tuple[Offer | None, str]:
    """The offer to take, and why; none when nothing meets deadline and budget."""
    deadline, budget = question.deadline_hours, question.budget_usd
    kept = [
        one
        for one in offers
        if (deadline is None or one.hours <= deadline) and (budget is None or one.usd <= budget)
    ]
    if not kept:
        return None, _nothing_meets(question, offers)
    if deadline is not None:
        best = min(kept, key=BY_MONEY)
        within = f" within {budget:,.0f} USD" if budget is not None else ""
        return best, f"the cheapest that ends in {deadline:g} hours{within}"
    if budget is not None:
        best = min(kept, key=BY_TIME)
        return best, f"the fastest for at most {budget:,.0f} USD"
    most = min(one.usd for one in kept) * (1 + SPEED_PREMIUM)
    best = min((one for one in kept if one.usd <= most), key=BY_TIME)
    return best, f"the fastest within {SPEED_PREMIUM:.0%} of the least money"


def _nothing_meets(question: CostQuestion, offers: Sequence[Offer]) -> str:
    if not offers:
        return "no priced instance type holds this model"
    said = []
    fastest = min(offers, key=BY_TIME)
    cheapest = min(offers, key=BY_MONEY)
    if question.deadline_hours is not None:
        said.append(
            f"the fastest takes {fastest.hours:,.1f} hours ({fastest.nodes} x "
            f"{fastest.instance.name}, {fastest.usd:,.0f} USD)"
        )
    if question.budget_usd is not None:
        said.append(
            f"the cheapest costs {cheapest.usd:,.0f} USD ({cheapest.nodes} x "
            f"{cheapest.instance.name}, {cheapest.hours:,.1f} hours)"
        )
    return "nothing meets what was asked: " + " and ".join(said)


def scaling(offers: Sequence[Offer], instance: str) -> list[Json]:
    """Tokens a second against nodes of one instance type, and whether each doubling pays."""
    own = sorted((one for one in offers if one.instance.name == instance), key=lambda o: o.nodes)
    rows: list[Json] = []
    for before, one in zip([None, *own], own, strict=False):
        first = own[0]
        ideal = first.tokens_per_second * one.nodes / first.nodes
        gain = one.tokens_per_second / before.tokens_per_second if before else None
        needed = PAYING_SPEEDUP ** math.log2(one.nodes / before.nodes) if before else 1.0
        rows.append(
            {
                "nodes": one.nodes,
                "gpus": one.gpus,
                "tokens_per_second": one.tokens_per_second,
                "efficiency": one.tokens_per_second / ideal,
                "speedup_over_previous": gain,
                "pays": gain is None or gain >= needed,
                "hours": one.hours,
                "usd": one.usd,
            }
        )
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """How often to write a checkpoint, and the share of time that writing and losses take."""

    young_seconds: float
    daly_seconds: float
    overhead: float


def checkpoint_interval(
    *, write_seconds: float, between_seconds: float, restart_seconds: float = RESTART_SECONDS
) -> Interval:
    """The interval that loses least time.

    Young, CACM 17(9), 1974: sqrt(2 d M). Daly, FGCS 22(3), 2006, equation 37:
    sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + (d / 2M) / 9) - d, and M where d is 2M or more.
    Symbols: d seconds of a write, M mean seconds between interruptions.
    The overhead is d / t + (t / 2 + restart) / M, a first-order sum, 1 at most.
    """
    young = math.sqrt(2 * write_seconds * between_seconds)
    ratio = write_seconds / (2 * between_seconds)
    daly = (
        between_seconds
        if ratio >= 1
        else young * (1 + math.sqrt(ratio) / 3 + ratio / 9) - write_seconds
    )
    lost = write_seconds / daly + (daly / 2 + restart_seconds) / between_seconds
    return Interval(young_seconds=young, daly_seconds=daly, overhead=min(1.0, lost))


def checkpoint_body(question: CostQuestion, one: Offer) -> Json:
    """Checkpoint advice for one offer, on demand and on spot, with every input."""
    size = one.request.model.params * CHECKPOINT_BYTES_PER_PARAMETER
    write = size / (question.checkpoint_bytes_per_second_per_node * one.nodes)
    between = {
        "on_demand": FAILURE_GPU_HOURS / one.gpus * HOUR,
        "spot": question.spot_interruption_hours / one.nodes * HOUR,
    }
    body: Json = {
        "inputs": {
            "checkpoint_bytes": size,
            "bytes_per_parameter": CHECKPOINT_BYTES_PER_PARAMETER,
            "write_bytes_per_second_per_node": question.checkpoint_bytes_per_second_per_node,
            "write_seconds": write,
            "restart_seconds": RESTART_SECONDS,
            "gpu_hours_between_failures": FAILURE_GPU_HOURS,
            "spot_hours_between_interruptions_of_a_node": question.spot_interruption_hours,
            "source": "Young 1974; Daly 2006, equation 37; failures: arXiv:2407.21783 3.3.4; "
            "spot interruptions, write rate and restart are assumptions, give your own",
        }
    }
    for name, seconds in between.items():
        interval = checkpoint_interval(write_seconds=write, between_seconds=seconds)
        body[name] = {
            "seconds_between_interruptions": seconds,
            "young_interval_seconds": interval.young_seconds,
            "daly_interval_seconds": interval.daly_seconds,
            "interval_minutes": max(1, round(interval.daly_seconds / 60)),
            "overhead": interval.overhead,
        }
    spot_overhead = body["spot"]["overhead"]
    body["spot"]["usd_with_overhead"] = (
        one.spot_usd / (1 - spot_overhead)
        if one.spot_usd is not None and spot_overhead < 1
        else None
    )
    body["advice"] = _spot_advice(one, body["spot"])
    return body


def _spot_advice(one: Offer, spot: Json) -> str:
    every = (
        f"checkpoint every {spot['interval_minutes']} minutes; an interruption is expected "
        f"every {spot['seconds_between_interruptions'] / HOUR:.1f} hours on "
        f"{counted(one.nodes, 'node')}"
    )
    if one.spot_usd is None:
        return f"no spot price of {one.instance.name} is known"
    money = spot["usd_with_overhead"]
    if money is None or money >= one.usd:
        return (
            f"spot does not pay here: interruptions cost more than the lower price saves; {every}"
        )
    return (
        f"spot costs about {money:,.0f} USD with its interruptions against {one.usd:,.0f} on "
        f"demand ({1 - money / one.usd:.0%} less); {every}"
    )


def offer_body(one: Offer, question: CostQuestion) -> Json:
    """One row of the table."""
    machine = one.instance
    layout = one.estimate.layout
    return {
        "instance_type": machine.name,
        "provider": machine.provider,
        "gpu": machine.gpu,
        "nodes": one.nodes,
        "gpus": one.gpus,
        "fabric": one.request.cluster.fabric,
        "hours": one.hours,
        "usd": one.usd,
        "spot_usd": one.spot_usd,
        "usd_per_billion_tokens": one.usd / question.tokens * BILLION,
        "tokens_per_second": one.tokens_per_second,
        "mfu": one.estimate.mfu,
        "energy_kwh_upper_bound": one.energy_kwh,
        "price": {
            "on_demand_usd_per_node_hour": on_demand(machine),
            "spot_usd_per_node_hour": machine.spot_usd_per_hour or None,
            "region": machine.price_region,
            "date": machine.price_date,
            "source": machine.source,
        },
        "plan": estimate_line(one.estimate, one.request.framework),
        "layout": layout_body(layout),
        "step_time_seconds": one.estimate.step_time_seconds,
    }


def _answer(
    question: CostQuestion, offers: tuple[Offer, ...], refused: Mapping[str, str], desk: Desk
) -> CostAnswer:
    best, reason = recommend(question, offers)
    ordered = sorted(offers, key=lambda one: (one.usd, one.hours, one.instance.name, one.nodes))
    front = pareto(offers)
    deadline = question.deadline_hours
    timely = [one for one in ordered if deadline is None or one.hours <= deadline]
    curve = scaling(offers, best.instance.name) if best else []
    body: Json = {
        "recommended": {**offer_body(best, question), "reason": reason} if best else None,
        "reason": reason,
        "cheapest_meeting_deadline": offer_body(timely[0], question)
        if deadline is not None and timely
        else None,
        "pareto": [offer_body(one, question) for one in front],
        "offers": [offer_body(one, question) for one in ordered],
        "scaling": curve,
        "scaling_advice": scaling_advice(curve, best),
        "checkpoint": checkpoint_body(question, best) if best else None,
        "cannot": [{"instance_type": name, "reason": why} for name, why in refused.items()],
        "without_price": list(question.unpriced),
        "tokens": question.tokens,
        "deadline_hours": question.deadline_hours,
        "budget_usd": question.budget_usd,
        "assumptions": _assumptions(offers),
        "catalog_version": desk.catalog.version,
    }
    return CostAnswer(offers=tuple(ordered), recommended=best, body=body)


def scaling_advice(curve: Sequence[Json], best: Offer | None) -> str:
    """Where more machines of the recommended type stop paying, in a sentence."""
    if best is None or not curve:
        return ""
    stopped = next((row for row in curve if not row["pays"]), None)
    name = best.instance.name
    if len(curve) == 1:
        return f"{name} was tried at {counted(curve[0]['nodes'], 'node')} alone"
    if stopped is None:
        return (
            f"{name} still pays at {counted(curve[-1]['nodes'], 'node')}, the most that was tried"
        )
    return (
        f"{name} stops paying at {counted(stopped['nodes'], 'node')}: the last step up gives "
        f"{stopped['speedup_over_previous']:.2f}x the speed"
    )


def _assumptions(offers: Sequence[Offer]) -> list[str]:
    said = [
        "list prices of the date and region shown, without discounts, storage and traffic",
        "no failures in the hours; the checkpoint advice says what they would add",
        (
            "energy is the GPUs' board limit (TDP) all the time: an upper bound of their share, "
            "without hosts and cooling"
        ),
    ]
    if offers:
        work = offers[0].request.workload
        said.append(
            f"sequences of {work.sequence_length} tokens, {work.global_batch_size} a step, "
            "on every machine alike"
        )
    return said


def price_performance(offers: Sequence[Offer]) -> list[Json]:
    """Per GPU type, the cheapest price of a GPU-hour, its speed, and dollars per billion tokens."""
    found: dict[str, Offer] = {}
    for one in offers:
        held = found.get(one.instance.gpu)
        if held is None or one.usd < held.usd:
            found[one.instance.gpu] = one
    return [
        {
            "gpu": gpu,
            "instance_type": one.instance.name,
            "usd_per_gpu_hour": on_demand(one.instance) / one.instance.gpus_per_node,
            "tokens_per_second_per_gpu": one.tokens_per_second / one.gpus,
            "usd_per_billion_tokens": one.usd
            / (one.hours * one.tokens_per_second * HOUR)
            * BILLION,
            "step": short_seconds(one.estimate.step_time_seconds),
        }
        for gpu, one in sorted(found.items(), key=lambda pair: pair[1].usd)
    ]
