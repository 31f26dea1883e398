"""What the numbers of a plan say to do next, and whether they agree with the rule of thumb."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from app.advisor.answers import Json
from app.advisor.launch.setup import Setup
from app.planner.explain import gib

LARGE_SHARE: Final = 0.10
"""Share of a step from which a cost deserves a tip."""
FULL_SHARE: Final = 0.90
ROOMY_SHARE: Final = 0.60
SMALL_TOKENS: Final = 4096
"""Tokens of a microbatch on one GPU below which kernels are too short to hide their launch."""

STRATEGIES: Final = (
    (1e9, "DDP"),
    (10e9, "FSDP or ZeRO-2"),
    (100e9, "ZeRO-3 or tensor parallel"),
    (float("inf"), "3D: tensor, pipeline and data parallel"),
)
"""The rule of thumb: up to so many parameters, so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A term of the step, what it is called, and what to do about it."""

    term: str
    binds: str
    advice: Callable[[Setup], str]


COSTS: Final = (
    Cost(
        term="tp",
        binds="tensor-parallel traffic",
        advice=lambda s: (
            f"tp {s.layout.tp} is what memory asked for; full recomputation, a longer "
            "data axis or more nodes would let it shrink; overlap it (async TP, userbuffers)"
        ),
    ),
    Cost(
        term="pp_bubble",
        binds="pipeline bubble",
        advice=lambda s: (
            f"{s.estimate.num_microbatches} microbatches fill {s.layout.pp} stages; "
            "a larger global batch or more virtual stages shrink the bubble"
        ),
    ),
    Cost(
        term="dp",
        binds="network of the data-parallel group",
        advice=lambda s: (
            "gradients or gathered weights outrun the network: a larger microbatch or "
            f"global batch, hsdp inside a node, or a faster fabric than {s.request.cluster.fabric}"
        ),
    ),
    Cost(
        term="cp",
        binds="context-parallel traffic",
        advice=lambda _: "keys and values travel between GPUs: keep cp inside the fast domain",
    ),
    Cost(
        term="ep",
        binds="expert all-to-all",
        advice=lambda s: (
            "overlap dispatch with compute"
            if s.layout.ep <= s.request.cluster.domain_size
            else "keep ep inside the fast domain, or overlap dispatch with compute"
        ),
    ),
    Cost(
        term="optimizer",
        binds="optimizer step",
        advice=lambda _: "shard the optimizer over more ranks, or take a larger global batch",
    ),
)


def tips(setup: Setup) -> list[Json]:
    """What binds, with the number behind it, the largest cost first."""
    time = setup.estimate.time
    found = [
        (getattr(time, cost.term) / time.total, cost)
        for cost in COSTS
        if getattr(time, cost.term) / time.total >= LARGE_SHARE
    ]
    found.sort(key=lambda pair: -pair[0])
    said = [_tip(cost.binds, share, cost.advice(setup)) for share, cost in found]
    if not found:
        said.append(
            _tip(
                "compute",
                time.compute / time.total,
                "nothing but compute takes a tenth of the step; faster kernels, a narrower "
                "precision or less recomputation are what is left",
            )
        )
    return [
        *said,
        *_memory(setup),
        *_short_kernels(setup),
        *_recompute(setup),
        *_precision(setup),
        *_mfu(setup),
    ]


def _tip(binds: str, share: float | None, advice: str) -> Json:
    return {"binds": binds, "share": share, "advice": advice}


def _memory(setup: Setup) -> list[Json]:
    estimate = setup.estimate
    share = estimate.memory.total / estimate.gpu_memory_bytes
    free = gib(estimate.limit_bytes - estimate.memory.total)
    if share >= FULL_SHARE:
        advice = (
            f"{free} GiB are left below the limit: set PYTORCH_CUDA_ALLOC_CONF="
            "expandable_segments:True, and keep full recomputation at hand"
        )
        return [_tip("memory", share, advice)]
    if share < ROOMY_SHARE:
        advice = f"{free} GiB stay free: a longer sequence or fewer GPUs would fit too"
        return [_tip("memory is not what binds", share, advice)]
    return []


def _short_kernels(setup: Setup) -> list[Json]:
    layout, tokens = setup.layout, setup.workload.sequence_length
    here = tokens * layout.microbatch_size // (layout.cp * layout.tp)
    if here >= SMALL_TOKENS:
        return []
    advice = (
        f"{here} tokens of a microbatch are each GPU's share: compile or use CUDA graphs, "
        "so that short kernels do not wait for their launch"
    )
    return [_tip("kernel launches", None, advice)]


def _recompute(setup: Setup) -> list[Json]:
    if setup.layout.recompute != "full":
        return []
    fraction = setup.request.framework.recompute_flop_fraction.get("full", 0.0)
    advice = (
        f"full recomputation computes {fraction:.0%} of the forward pass again: memory buys it; "
        "more sharding or offload would let it go"
    )
    return [_tip("recomputation", None, advice)]


def _precision(setup: Setup) -> list[Json]:
    gpu = setup.request.cluster.gpu
    if setup.layout.precision in {"bf16", "fp16"} and gpu.supports("fp8"):
        advice = (
            f"{gpu.name} computes in fp8: ask for a plan with fp8 allowed (--precision bf16,fp8) "
            "to see what it gains here; loss curves must be watched"
        )
        return [_tip("precision", None, advice)]
    return []


def _mfu(setup: Setup) -> list[Json]:
    mfu = setup.estimate.mfu
    if setup.model.moe is not None or mfu >= 0.3:  # noqa: PLR2004 - below published runs of dense models
        return []
    advice = f"{mfu:.0%} of the peak is low for a dense model; compare other node counts (cost)"
    return [_tip("use of the GPU", mfu, advice)]


def rule_of_thumb(params: float) -> str:
    """What the size of a model calls for, without looking at anything else."""
    return next(words for limit, words in STRATEGIES if params < limit)


def chosen_strategy(setup: Setup) -> str:
    """The layout in the same words."""
    layout = setup.layout
    shards = {
        "none": "DDP",
        "zero1": "DDP with a sharded optimizer (ZeRO-1)",
        "zero2": "FSDP or ZeRO-2",
        "zero3": "ZeRO-3 (FSDP)",
        "hsdp": "HSDP",
    }[layout.sharding]
    axes = {"tensor": layout.tp, "pipeline": layout.pp, "context": layout.cp, "expert": layout.ep}
    used = [name for name, size in axes.items() if size > 1]
    return f"{shards}, {' and '.join(used)} parallel" if used else shards


def _agrees(setup: Setup, rule: str) -> bool:
    layout = setup.layout
    plain = layout.tp == layout.pp == layout.cp == layout.ep == 1
    return {
        "DDP": plain and layout.sharding in {"none", "zero1"},
        "FSDP or ZeRO-2": plain and layout.sharding != "none",
        "ZeRO-3 or tensor parallel": layout.pp == 1
        and (layout.tp > 1 or layout.sharding in {"zero3", "hsdp"}),
    }.get(rule, layout.tp > 1 and layout.pp > 1)


def strategy(setup: Setup) -> Json:
    """The rule of thumb beside the layout, and the reason where they differ."""
    rule = rule_of_thumb(setup.model.params)
    agrees = _agrees(setup, rule)
    return {
        "rule_of_thumb": rule,
        "chosen": chosen_strategy(setup),
        "agrees": agrees,
        "reason": "" if agrees else _reason(setup, rule),
    }


def _reason(setup: Setup, rule: str) -> str:
    estimate, layout, cluster = setup.estimate, setup.layout, setup.request.cluster
    held = f"{gib(estimate.memory.total)} of {gib(estimate.gpu_memory_bytes)} GiB"
    where = f"{cluster.world_size} x {cluster.gpu.name}"
    if rule.startswith("3D"):
        return (
            f"on {where} this holds {held} without a third axis, which would add traffic or a "
            "bubble"
        )
    if layout.cp > 1:
        return (
            f"sequences of {setup.workload.sequence_length} tokens are split over cp {layout.cp}, "
            f"so that it holds {held}"
        )
    if layout.tp > 1 or layout.pp > 1:
        return (
            f"the rule looks at parameters alone; on {where} with sequences of "
            f"{setup.workload.sequence_length} tokens, activations and batch decide ({held})"
        )
    return f"on {where} the weights fit ({held}), and less traffic is faster"
