"""A plan as a TrainJob carries it: a line for tools, a JSON value, variables for the workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import orjson

from app.planner.explain import gib, largest_other_cost, layout_words, short_seconds
from app.planner.layout import Layout
from app.planner.request import Estimate, Plan
from app.trainjobs.adapter import Setting

SIGNIFICANT_DIGITS = 4
LAYOUT_FIELDS = tuple(each.name for each in fields(Layout) if each.name != "stage_layers")
PLANNED = "the plan of this job"
PLAN_SOURCE = "trainjob-advisor"
PLAN_VARIABLES = {
    "EP_DEGREE": ("layout", "ep"),
    "VPP_DEGREE": ("layout", "vpp"),
    "MICRO_BATCH_SIZE": ("layout", "microbatch_size"),
    "GRAD_ACCUM_STEPS": ("estimate", "num_microbatches"),
    "GLOBAL_BATCH_SIZE": ("estimate", "global_batch_size"),
    "ACTIVATION_CHECKPOINTING": ("layout", "recompute"),
    "SHARDING": ("layout", "sharding"),
    "SEQUENCE_PARALLEL": ("layout", "sequence_parallel"),
}
"""Variables of the workers, and where the plan says them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTexts:
    """A plan as every job that gets it carries it. Written once, for all of them.

    `document` is the machine-readable plan of a job we completed nothing in.
    """

    config: str
    reason: str
    document: str
    variables: tuple[Setting, ...]

    def completed(self, filled: Mapping[str, Any]) -> str:
        """The machine-readable plan. `filled` are spec fields we completed, not their author."""
        if not filled:
            return self.document
        return f'{self.document[:-1]},"filled":{compact(filled)}}}'


def plan_texts(plan: Plan) -> PlanTexts:
    """The texts of a plan."""
    return PlanTexts(
        config=config_line(plan),
        reason=reason_line(plan),
        document=plan_json(plan),
        variables=plan_variables(plan),
    )


def compact(document: Any) -> str:
    """JSON without spaces; keys in the order they were given."""
    return orjson.dumps(document).decode()


def environment_record(settings: Iterable[Setting]) -> str:
    """Variables of ours as an annotation lists them, each with its reason and its source."""
    # Written out: orjson takes twice as long for a dataclass as for making this and a dict.
    return compact(
        [
            {
                "name": each.name,
                "value": each.value,
                "reason": each.reason,
                "source": each.source,
            }
            for each in settings
        ]
    )


def rounded(value: float) -> float | int:
    """`value` to a few significant digits, a whole number without a point.

    An annotation is compared byte by byte; the last bits of a float are no news.
    """
    short = float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    return int(short) if short.is_integer() else short


def fsdp_degree(layout: Layout) -> int:
    """GPUs / (tp * pp * cp), as the operator derives it."""
    return layout.world_size // (layout.tp * layout.pp * layout.cp)


def recomputes(layout: Layout) -> bool:
    """Whether any activation is computed again: the API has one flag for both kinds."""
    return layout.recompute != "none"


def word(value: Any) -> str:
    """A value as a variable holds it: JSON words for the truth values."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def config_line(plan: Plan) -> str:
    """The plan as `key=value` words: the eight that existing tools read, then ours."""
    layout, estimate = plan.layout, plan.estimate
    words = {
        "TP": layout.tp,
        "PP": layout.pp,
        "FSDP": fsdp_degree(layout),
        "CP": layout.cp,
        "micro_batch": layout.microbatch_size,
        "act_ckpt": recomputes(layout),
        "precision": layout.precision,
        "score": f"{estimate.tokens_per_second_per_gpu:.1f}",
        "EP": layout.ep,
        "VPP": layout.vpp,
        "recompute": layout.recompute,
        "sharding": layout.sharding,
        "sequence_parallel": layout.sequence_parallel,
        "num_microbatches": estimate.num_microbatches,
        "global_batch_size": estimate.global_batch_size,
        "framework": plan.request.framework.name,
    }
    return " ".join(f"{key}={word(value)}" for key, value in words.items())


def reason_line(plan: Plan) -> str:
    """Why this plan, in one sentence for people."""
    estimate, request = plan.estimate, plan.request
    time = estimate.time
    other = largest_other_cost(time)
    return (
        f"{layout_words(plan.layout, request.framework)} is the fastest that fits, "
        f"of {plan.search.configurations} legal layouts of {request.model.name} on "
        f"{request.cluster.world_size} x {request.cluster.gpu.name}: "
        f"{short_seconds(time.total)} a step, "
        f"{time.compute / time.total:.0%} of it compute"
        f"{f' and {other[1]:.1%} {other[0]}' if other else ''}, "
        f"with {gib(estimate.memory.total)} of {gib(estimate.gpu_memory_bytes)} GiB per GPU"
    )


def layout_json(layout: Layout) -> dict[str, Any]:
    """The layout's fields by name; `stage_layers` only where the split is uneven."""
    named = {name: getattr(layout, name) for name in LAYOUT_FIELDS}
    stages = layout.stage_layers
    return {**named, "stage_layers": list(stages)} if stages else named


def estimate_json(estimate: Estimate) -> dict[str, Any]:
    """The figures a reader of the job wants, rounded."""
    return {
        "memory_bytes": rounded(estimate.memory.total),
        "gpu_memory_bytes": estimate.gpu_memory_bytes,
        "step_time_seconds": rounded(estimate.step_time_seconds),
        "tokens_per_second_per_gpu": rounded(estimate.tokens_per_second_per_gpu),
        "model_flop_per_second_per_gpu": rounded(estimate.model_flop_per_second_per_gpu),
        "mfu": rounded(estimate.mfu),
        "num_microbatches": estimate.num_microbatches,
        "global_batch_size": estimate.global_batch_size,
    }


def plan_json(plan: Plan) -> str:
    """The machine-readable plan."""
    request = plan.request
    document: dict[str, Any] = {
        "layout": layout_json(plan.layout),
        "estimate": estimate_json(plan.estimate),
        "model": request.model.name,
        "gpu": request.cluster.gpu.name,
        "fabric": request.cluster.fabric,
        "framework": request.framework.name,
        "sequence_length": request.workload.sequence_length,
        "catalog_version": request.catalog_version,
    }
    document["explanation"] = " ".join(plan.explanation.split())
    if request.assumptions:
        document["assumptions"] = list(request.assumptions)
    return compact(document)


def read_plan_json(text: str | None) -> Mapping[str, Any]:
    """What `plan_json` wrote, an empty object for anything else."""
    if not text:
        return {}
    try:
        document = orjson.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, Mapping) else {}


def plan_variables(plan: Plan) -> tuple[Setting, ...]:
    """What the workers need of the plan that no field of a TrainJob says, for `$(NAME)` in args."""
    document = {"layout": layout_json(plan.layout), "estimate": estimate_json(plan.estimate)}
    return tuple(
        Setting(name=name, value=word(document[part][key]), reason=PLANNED, source=PLAN_SOURCE)
        for name, (part, key) in PLAN_VARIABLES.items()
    )
