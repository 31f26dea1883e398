"""Plans and estimates as JSON objects: what HTTP answers and what the command line prints.

Pure renderings of frozen planner values. Bytes and seconds are SI; a number that has no finite
value is `null`, because JSON has no infinity.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from app.planner.architecture import ModelArchitecture
from app.planner.explain import alternatives
from app.planner.hardware import Cluster
from app.planner.layout import Layout
from app.planner.request import (
    Alternative,
    Estimate,
    MemoryBytes,
    NoFeasiblePlan,
    Plan,
    PlanRequest,
    SearchStats,
    TimeSeconds,
    Violation,
    Workload,
)

Json = dict[str, Any]

# Answered under the names a request uses, so that an answered architecture can be asked again.
_HIDDEN_ARCHITECTURE_FIELDS = frozenset({"params_override", "active_params_override"})
# The stage is which one is fullest, the host another memory: neither is a share of the card.
_MEMORY_TERMS = tuple(f.name for f in fields(MemoryBytes) if f.name not in {"host", "stage"})
_TIME_TERMS = tuple(f.name for f in fields(TimeSeconds))


def plan_body(outcome: Plan | NoFeasiblePlan, *, duration_seconds: float) -> Json:
    """The answer of `/v1/plan`; `duration_seconds` is what the caller's clock gave the search."""
    search = search_body(outcome.search, duration_seconds=duration_seconds)
    if isinstance(outcome, NoFeasiblePlan):
        question = question_body(outcome.request)
        return {"infeasible": _infeasible(outcome), "search": search, **question}
    return {
        "layout": layout_body(outcome.layout),
        "estimate": judged_body(outcome.estimate),
        "alternatives": [
            _alternative(one) for one in alternatives(outcome.request, outcome.estimate)
        ],
        "search": search,
        "explanation": outcome.explanation,
        **question_body(outcome.request),
    }


def estimate_body(estimate: Estimate, request: PlanRequest) -> Json:
    """The answer of `/v1/estimate`: the layout as completed, and what it would do."""
    layout = layout_body(estimate.layout)
    return {**judged_body(estimate), "layout": layout, **question_body(request)}


def layout_body(layout: Layout) -> Json:
    """Every field of a layout under its own name."""
    body = _fields(layout)
    body["stage_layers"] = list(layout.stage_layers)
    return body


def search_body(search: SearchStats, *, duration_seconds: float) -> Json:
    """How the search went and how long it took."""
    return {**_fields(search), "duration_seconds": duration_seconds}


def architecture_body(model: ModelArchitecture) -> Json:
    """A model as it was resolved, with what it counts to."""
    body = {k: v for k, v in _fields(model).items() if k not in _HIDDEN_ARCHITECTURE_FIELDS}
    body["latent"] = _fields(model.latent) if model.latent is not None else None
    body["moe"] = _fields(model.moe) if model.moe is not None else None
    body["rotary"] = _fields(model.rotary) if model.rotary is not None else None
    return {**body, "params": model.params, "active_params": model.active_params}


def cluster_body(cluster: Cluster) -> Json:
    """A cluster as it was resolved, by names."""
    return {
        "gpu": cluster.gpu.name,
        "nodes": cluster.nodes,
        "gpus_per_node": cluster.gpus_per_node,
        "fabric": cluster.fabric,
        "instance_type": cluster.instance_type or None,
    }


def question_body(request: PlanRequest) -> Json:
    """What was asked, as it was resolved."""
    return {
        "architecture": architecture_body(request.model),
        "cluster": cluster_body(request.cluster),
        "framework": request.framework.name,
        "workload": _workload(request.workload),
        "catalog_version": request.catalog_version,
    }


def _workload(workload: Workload) -> Json:
    body = _fields(workload)
    if workload.task not in {"lora", "qlora"}:
        del body["lora_rank"]
    return body


def judged_body(estimate: Estimate) -> Json:
    """What one layout would do, without the question."""
    memory, time = estimate.memory, estimate.time
    # An illegal layout that the framework or the GPU can't do at all has neither.
    number = _finite if time.total > 0 else _nothing
    return {
        "legal": estimate.legal,
        "violations": [_violation(one) for one in estimate.violations],
        "fits": estimate.fits,
        "gpu_memory_bytes": estimate.gpu_memory_bytes,
        "limit_bytes": _finite(estimate.limit_bytes),
        "memory_bytes": {"total": number(memory.total)}
        | {name: number(getattr(memory, name)) for name in _MEMORY_TERMS},
        "host_memory_bytes_per_node": number(memory.host),
        "fullest_stage": memory.stage,
        "step_time_seconds": number(estimate.step_time_seconds),
        "time_seconds": {name: number(getattr(time, name)) for name in _TIME_TERMS},
        "tokens_per_second_per_gpu": number(estimate.tokens_per_second_per_gpu),
        "model_flop_per_second_per_gpu": number(estimate.model_flop_per_second_per_gpu),
        "mfu": number(estimate.mfu),
        "num_microbatches": estimate.num_microbatches,
        "global_batch_size": estimate.global_batch_size,
        "assumptions": list(estimate.assumptions),
    }


def _alternative(alternative: Alternative) -> Json:
    return {
        "layout": layout_body(alternative.layout),
        "estimate": judged_body(alternative.estimate),
        "why_not": alternative.why_not,
    }


def _infeasible(outcome: NoFeasiblePlan) -> Json:
    nearest = outcome.nearest
    return {
        "reasons": list(outcome.reasons),
        "nearest": None
        if nearest is None
        else {
            "layout": layout_body(nearest.layout),
            "estimate": judged_body(nearest),
            "short_by_bytes": _finite(outcome.short_by_bytes),
        },
        "remedies": list(outcome.remedies),
    }


def _violation(violation: Violation) -> Json:
    return {"rule": violation.rule, "field": violation.field, "message": violation.message}


def _fields(value: Any) -> Json:
    return {one.name: getattr(value, one.name) for one in fields(value)}


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _nothing(number: float) -> None:
    del number
