"""Judging the layout a job states itself: is it legal, does it fit, is it worth a warning?

A job says less than the planner needs to know. What it leaves open is never held against it: a
rule that only breaks under an assumed number is a warning, and a job is over the card's memory only
if it is so under every reading of what it does not say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final, Protocol

from app.planner.estimate import MAX_STAGES, complete, estimate
from app.planner.explain import TIME_WORDS, gib, largest_terms
from app.planner.intent import FieldError, TrainIntent, Unresolved
from app.planner.legality import uneven_stages, violations
from app.planner.request import Estimate, PlanRequest, Violation
from app.trainjobs import labels
from app.trainjobs.adapter import DeclaredLayout

Resolve = Callable[[TrainIntent], PlanRequest | Unresolved]

OPEN: Final = ("recompute", "sharding")
"""Layout fields a job may leave open, in the words of its own options."""
COMMUNICATION_BOUND: Final = 0.5
DEGREES_RULE: Final = "degrees multiply to the GPUs"
ASSUMED_BY_RULE: Final[Mapping[str, str]] = {
    "microbatches fill the pipeline": "global_batch_size",
    "global_batch % (microbatch * dp) == 0": "global_batch_size",
    "sequence divides": "sequence_length",
    "narrow precision needs aligned tokens": "sequence_length",
    "layers % pp == 0": "framework",
    "layers % (pp * vpp) == 0": "framework",
    "moe with tp needs sequence parallelism": "framework",
    "the framework has the offload": "framework",
    "the framework has the precision": "framework",
    "the framework has the recomputation": "framework",
    "the framework has the sharding": "framework",
    "framework has context parallelism": "framework",
    "framework has expert parallelism": "framework",
    "framework has interleaved schedule": "framework",
    "framework has pipeline parallelism": "framework",
    "framework has tensor parallelism": "framework",
}
"""Rules that hold only under a fact the job may have left to us, and the intent field it is in."""

RULES_OF_THE_GPU: Final = frozenset(
    {
        "tp is a power of two",
        "tp stays in the NVLink domain",
        "the GPU has the precision",
        "shared GPUs stand alone",
    }
)
"""Rules that hold for every model."""
ANY_MODEL: Final[Mapping[str, int]] = {
    "hidden_size": 4096,
    "ffn_hidden_size": 16384,
    "num_layers": 32,
    "num_heads": 32,
    "num_kv_heads": 32,
    "vocab_size": 32000,
}
"""A model to ask the rules of the GPU with; nothing of it reaches an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is wrong with a stated layout, and what should be known about it."""

    errors: tuple[FieldError, ...] = ()
    warnings: tuple[str, ...] = ()


class Judge(Protocol):
    """`judged` with its `resolve`, or what remembers its verdicts."""

    def __call__(self, declared: DeclaredLayout, *, known: Collection[str]) -> Verdict:
        """The verdict on a stated layout. `known` are paths that have an error already."""


def judged(declared: DeclaredLayout, resolve: Resolve, *, known: Collection[str]) -> Verdict:
    """The verdict on a stated layout. `known` are paths that have an error already."""
    request = resolve(declared.intent)
    if isinstance(request, Unresolved):
        return Verdict(
            errors=tuple(errors_of_the_gpu(declared, resolve)),
            warnings=tuple(f"not checked: {each.path}: {each.message}" for each in request.errors),
        )
    layout = complete(request, with_stages(request, declared.fields))
    if isinstance(layout, tuple):
        placed = (replace(each, path=declared.paths.get(each.path, each.path)) for each in layout)
        return Verdict(errors=tuple(each for each in placed if each.path not in known))
    stated = estimate(request, layout)
    errors = [*legality_errors(stated, declared, known=known)]
    warnings = [*legality_warnings(stated, declared)]
    readable = [each for each in readings(request, declared) if each.memory.total > 0]
    if readable and not any(each.rule == DEGREES_RULE for each in stated.violations):
        leanest = min(readable, key=lambda each: each.memory.total)
        errors.extend(memory_errors(leanest, declared, request))
        warnings.extend(memory_warnings(readable, leanest))
        warnings.extend(speed_warnings(readable[0]))
    return Verdict(errors=tuple(errors), warnings=tuple(warnings))


def errors_of_the_gpu(declared: DeclaredLayout, resolve: Resolve) -> Iterator[FieldError]:
    """What the GPU alone forbids, for a model nobody knows; nothing if the GPU is unknown too."""
    request = resolve(replace(declared.intent, model=None, hf_config=None, architecture=ANY_MODEL))
    if isinstance(request, Unresolved):
        return
    layout = complete(request, declared.fields)
    if isinstance(layout, tuple):
        return
    for each in violations(request, layout):
        if each.rule in RULES_OF_THE_GPU:
            yield error_of(each, declared)


def error_of(violation: Violation, declared: DeclaredLayout) -> FieldError:
    """The broken rule at the place where the job's author can mend it."""
    field = "tp" if violation.rule == DEGREES_RULE else violation.field
    return FieldError(
        path=declared.paths.get(field, field),
        value=declared.fields.get(field, field),
        message=violation.message,
    )


def is_assumed(violation: Violation, declared: DeclaredLayout) -> bool:
    """Whether the rule breaks only under a fact the job does not state."""
    fact = ASSUMED_BY_RULE.get(violation.rule)
    return fact is not None and getattr(declared.intent, fact) is None


def legality_errors(
    stated: Estimate, declared: DeclaredLayout, *, known: Collection[str]
) -> Iterator[FieldError]:
    """The rules the layout breaks whatever is assumed."""
    for each in stated.violations:
        if is_assumed(each, declared):
            continue
        error = error_of(each, declared)
        if each.rule != DEGREES_RULE or error.path not in known:
            yield error


def legality_warnings(stated: Estimate, declared: DeclaredLayout) -> Iterator[str]:
    """The rules the layout breaks under what we assume."""
    for each in stated.violations:
        if is_assumed(each, declared):
            path = declared.paths.get(each.field, each.field)
            fact = ASSUMED_BY_RULE[each.rule].replace("_", " ")
            yield f"{path}: {each.message} ({fact} assumed)"


def readings(request: PlanRequest, declared: DeclaredLayout) -> Iterator[Estimate]:
    """Estimates under every recomputation and sharding the job may mean, the default first."""
    first = complete(request, usable(request, declared.fields))
    assert not isinstance(first, tuple)  # noqa: S101 - the same fields were completed before
    choices: dict[str, tuple[str, ...]] = {
        name: (getattr(first, name), *(each for each in all_kinds if each != getattr(first, name)))
        for name, all_kinds in (
            ("recompute", tuple(request.framework.kept)),
            ("sharding", tuple(request.framework.states)),
        )
        if name not in declared.fields
    }
    for values in product(*choices.values()):
        fields = {**usable(request, declared.fields), **dict(zip(choices, values, strict=True))}
        layout = complete(request, fields)
        if not isinstance(layout, tuple):
            yield estimate(request, layout)


def usable(request: PlanRequest, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields without a precision the GPU lacks: that is an error of its own."""
    able = request.cluster.gpu.supports(fields.get("precision", ""))
    given = with_stages(request, fields)
    return {name: value for name, value in given.items() if name != "precision" or able}


def with_stages(request: PlanRequest, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with an uneven split of the layers spelled, which a job has no field for."""
    pp = fields.get("pp", 1)
    countable = isinstance(pp, int) and not isinstance(pp, bool) and 0 < pp <= MAX_STAGES
    spelled = {"stage_layers": uneven_stages(request, pp)} if countable else {}
    return {**spelled, **fields}


def assumed_training(request: PlanRequest) -> Iterator[str]:
    """What a job that says nothing else is counted as, and how it says otherwise."""
    work = request.workload
    if work.task == "pretrain" and work.optimizer == "adamw":
        yield f"assuming full training with AdamW; annotation `{labels.TASK}: lora` says otherwise"


def usable_words(judged: Estimate) -> str:
    """The memory that is counted against: what a plan may use, and what of the card stays free."""
    limit, card = judged.limit_bytes, judged.gpu_memory_bytes
    return f"{gib(limit)} GiB usable ({gib(card)} less the {1 - limit / card:.0%} that stay free)"


def memory_errors(
    leanest: Estimate, declared: DeclaredLayout, request: PlanRequest
) -> Iterator[FieldError]:
    """The job is over the card under every reading: what a plan leaves free, a job may use."""
    total = leanest.memory.total
    if total <= leanest.gpu_memory_bytes:
        return
    said = (
        f"one GPU would hold {gib(total)} GiB of the {usable_words(leanest)}, "
        f"{gib(total - leanest.limit_bytes)} GiB too much with recompute "
        f"{leanest.layout.recompute} and sharding {leanest.layout.sharding}; use more GPUs, a "
        f"higher degree, a smaller microbatch"
        f"{'' if leanest.layout.recompute == 'full' else ' or recomputation'}"
    )
    yield FieldError(
        path=declared.paths.get("tp", "tp"),
        value=declared.fields.get("tp", ""),
        message="; ".join((said, *assumed_training(request))),
    )


def memory_warnings(readable: Sequence[Estimate], leanest: Estimate) -> Iterator[str]:
    """The job fits, but not in every reading or not in what a plan may use. `readable[0]` is it."""
    plain = readable[0]
    total, card = plain.memory.total, plain.gpu_memory_bytes
    if leanest.memory.total > card or total <= plain.limit_bytes:
        return
    needs = f"needs {gib(total)} of the {usable_words(plain)} per GPU"
    fitting = [
        each
        for each in readable
        if each.memory.total <= each.limit_bytes and len(each.violations) <= len(plain.violations)
    ]
    if not fitting:
        yield f"{needs}, at least {gib(leanest.memory.total)}: it may run out of memory"
        return
    least = min(fitting, key=lambda each: (len(changed(plain, each)), each.time.total))
    change = " and ".join(changed(plain, least))
    yield f"{needs} unless it runs with {change} ({gib(least.memory.total)} GiB)"


def changed(plain: Estimate, other: Estimate) -> list[str]:
    """What the other reading runs otherwise."""
    return [
        f"{name} {getattr(other.layout, name)}"
        for name in OPEN
        if getattr(other.layout, name) != getattr(plain.layout, name)
    ]


def speed_warnings(plain: Estimate) -> Iterator[str]:
    """The job spends most of its step on the network."""
    time = plain.time
    sent = time.tp + time.cp + time.ep + time.pp_p2p + time.dp
    if not plain.violations and sent > COMMUNICATION_BOUND * time.total:
        costs = [pair for pair in largest_terms(time, TIME_WORDS) if pair[0] != "compute"]
        yield f"communication-bound: {sent / time.total:.0%} of a step, most of it {costs[0][0]}"
