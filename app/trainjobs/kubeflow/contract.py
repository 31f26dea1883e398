"""The variables through which a plan reaches a Kubeflow job, and how they are read back.

`spec.trainer.env` is the one place every launcher can take them from: Kubernetes expands
`$(TP_DEGREE)` in `command` and `args`. No value is ever empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.planner.hardware import PRECISIONS
from app.planner.intent import FieldError
from app.planner.layout import RECOMPUTES, SHARDINGS, Layout
from app.planner.request import Plan
from app.trainjobs.kubeflow.reading import positive_integer
from app.trainjobs.kubeflow.shown import Variable

ZERO_STAGES: Mapping[str, str] = {"0": "none", "1": "zero1", "2": "zero2", "3": "zero3"}
"""DeepSpeed's `zero_optimization.stage`. Source: DeepSpeed docs/_pages/config-json.md."""

TRUTHS: Mapping[str, bool] = {"true": True, "false": False}

Parse = Callable[[str], Any]
"""A variable's text -> the fact it states, `None` if it is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanVariable:
    """One variable: how a plan writes it, which fact it states, what it may hold.

    `fact` is a field of `Layout`, or one of `fsdp`, `replicate`, `accumulation`,
    `global_batch_size`, `sequence_length`; "" if nothing is read back from it.
    """

    name: str
    render: Callable[[Plan], str]
    fact: str
    parse: Parse
    accepts: str


def fsdp_degree(layout: Layout) -> int:
    """Data-parallel ranks that share one copy of the training state: 1 when nothing is sharded."""
    return 1 if layout.sharding == "none" else layout.dp_shard


def replicate_degree(layout: Layout) -> int:
    """Copies of the training state: with `fsdp_degree` it multiplies to `dp`."""
    return layout.dp // fsdp_degree(layout)


def _degree(name: str, fact: str) -> PlanVariable:
    return _integer(name, fact, lambda plan: getattr(plan.layout, fact))


def _integer(name: str, fact: str, value: Callable[[Plan], int]) -> PlanVariable:
    return PlanVariable(
        name=name,
        render=lambda plan: str(value(plan)),
        fact=fact,
        parse=positive_integer,
        accepts="a whole number of at least 1",
    )


def _choice(
    name: str, fact: str, choices: Mapping[str, Any], render: Callable[[Plan], str]
) -> PlanVariable:
    return PlanVariable(
        name=name,
        render=render,
        fact=fact,
        parse=choices.get,
        accepts="one of " + ", ".join(choices),
    )


def _itself(names: Iterable[str]) -> dict[str, str]:
    return {name: name for name in names}


def _lower(value: object) -> str:
    return str(value).lower()


def _shards_weights(plan: Plan) -> bool:
    """Whether weights are let go after a layer's forward pass: ZeRO-3, and not ZeRO-2."""
    return plan.layout.sharding in {"zero3", "hsdp"}


def _zero_stage(plan: Plan) -> str:
    stages = {sharding: stage for stage, sharding in ZERO_STAGES.items()}
    return stages.get(plan.layout.sharding, "3")


def _local_batch(plan: Plan) -> int:
    """Sequences of one data-parallel rank per forward-backward: a whole pipeline's worth."""
    steps = plan.estimate.num_microbatches if plan.layout.pp > 1 else 1
    return plan.layout.microbatch_size * steps


ALWAYS: tuple[PlanVariable, ...] = (
    _degree("TP_DEGREE", "tp"),
    _degree("PP_DEGREE", "pp"),
    _degree("CP_DEGREE", "cp"),
    _degree("EP_DEGREE", "ep"),
    _degree("DP_DEGREE", "dp"),
    _integer("FSDP_DEGREE", "fsdp", lambda plan: fsdp_degree(plan.layout)),
    _degree("MICRO_BATCH_SIZE", "microbatch_size"),
    _integer("GRAD_ACCUM_STEPS", "accumulation", lambda plan: plan.estimate.num_microbatches),
    _integer(
        "GLOBAL_BATCH_SIZE", "global_batch_size", lambda plan: plan.estimate.global_batch_size
    ),
    _choice(
        "ACTIVATION_CHECKPOINTING",
        "recompute",
        _itself(RECOMPUTES),
        lambda plan: plan.layout.recompute,
    ),
    _choice("PRECISION", "precision", _itself(PRECISIONS), lambda plan: plan.layout.precision),
)

ON_DEMAND: tuple[PlanVariable, ...] = (
    _integer("DP_REPLICATE_DEGREE", "replicate", lambda plan: replicate_degree(plan.layout)),
    _degree("VPP_DEGREE", "vpp"),
    _integer("LOCAL_BATCH_SIZE", "", _local_batch),
    _choice(
        "RESHARD_AFTER_FORWARD",
        "",
        _itself(("always", "never")),
        lambda plan: "always" if _shards_weights(plan) else "never",
    ),
    _choice("SHARDING", "sharding", _itself(SHARDINGS), lambda plan: plan.layout.sharding),
    _choice("ZERO_STAGE", "sharding", ZERO_STAGES, _zero_stage),
    _choice(
        "SEQUENCE_PARALLEL",
        "sequence_parallel",
        TRUTHS,
        lambda plan: _lower(plan.layout.sequence_parallel),
    ),
    _integer(
        "SEQUENCE_LENGTH",
        "sequence_length",
        lambda plan: plan.request.workload.sequence_length,
    ),
)
"""Written when the job's command mentions them, its launcher reads them, or the plan needs them."""

ACCELERATE: tuple[PlanVariable, ...] = (
    _degree("PARALLELISM_CONFIG_TP_SIZE", "tp"),
    _degree("PARALLELISM_CONFIG_CP_SIZE", "cp"),
    _integer("PARALLELISM_CONFIG_DP_SHARD_SIZE", "fsdp", lambda plan: fsdp_degree(plan.layout)),
    _integer(
        "PARALLELISM_CONFIG_DP_REPLICATE_SIZE",
        "replicate",
        lambda plan: replicate_degree(plan.layout),
    ),
    _choice("ACCELERATE_USE_PARALLELISM_CONFIG", "", TRUTHS, lambda _: "true"),
    _choice("ACCELERATE_USE_FSDP", "", TRUTHS, lambda plan: _lower(fsdp_degree(plan.layout) > 1)),
    _choice("FSDP_VERSION", "", _itself(("1", "2")), lambda _: "2"),
    _choice("FSDP_RESHARD_AFTER_FORWARD", "", TRUTHS, lambda plan: _lower(_shards_weights(plan))),
    _choice(
        "FSDP_ACTIVATION_CHECKPOINTING",
        "",
        TRUTHS,
        lambda plan: _lower(plan.layout.recompute != "none"),
    ),
    _integer(
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
        "accumulation",
        lambda plan: plan.estimate.num_microbatches,
    ),
    _choice(
        "ACCELERATE_MIXED_PRECISION",
        "precision",
        {"no": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"},
        lambda plan: "no" if plan.layout.precision == "fp32" else plan.layout.precision,
    ),
)
"""What Accelerate reads. Source: accelerate 1.15, parallelism_config.py and utils/launch.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """What starts the workers: its software profile, what it reads, what it cannot do.

    `framework` "" leaves the profile to the catalog's default.
    """

    framework: str = ""
    on_demand: frozenset[str] = frozenset()
    extra: tuple[PlanVariable, ...] = ()
    pins: Mapping[str, Any] = field(default_factory=dict)


LAUNCHERS: Mapping[str, Launcher] = {
    "torchrun": Launcher(framework="fsdp"),
    "torchtitan": Launcher(
        framework="fsdp", on_demand=frozenset({"LOCAL_BATCH_SIZE", "RESHARD_AFTER_FORWARD"})
    ),
    "megatron-lm": Launcher(framework="megatron"),
    "megatron-bridge": Launcher(framework="megatron"),
    "deepspeed": Launcher(framework="deepspeed", on_demand=frozenset({"ZERO_STAGE"})),
    "accelerate": Launcher(
        framework="fsdp",
        extra=ACCELERATE,
        pins={
            "pp": 1,
            "ep": 1,
        },
    ),
}
"""Accelerate's parallelism config has no pipeline and no expert axis."""

DEFAULT_LAUNCHER = Launcher()


def mentions(job_words: str, name: str) -> bool:
    """Whether a command line refers to variable `name`, as `$(NAME)`, `$NAME` or `${NAME}`."""
    return re.search(rf"\$[({{]?{name}\b", job_words) is not None


def plan_variables(
    plan: Plan, launcher: Launcher, job_words: str, *, present: Collection[str] = ()
) -> dict[str, str]:
    """Names and values that carry `plan` to a job started by `launcher`, in a fixed order.

    `present` are variables of ours the job has already: they are kept up to date.
    """
    chosen = [*ALWAYS]
    for variable in ON_DEMAND:
        asked = variable.name in present or is_asked(variable.name, launcher, job_words)
        if asked or _needed(variable.name, plan.layout):
            chosen.append(variable)
    chosen.extend(launcher.extra)
    return {variable.name: variable.render(plan) for variable in chosen}


def is_asked(name: str, launcher: Launcher, job_words: str) -> bool:
    """Whether the launcher or the command line wants an on-demand variable."""
    return name in launcher.on_demand or mentions(job_words, name)


def possible_names(launcher: Launcher, job_words: str) -> frozenset[str]:
    """Every variable a plan may need to write for such a job."""
    needed = {"DP_REPLICATE_DEGREE", "VPP_DEGREE"}
    asked = {each.name for each in ON_DEMAND if is_asked(each.name, launcher, job_words)}
    always = {each.name for each in (*ALWAYS, *launcher.extra)}
    return frozenset(always | needed | asked)


def _needed(name: str, layout: Layout) -> bool:
    if name == "DP_REPLICATE_DEGREE":
        return replicate_degree(layout) > 1
    return name == "VPP_DEGREE" and layout.vpp > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What a job's variables state: layout fields, workload facts, and where each stands."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    workload: Mapping[str, int] = field(default_factory=dict)
    accumulation: int | None = None
    paths: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[FieldError, ...] = ()


WORKLOAD_FACTS = ("global_batch_size", "sequence_length")


def stated_by(variables: Iterable[Variable], launcher: Launcher) -> Stated:
    """What `variables` state about the layout. A `valueFrom` states nothing we could read."""
    known = {each.name: each for each in (*ALWAYS, *ON_DEMAND, *launcher.extra) if each.fact}
    facts: dict[str, Any] = {}
    paths: dict[str, str] = {}
    errors: list[FieldError] = []
    for variable in variables:
        meaning = known.get(variable.name)
        if meaning is not None and variable.value is not None:
            _read(variable, meaning, facts, paths, errors)
    return _stated(facts, paths, errors)


def _read(
    variable: Variable,
    meaning: PlanVariable,
    facts: dict[str, Any],
    paths: dict[str, str],
    errors: list[FieldError],
) -> None:
    value = meaning.parse(variable.value or "")
    message = ""
    if value is None:
        message = f"`{variable.name}` must be {meaning.accepts}"
    elif facts.get(meaning.fact, value) != value:
        message = (
            f"`{variable.name}` disagrees with {paths[meaning.fact]}; keep one, or make them equal"
        )
    if message:
        errors.append(FieldError(path=variable.path, value=variable.value, message=message))
        return
    facts[meaning.fact] = value
    paths[meaning.fact] = variable.path


def _stated(facts: dict[str, Any], paths: dict[str, str], errors: list[FieldError]) -> Stated:
    workload = {name: facts.pop(name) for name in WORKLOAD_FACTS if name in facts}
    accumulation = facts.pop("accumulation", None)
    errors.extend(_data_axis(facts, paths))
    return Stated(
        fields=facts,
        workload=workload,
        accumulation=accumulation,
        paths=paths,
        errors=tuple(errors),
    )


def _data_axis(facts: dict[str, Any], paths: dict[str, str]) -> list[FieldError]:
    """Turns `fsdp` and `replicate` into fields of `Layout`, in place: dp = fsdp * replicate."""
    fsdp, replicate = facts.pop("fsdp", None), facts.pop("replicate", None)
    dp = facts.get("dp")
    if fsdp is None:
        return []
    path = paths["fsdp"]
    if dp is None and replicate is None:
        if fsdp > 1:
            facts["dp_shard"], paths["dp_shard"] = fsdp, path
        return []
    copies = replicate if replicate is not None else max(1, dp // fsdp)
    total = dp if dp is not None else fsdp * copies
    if fsdp * copies != total:
        message = f"FSDP ranks times replicas must equal the data-parallel degree {total}"
        return [FieldError(path=path, value=str(fsdp), message=message)]
    facts["dp"] = total
    paths.setdefault("dp", path)
    if copies > 1 and "sharding" not in facts:
        facts["sharding"] = "none" if fsdp == 1 else "hsdp"
        paths["sharding"] = path
    if copies > 1 and fsdp > 1:
        facts["dp_shard"], paths["dp_shard"] = fsdp, path
    return []
