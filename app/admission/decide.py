"""`Review` -> `Decision`: what `/mutate` writes and what `/validate` refuses. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from app.admission.decision import Decision
from app.admission.judge import Judge, Resolve, assumed_training
from app.admission.review import Review, deciding, whole
from app.planner.explain import headline
from app.planner.hardware import Gpu
from app.planner.intent import FieldError, Unresolved
from app.planner.refuse import OFFLOAD_REMEDY, OPTIMIZER_REMEDY
from app.planner.request import NoFeasiblePlan, Plan, Planner, Stop, never
from app.trainjobs import labels
from app.trainjobs.adapter import (
    Adapter,
    CollectiveContext,
    DeclaredLayout,
    Defaults,
    Environment,
    JobReview,
    Keeps,
    Malformed,
    Operation,
    Skip,
    Undecidable,
    WantsPlan,
)
from app.trainjobs.document import value_at

__all__ = ["Decision", "Deps", "dispatch_table", "mutate", "validate"]

FALLBACK_PRECISION: Final = "bf16"
SHOWN_CHARACTERS: Final = 40
SAID_BY: Final[Mapping[str, str]] = {
    OFFLOAD_REMEDY: f"{labels.OFFLOAD}: optimizer",
    OPTIMIZER_REMEDY: f"{labels.OPTIMIZER}: adamw_8bit",
}
"""Remedies a job asks for by an annotation, and the annotation."""

GroupVersionResource = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deps:
    """What deciding needs of the rest, as functions: the catalog, the planner, the rules.

    `gpu` answers the GPU type that node labels name, `None` if they name none we know.
    `default_profile` and `operator_values` are the operator's word on the network.
    """

    adapters: Mapping[GroupVersionResource, Adapter]
    resolve: Resolve
    judge: Judge
    plan: Planner
    environment: Callable[[CollectiveContext, Plan | None], Environment]
    gpu: Callable[[Mapping[str, str]], Gpu | None]
    excluded_namespaces: frozenset[str] = frozenset()
    default_profile: str = ""
    operator_values: Mapping[str, str] = field(default_factory=dict)


def dispatch_table(*adapters: Adapter) -> dict[GroupVersionResource, Adapter]:
    """Adapters by the resource they serve."""
    return {(each.group, each.version, each.resource): each for each in adapters}


def adapter_for(review: Review, deps: Deps) -> Adapter | None:
    """The adapter of the review's resource, if its kind agrees."""
    found = deps.adapters.get((review.group, review.version, review.resource))
    return found if found is not None and found.kind == review.kind else None


def told_apart(review: Review, deps: Deps) -> bytes:
    """All of a review that its decision may depend on, the job as its adapter reads it."""
    adapter = adapter_for(review, deps)
    return deciding(review, whole if adapter is None else adapter.shown)


def not_ours(review: Review, deps: Deps) -> str:
    """Why the review is none of our business, "" if it may be."""
    if adapter_for(review, deps) is None:
        return "not-served"
    if review.namespace in deps.excluded_namespaces:
        return "namespace-excluded"
    return ""


def mutate(review: Review, deps: Deps, *, stop: Stop = never) -> Decision:
    """Defaults, plan and environment of a job that is being created; of one that exists, no loss.

    Raises `OutOfTime` when `stop` was true before there was a plan.
    """
    adapter = adapter_for(review, deps)
    skipped = not_ours(review, deps)
    if skipped or adapter is None:
        return Decision(outcome="skipped", reason=skipped)
    match adapter.wish(review.for_adapter):
        case Skip(reason=reason, warnings=warnings):
            return Decision(outcome="skipped", reason=reason, warnings=warnings)
        case Undecidable(warnings=warnings):
            return Decision(outcome="unchanged", reason="undecidable", warnings=warnings)
        case Malformed(errors=errors):
            return denied("invalid", errors)
        case Keeps(operations=operations, warnings=warnings):
            return written(operations, warnings=warnings)
        case Defaults():
            return with_defaults(review, adapter, deps)
        case WantsPlan(intent=intent, warnings=told):
            request = deps.resolve(intent)
            if isinstance(request, Unresolved):
                errors = (*request.errors, *adapter.field_errors(review.for_adapter))
                refused = denied("unresolved", errors, lead="cannot plan this job")
                return replace(refused, warnings=told)
            answer = deps.plan(request, stop=stop)
            if isinstance(answer, NoFeasiblePlan):
                return replace(infeasible(answer), warnings=told)
            return with_plan(review, adapter, answer, deps, told=told)


def with_plan(
    review: Review, adapter: Adapter, plan: Plan, deps: Deps, *, told: tuple[str, ...] = ()
) -> Decision:
    """The job with its plan. `told` are the adapter's own warnings."""
    cluster = plan.request.cluster
    stated = adapter.collective_context(review.job)
    context = completed(
        stated,
        cluster.gpu,
        deps,
        nodes=cluster.nodes,
        gpus_per_node=cluster.gpus_per_node,
        gpu_exclusive=cluster.exclusive,
        instance_type=stated.instance_type or cluster.instance_type,
        framework=stated.framework or plan.request.framework.name,
    )
    environment = deps.environment(context, plan)
    operations = adapter.operations(
        review.job,
        plan=plan,
        environment=environment,
        default_precision=cluster.gpu.default_precision,
    )
    line = headline(plan)
    warnings = (line, *overwritten(review, operations), *told, *environment.warnings)
    return written(operations, warnings=warnings, headline=line, plan=plan)


def with_defaults(review: Review, adapter: Adapter, deps: Deps) -> Decision:
    """The job with what it left out."""
    context = adapter.collective_context(review.job)
    gpu = deps.gpu(context.node_labels)
    environment = deps.environment(completed(context, gpu, deps), None)
    operations = adapter.operations(
        review.job,
        plan=None,
        environment=environment,
        default_precision=gpu.default_precision if gpu else FALLBACK_PRECISION,
    )
    return written(operations, warnings=environment.warnings)


def completed(
    context: CollectiveContext, gpu: Gpu | None, deps: Deps, **planned: Any
) -> CollectiveContext:
    """The context with what only the catalog and the operator know, and what was planned for."""
    return replace(
        context,
        gpu=gpu.name if gpu else context.gpu,
        gpu_family=gpu.family if gpu else context.gpu_family,
        default_profile=deps.default_profile,
        operator_values=deps.operator_values,
        **planned,
    )


def written(
    operations: tuple[Operation, ...],
    *,
    warnings: tuple[str, ...],
    headline: str = "",
    plan: Plan | None = None,
) -> Decision:
    """Patched, or unchanged when everything is there already."""
    return Decision(
        outcome="patched" if operations else "unchanged",
        operations=operations,
        warnings=warnings,
        headline=headline,
        plan=plan,
    )


def overwritten(review: Review, operations: tuple[Operation, ...]) -> Iterator[str]:
    """One line on the spec values of the author's that the plan replaces."""
    changes = [
        f"{each.path.removeprefix('/spec/').replace('/', '.')} {old} -> {shown(each.value)}"
        for each in operations
        if each.op == "replace"
        and each.path.startswith("/spec/")
        and not each.path.startswith("/spec/env/")
        and (old := shown(value_at(review.job, *each.path.split("/")[1:]))) not in {"", "0"}
    ]
    if changes:
        yield f"the plan replaces {', '.join(changes)}; pin to keep"


def shown(value: object) -> str:
    """A value as a message shows it, "" for nothing."""
    if value is None:
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."


def denied(reason: str, errors: tuple[FieldError, ...], *, lead: str = "") -> Decision:
    """Refused, with every error."""
    causes = tuple({(each.path, each.message): each for each in errors}.values())
    sentences = "; ".join(f"{each.path}: {each.message}" for each in causes)
    message = f"{lead}: {sentences}" if lead else sentences
    return Decision(outcome="denied", reason=reason, causes=causes, message=message)


def infeasible(answer: NoFeasiblePlan) -> Decision:
    """Refused because nothing fits: why, by how much, and what would fit."""
    cluster = answer.request.cluster
    where = f"{cluster.nodes} x {cluster.gpus_per_node} {cluster.gpu.name}"
    assumed = assumed_training(answer.request) if answer.nearest is not None else ()
    sentences = (*answer.reasons, *assumed, *map(said_how, answer.remedies))
    return Decision(
        outcome="denied",
        reason="infeasible",
        causes=tuple(FieldError(path="spec", value=where, message=each) for each in sentences),
        message="; ".join((f"no plan for {answer.request.model.name} on {where}", *sentences)),
        plan=answer,
    )


def said_how(remedy: str) -> str:
    """A remedy, with the annotation that asks for it where there is one."""
    said_by = SAID_BY.get(remedy)
    return f"{remedy} (annotation `{said_by}`)" if said_by else remedy


def validate(review: Review, deps: Deps, *, stop: Stop = never) -> Decision:
    """Whether the job as it would be stored obeys the rules. Never patches, never searches."""
    del stop
    adapter = adapter_for(review, deps)
    skipped = not_ours(review, deps) or not_judged(review)
    if skipped or adapter is None:
        return Decision(outcome="skipped", reason=skipped)
    job_review = review.for_adapter
    errors = list(adapter.field_errors(job_review))
    warnings = list(adapter.warnings(job_review))
    declared = newly_declared(job_review, adapter)
    if declared is not None:
        verdict = deps.judge(declared, known={each.path for each in errors})
        errors.extend(verdict.errors)
        warnings.extend(verdict.warnings)
    if errors:
        return replace(denied("invalid", tuple(errors)), warnings=tuple(warnings))
    return Decision(outcome="unchanged", warnings=tuple(warnings))


def not_judged(review: Review) -> str:
    """Why nothing of this review may be refused, "" if it may."""
    if review.operation not in {"CREATE", "UPDATE"}:
        return "operation"
    if review.subresource:
        return "subresource"
    if value_at(review.job, "metadata", "deletionTimestamp"):
        return "deleting"
    return ""


def newly_declared(review: JobReview, adapter: Adapter) -> DeclaredLayout | None:
    """The layout to judge: a new job's, or one that an update changes.

    Where a job may run (node labels) is a queue's to write and is not held against it.
    """
    if review.operation != "CREATE" and not adapter.judges_updates:
        return None
    declared = adapter.declared_layout(review.job)
    if declared is None or review.operation == "CREATE" or review.old is None:
        return declared
    before = adapter.declared_layout(review.old)
    return None if before is not None and same_layout(before, declared) else declared


def same_layout(left: DeclaredLayout, right: DeclaredLayout) -> bool:
    """Whether two layouts ask the same, wherever they run."""
    return left.fields == right.fields and replace(left.intent, node_labels={}) == replace(
        right.intent, node_labels={}
    )
