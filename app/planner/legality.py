"""The rules that make a layout legal: one named function each, and the framework it holds for.

`violations` gives every rule a layout breaks. `app.planner.space` generates only layouts that obey
them; property tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import lcm
from typing import Final

from app.planner.framework import FrameworkProfile
from app.planner.layout import Layout
from app.planner.request import PlanRequest, Violation
from app.planner.wording import counted

FP8_TOKEN_MULTIPLE: Final = 16
NARROW_PRECISIONS: Final = frozenset({"fp8", "mxfp8", "nvfp4"})


def padded_vocabulary(vocab_size: int, tp: int, multiple: int) -> int:
    """Vocabulary entries after padding to a multiple of `multiple * tp`; 0 stays 0.

    Source: Megatron-LM `--make-vocab-size-divisible-by` (128).
    """
    unit = multiple * tp
    return -(-vocab_size // unit) * unit


def sequence_multiple(layout: Layout) -> int:
    """What the sequence length must be a multiple of.

    Context parallelism gives each rank two mirrored chunks (2 cp); sequence parallelism cuts each
    rank's part by tp: cp * lcm(2, tp) with both.
    """
    per_rank = layout.tp if layout.sequence_parallel else 1
    return layout.cp * lcm(2, per_rank) if layout.cp > 1 else per_rank


def split_layers(num_layers: int, pp: int, *, uneven: bool) -> tuple[int, ...]:
    """Layers of each pipeline stage, or `()` when the framework has no such split.

    Even when it divides. Otherwise, where the framework allows it, the embedding and the head count
    as one layer each: BLOOM's 70 layers over 12 stages become 5, ten times 6, 5. A remainder goes
    to the middle stages, which hold neither.
    """
    if pp > num_layers:
        return ()
    if num_layers % pp == 0:
        return (num_layers // pp,) * pp
    if not uneven:
        return ()
    low, extra = divmod(num_layers + 2, pp)
    stages = [low] * pp
    stages[0] -= 1
    stages[-1] -= 1
    middle_first = [*range(1, pp - 1), 0, pp - 1]
    for index in middle_first[:extra]:
        stages[index] += 1
    return tuple(stages) if min(stages) > 0 else ()


def interleaves(num_layers: int, pp: int, vpp: int, *, uneven: bool) -> bool:
    """Whether the layers make pp * vpp chunks that are as good as equal.

    Where stages may be uneven, the embedding and the head may count as one layer each, as in
    Megatron-Core's `account_for_embedding_in_pipeline_split`: Llama 3's 126 layers make 128 chunks.
    The last may be short of one more, where DeepSeek-V3's 61 layers leave the place of its MTP
    layer. Source: the pipeline layouts of Megatron-Bridge's recipes for both.
    """
    chunks = pp * vpp
    if num_layers % chunks == 0:
        return True
    short = -(num_layers + 2) % chunks
    return uneven and short <= 1 and (num_layers + 2 + short) // chunks > short


def stage_layers(request: PlanRequest, layout: Layout) -> tuple[int, ...]:
    """Layers of each stage under `layout`; `()` if it cannot be split so."""
    if layout.stage_layers:
        return layout.stage_layers
    layers, uneven = request.model.num_layers, request.framework.uneven_pipeline
    if layout.vpp > 1:
        uneven = uneven and interleaves(layers, layout.pp, layout.vpp, uneven=True)
    return split_layers(layers, layout.pp, uneven=uneven)


def uneven_stages(request: PlanRequest, pp: int) -> tuple[int, ...]:
    """The split over `pp` stages where it is not even, else `()`: what a plan has to say."""
    split = split_layers(request.model.num_layers, pp, uneven=request.framework.uneven_pipeline)
    return split if len(set(split)) > 1 else ()


def stages_or_ceiling(request: PlanRequest, layout: Layout) -> tuple[int, ...]:
    """Layers of each stage; for an illegal split, every stage as full as the fullest must be."""
    split = stage_layers(request, layout)
    return split or (-(-request.model.num_layers // layout.pp),) * layout.pp


def num_microbatches(request: PlanRequest, layout: Layout) -> int:
    """Microbatches each pipeline runs in one step, at least 1."""
    per_replica = request.workload.global_batch_size // max(1, layout.dp)
    return max(1, per_replica // layout.microbatch_size)


Check = Callable[[PlanRequest, Layout], str]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: the layout field it is about, and a check that answers "" or what is wrong."""

    name: str
    field: str
    check: Check


def _degrees(request: PlanRequest, layout: Layout) -> str:
    world = request.cluster.world_size
    if layout.world_size == world:
        return ""
    rest = layout.tp * layout.pp * layout.cp
    fix = f"; `dp` must be {world // rest}" if world % rest == 0 else ""
    return f"tp * pp * cp * dp is {layout.world_size} but the job has {counted(world, 'GPU')}{fix}"


def _tp_power_of_two(_: PlanRequest, layout: Layout) -> str:
    if layout.tp & (layout.tp - 1) == 0:
        return ""
    return f"tp {layout.tp} must be a power of two"


def _tp_domain(request: PlanRequest, layout: Layout) -> str:
    domain = request.cluster.domain_size
    if layout.tp <= domain:
        return ""
    return (
        f"tp {layout.tp} exceeds the {counted(domain, 'GPU')} that share a fast link; "
        f"`tp` must be less than or equal to {domain}"
    )


def _heads(request: PlanRequest, layout: Layout) -> str:
    heads = request.model.num_heads
    if heads % layout.tp == 0:
        return ""
    return f"{heads} attention heads cannot be split over tp {layout.tp}; `tp` must divide them"


def _kv_heads(request: PlanRequest, layout: Layout) -> str:
    model = request.model
    if model.attention == "mla" or model.num_kv_heads % layout.tp == 0:
        return ""
    return (
        f"{model.num_kv_heads} key/value heads cannot be split over tp {layout.tp}; "
        "`tp` must divide them (no framework here replicates them)"
    )


def _pipeline_split(request: PlanRequest, layout: Layout) -> str:
    layers = request.model.num_layers
    stages = layout.stage_layers
    if stages:
        if len(stages) != layout.pp or sum(stages) != layers or min(stages) < 1:
            return f"`stage_layers` must list {layout.pp} positive counts that add up to {layers}"
        if not request.framework.uneven_pipeline and len(set(stages)) > 1:
            return f"{request.framework.name} has no uneven pipeline split"
        return ""
    split = stage_layers(request, layout)
    unsaid = layout.vpp == 1 and request.framework.explicit_stages
    if split and unsaid and len(set(split)) > 1:
        return (
            f"{layers} layers do not divide over pp {layout.pp} and {request.framework.name} wants "
            f"the split: `stage_layers` must list it, such as {', '.join(map(str, split))}"
        )
    if split:
        return ""
    if layout.vpp > 1:
        return (
            f"{layers} layers cannot be split into {layout.pp} stages of {layout.vpp} chunks; "
            "pp * vpp must divide the layers"
        )
    return f"{layers} layers cannot be split over pp {layout.pp}; `pp` must divide the layers"


def _interleaving(request: PlanRequest, layout: Layout) -> str:
    if layout.vpp == 1:
        return ""
    if layout.pp == 1:
        return f"vpp {layout.vpp} needs a pipeline; `pp` must be greater than 1"
    layers, uneven = request.model.num_layers, request.framework.uneven_pipeline
    if layout.stage_layers and all(each % layout.vpp == 0 for each in layout.stage_layers):
        return ""
    if not interleaves(layers, layout.pp, layout.vpp, uneven=uneven):
        return (
            f"{layers} layers cannot be split into {layout.pp} * {layout.vpp} "
            "chunks; pp * vpp must divide the layers"
        )
    return ""


def _fills_pipeline(request: PlanRequest, layout: Layout) -> str:
    microbatches = num_microbatches(request, layout)
    if microbatches < layout.pp:
        return (
            f"{microbatches} microbatches cannot fill {layout.pp} pipeline stages; "
            "a larger global batch or a smaller `pp`, `dp` or `microbatch_size` would"
        )
    if layout.vpp > 1 and microbatches % layout.pp:
        return (
            f"interleaving needs the {microbatches} microbatches to be a multiple of pp {layout.pp}"
        )
    return ""


def _sequence(request: PlanRequest, layout: Layout) -> str:
    length = request.workload.sequence_length
    unit = sequence_multiple(layout)
    if length % unit == 0:
        return ""
    fix = -(-length // unit) * unit
    return f"sequence length {length} must be a multiple of {unit}; the next is {fix}"


def _experts(request: PlanRequest, layout: Layout) -> str:
    moe = request.model.moe
    if layout.ep == 1:
        return ""
    if moe is None:
        return f"ep {layout.ep} needs routed experts and {request.model.name} has none"
    if moe.num_experts % layout.ep:
        return f"{moe.num_experts} experts cannot be split over ep {layout.ep}"
    group = layout.tp * layout.cp * layout.dp
    if group % layout.ep:
        return f"ep {layout.ep} must divide the tp * cp * dp = {group} ranks of a pipeline stage"
    return ""


def _moe_sequence_parallel(request: PlanRequest, layout: Layout) -> str:
    if request.model.moe is None or layout.tp == 1 or layout.sequence_parallel:
        return ""
    return "an MoE model with tp above 1 needs sequence parallelism"


def _global_batch(request: PlanRequest, layout: Layout) -> str:
    batch = request.workload.global_batch_size
    unit = layout.microbatch_size * layout.dp
    if batch % unit == 0:
        return ""
    around = sorted({max(1, batch // unit) * unit, -(-batch // unit) * unit})
    nearest = f"are {around[0]} and {around[1]}" if len(around) > 1 else f"is {unit}"
    return (
        f"global batch {batch} must be a multiple of microbatch_size * dp = {unit}; "
        f"the nearest {nearest}"
    )


def _gpu_precision(request: PlanRequest, layout: Layout) -> str:
    gpu = request.cluster.gpu
    if gpu.supports(layout.precision):
        return ""
    able = ", ".join(gpu.peak_flop_per_second)
    return f"{gpu.name} cannot train in {layout.precision}; it can in {able}"


def _framework_precision(request: PlanRequest, layout: Layout) -> str:
    framework = request.framework
    if layout.precision in framework.precisions:
        return ""
    return f"{framework.name} cannot train in {layout.precision}"


def _narrow_alignment(request: PlanRequest, layout: Layout) -> str:
    if layout.precision not in NARROW_PRECISIONS:
        return ""
    tokens = request.workload.sequence_length // layout.cp * layout.microbatch_size
    if tokens % FP8_TOKEN_MULTIPLE:
        return (
            f"{layout.precision} needs the {tokens} tokens of a rank to be a multiple of "
            f"{FP8_TOKEN_MULTIPLE}"
        )
    return ""


def _exclusive(request: PlanRequest, layout: Layout) -> str:
    if request.cluster.exclusive or layout.world_size == 1:
        return ""
    return "MIG slices and time-shared GPUs cannot be joined by NCCL; use one GPU, or whole ones"


def _supported(flag: str, field: str, words: str) -> Rule:
    def check(request: PlanRequest, layout: Layout) -> str:
        if getattr(layout, field) == 1 or getattr(request.framework, flag):
            return ""
        return f"{request.framework.name} has no {words}; `{field}` must be 1"

    return Rule(f"framework has {words}", field, check)


def _sharding(request: PlanRequest, layout: Layout) -> str:
    framework = request.framework
    if layout.sharding not in framework.states:
        able = ", ".join(framework.states)
        return f"{framework.name} has no sharding {layout.sharding}; it has {able}"
    if layout.pp > 1 and layout.sharding not in framework.pipeline_shardings:
        able = ", ".join(framework.pipeline_shardings) or "none"
        return (
            f"{framework.name} cannot combine sharding {layout.sharding} with a pipeline; "
            f"with one it has {able}"
        )
    return ""


def _shard_group(_: PlanRequest, layout: Layout) -> str:
    if layout.dp_shard < 1 or layout.dp % layout.dp_shard:
        return f"dp_shard {layout.dp_shard} must divide dp {layout.dp}"
    if layout.sharding != "hsdp" and layout.dp_shard != layout.dp:
        return f"dp_shard must equal dp {layout.dp} unless `sharding` is hsdp"
    return ""


def _recompute(request: PlanRequest, layout: Layout) -> str:
    framework = request.framework
    if layout.recompute in framework.kept:
        return ""
    return f"{framework.name} has no recomputation {layout.recompute}"


def _offload(request: PlanRequest, layout: Layout) -> str:
    offload = request.workload.offload
    if offload in request.framework.offloads:
        return ""
    able = ", ".join(request.framework.offloads)
    return (
        f"{request.framework.name} has no offload of {offload} (layout sharding "
        f"{layout.sharding}); it has {able}"
    )


RULES: tuple[Rule, ...] = (
    Rule("degrees multiply to the GPUs", "dp", _degrees),
    Rule("tp is a power of two", "tp", _tp_power_of_two),
    Rule("tp stays in the NVLink domain", "tp", _tp_domain),
    Rule("heads % tp == 0", "tp", _heads),
    Rule("kv_heads % tp == 0", "tp", _kv_heads),
    Rule("layers % pp == 0", "pp", _pipeline_split),
    Rule("layers % (pp * vpp) == 0", "vpp", _interleaving),
    Rule("microbatches fill the pipeline", "pp", _fills_pipeline),
    Rule("sequence divides", "cp", _sequence),
    Rule("experts % ep == 0", "ep", _experts),
    Rule("moe with tp needs sequence parallelism", "sequence_parallel", _moe_sequence_parallel),
    Rule("global_batch % (microbatch * dp) == 0", "microbatch_size", _global_batch),
    Rule("the GPU has the precision", "precision", _gpu_precision),
    Rule("the framework has the precision", "precision", _framework_precision),
    Rule("narrow precision needs aligned tokens", "precision", _narrow_alignment),
    Rule("shared GPUs stand alone", "dp", _exclusive),
    _supported("supports_tp", "tp", "tensor parallelism"),
    _supported("supports_pp", "pp", "pipeline parallelism"),
    _supported("supports_vpp", "vpp", "interleaved schedule"),
    _supported("supports_cp", "cp", "context parallelism"),
    _supported("supports_ep", "ep", "expert parallelism"),
    Rule("the framework has the sharding", "sharding", _sharding),
    Rule("dp_shard divides dp", "dp_shard", _shard_group),
    Rule("the framework has the recomputation", "recompute", _recompute),
    Rule("the framework has the offload", "offload", _offload),
)


def violations(request: PlanRequest, layout: Layout) -> tuple[Violation, ...]:
    """Every rule `layout` breaks, in the order of `RULES`."""
    broken = []
    for rule in RULES:
        message = rule.check(request, layout)
        if message:
            broken.append(Violation(rule=rule.name, field=rule.field, message=message))
    return tuple(broken)


def usable_shardings(framework: FrameworkProfile, *, pp: int) -> tuple[str, ...]:
    """Shardings the framework offers with a pipeline of `pp` stages."""
    return tuple(framework.states) if pp == 1 else framework.pipeline_shardings
