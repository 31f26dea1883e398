"""What one layout would do: legality, memory and time in one answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from app.planner.hardware import PRECISIONS
from app.planner.intent import FieldError
from app.planner.layout import RECOMPUTES, SHARDINGS, Layout, Sharding
from app.planner.legality import num_microbatches, usable_shardings, violations
from app.planner.memory import memory
from app.planner.request import Estimate, MemoryBytes, PlanRequest, TimeSeconds
from app.planner.timing import step_time

MEMORY_MARGIN = 0.08
"""Share of a GPU's memory a plan leaves free: the memory model is 4-5 % off (docs/memory.md)
and transients come on top; a layout with 5 % free failed a third of its runs in
NVIDIA-NeMo/Megatron-Bridge#3107."""

MAX_STAGES = 2**14
"""Pipeline stages anybody can mean: no model has more layers, and each stage is looked at."""

CHOICES: Mapping[str, tuple[str, ...]] = {
    "sharding": SHARDINGS,
    "recompute": RECOMPUTES,
    "precision": PRECISIONS,
}
COUNTS = ("tp", "pp", "vpp", "cp", "ep", "dp", "dp_shard", "microbatch_size")
LAYOUT_FIELDS = tuple(each.name for each in fields(Layout))


def field_problem(name: str, value: Any) -> str:
    """What is wrong with one layout field's value, "" if nothing."""
    if name in COUNTS:
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            return f"must be a whole number greater than 0, not {value!r}"
        if name == "pp" and value > MAX_STAGES:
            return f"must be less than or equal to {MAX_STAGES}"
        return ""
    if name in CHOICES:
        if value in CHOICES[name]:
            return ""
        return f"must be one of {', '.join(CHOICES[name])}, not {value!r}"
    if name == "sequence_parallel":
        return "" if isinstance(value, bool) else f"must be true or false, not {value!r}"
    if name == "stage_layers":
        ok = isinstance(value, list | tuple) and all(
            isinstance(each, int) and not isinstance(each, bool) for each in value
        )
        return "" if ok else "must be a list of whole numbers, one per stage"
    return f"is not a layout field; the fields are {', '.join(LAYOUT_FIELDS)}"


def default_sharding(request: PlanRequest, *, pp: int) -> Sharding:
    """The framework's own choice, or with a pipeline the first that works with one."""
    preferred = request.framework.default_sharding
    usable = usable_shardings(request.framework, pp=pp)
    if preferred in usable or not usable:
        return preferred
    return usable[0]  # type: ignore[return-value]


def hsdp_shard_group(request: PlanRequest, *, tp: int, cp: int, dp: int) -> int:
    """Data-parallel ranks of one fast domain: the usual HSDP shard group. Divides `dp`."""
    group = max(1, request.cluster.domain_size // (tp * cp))
    while dp % group:
        group -= 1
    return group


def complete(request: PlanRequest, given: Mapping[str, Any]) -> Layout | tuple[FieldError, ...]:
    """The layout with absent fields at the framework's defaults, or every bad field.

    `dp` defaults to what the other degrees leave of the GPUs.
    """
    errors = tuple(
        FieldError(path=name, value=value, message=f"`{name}` {problem}")
        for name, value in given.items()
        if (problem := field_problem(name, value))
    )
    if errors:
        return errors
    tp, pp, cp = (given.get(name, 1) for name in ("tp", "pp", "cp"))
    dp = given.get("dp", max(1, request.cluster.world_size // (tp * pp * cp)))
    sharding = given.get("sharding", default_sharding(request, pp=pp))
    shard = hsdp_shard_group(request, tp=tp, cp=cp, dp=dp) if sharding == "hsdp" else dp
    defaults = Layout(
        tp=tp,
        pp=pp,
        cp=cp,
        dp=dp,
        dp_shard=shard,
        sharding=sharding,
        sequence_parallel=request.framework.sequence_parallel and tp > 1,
        precision=request.cluster.gpu.default_precision,
    )
    chosen = {name: value for name, value in given.items() if name != "stage_layers"}
    return replace(defaults, **chosen, stage_layers=tuple(given.get("stage_layers", ())))


NO_TIME = TimeSeconds(
    compute=0.0, tp=0.0, cp=0.0, ep=0.0, pp_bubble=0.0, pp_p2p=0.0, dp=0.0, optimizer=0.0
)
NO_MEMORY = MemoryBytes(
    parameters=0.0,
    gradients=0.0,
    optimizer=0.0,
    activations=0.0,
    logits=0.0,
    buffers=0.0,
    communicators=0.0,
    reserve=0.0,
)


def limit_bytes(request: PlanRequest) -> float:
    """Device memory a plan may use."""
    return request.cluster.gpu.memory_bytes * (1 - MEMORY_MARGIN)


def host_fits(request: PlanRequest, held: MemoryBytes) -> bool:
    """Whether the offloaded bytes fit the node's memory; true when that is not known."""
    host = request.cluster.host_memory_bytes_per_node
    return host == 0 or held.host <= host


def computable(request: PlanRequest, layout: Layout) -> bool:
    """Whether memory and time have a meaning: the profile knows the layout's kinds."""
    framework = request.framework
    return (
        layout.sharding in framework.states
        and layout.recompute in framework.kept
        and request.cluster.gpu.supports(layout.precision)
        and layout.precision in request.efficiency.gemm
        and (not layout.stage_layers or len(layout.stage_layers) == layout.pp)
    )


def estimate(request: PlanRequest, layout: Layout) -> Estimate:
    """Legality, memory and time of `layout`. Never raises on an illegal one.

    Where the framework or the GPU lacks what the layout names, memory and time are zero and the
    violations say why.
    """
    broken = violations(request, layout)
    known = computable(request, layout)
    held = memory(request, layout) if known else NO_MEMORY
    time = step_time(request, layout) if known else NO_TIME
    return judge(request, layout, broken=broken, held=held, time=time, known=known)


def judge(
    request: PlanRequest,
    layout: Layout,
    *,
    broken: tuple[Any, ...],
    held: MemoryBytes,
    time: TimeSeconds,
    known: bool,
) -> Estimate:
    """The estimate from its parts, with rates derived."""
    workload, gpu = request.workload, request.cluster.gpu
    microbatches = num_microbatches(request, layout)
    batch = microbatches * layout.microbatch_size * layout.dp
    tokens = batch * workload.sequence_length
    rate = tokens / time.total / layout.world_size if known else 0.0
    flop = rate * request.model.model_flop_per_token(workload.sequence_length)
    return Estimate(
        layout=layout,
        violations=broken,
        fits=known and held.total <= gpu.memory_bytes and host_fits(request, held),
        gpu_memory_bytes=gpu.memory_bytes,
        limit_bytes=limit_bytes(request),
        memory=held,
        time=time,
        num_microbatches=microbatches,
        global_batch_size=batch,
        tokens_per_second_per_gpu=rate,
        model_flop_per_second_per_gpu=flop,
        mfu=flop / gpu.peak_flop_per_second[gpu.default_precision],
        assumptions=request.assumptions,
    )
