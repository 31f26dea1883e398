"""The adapter of `trainer.kubeflow.org/v1alpha1`, releases 2.0 to 2.4."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from app.planner.intent import FieldError
from app.planner.request import Plan
from app.trainjobs.adapter import (
    CollectiveContext,
    DeclaredLayout,
    Environment,
    Job,
    JobReview,
    Keeps,
    Malformed,
    Operation,
    Skip,
    Undecidable,
    WantsPlan,
    Wish,
)
from app.trainjobs.document import mapping_at, texts_at, value_at
from app.trainjobs.kept import kept_variables, leftover_warnings
from app.trainjobs.kubeflow import names
from app.trainjobs.kubeflow.advice import GpuName, advice, placement_warnings
from app.trainjobs.kubeflow.answer import ENV_PATH, answer, env_items
from app.trainjobs.kubeflow.contract import ALWAYS, Stated, possible_names, stated_by
from app.trainjobs.kubeflow.question import (
    Question,
    intent_of,
    is_opted_in,
    labels_of,
    layout_paths,
    pins_of,
    read_question,
    recorded_plan,
    unknowns,
)
from app.trainjobs.kubeflow.runtimes import (
    KnownRuntimes,
    NoRuntimes,
    RuntimeFacts,
    RuntimeReference,
    runtime_reference,
)
from app.trainjobs.kubeflow.shown import variables
from app.trainjobs.plan_json import PlanTexts, plan_texts

GROUP = "trainer.kubeflow.org"
NOT_A_CREATION = "not-a-creation"
LAYOUT_VARIABLES = frozenset(each.name for each in ALWAYS)
JUDGED_DEGREES = ("tp", "pp", "cp", "ep", "dp", "microbatch_size", "recompute", "precision")


Read = Callable[[Job], Question]


def _each_time(read: Read) -> Read:
    return read


def _same_spelling(name: str) -> str:
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeflowAdapter:
    """`Adapter` of Kubeflow's TrainJob, whose plan travels in environment variables.

    `runtimes` is where a runtime that was read is looked up, `gpu_name` gives the one name of a
    GPU that labels spell differently. Without them the adapter knows only what the job shows.
    `texts` writes a plan down; it may remember what it wrote. `reading` is given what reads a job
    whole, which every method does, and may remember what it read of the last one.
    """

    runtimes: KnownRuntimes = field(default_factory=NoRuntimes)
    gpu_name: GpuName = _same_spelling
    texts: Callable[[Plan], PlanTexts] = plan_texts
    reading: Callable[[Read], Read] = _each_time
    judges_updates: bool = False
    group: str = GROUP
    version: str = "v1alpha1"
    kind: str = "TrainJob"
    resource: str = "trainjobs"
    _question: Read = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Take what reads a job."""
        object.__setattr__(self, "_question", self.reading(self._read))

    def shown(self, review: JobReview) -> tuple[Any, ...]:
        """All of it: its containers say what launches it, its labels where it may run."""
        return (review.job, review.old)

    def wish(self, review: JobReview) -> Wish:
        """A plan, if an opted-in job is being created and shows enough of itself.

        Of a job that exists, what we added is kept.
        """
        skipped = skip_reason(review)
        if skipped == NOT_A_CREATION:
            placement = placement_warnings(review, self.gpu_name)
            kept = kept_in(review)
            if kept is None:
                return Skip(reason=skipped, warnings=placement)
            return replace(kept, warnings=(*kept.warnings, *placement))
        if skipped:
            return Skip(reason=skipped, warnings=_near_miss(review.job))
        if not isinstance(value_at(review.job, "spec", "trainer"), Mapping):
            return Undecidable(warnings=(NO_TRAINER,))
        question = self._question(review.job)
        errors = _all_errors(question)
        if errors:
            return Malformed(errors=errors)
        missing = (*unknowns(question), *_no_room(review.job, question))
        told = tuple(advice(review.job, question, self.gpu_name))
        if missing:
            return Undecidable(warnings=(*missing, *told))
        intent = intent_of(question, pins=pins_of(question))
        return WantsPlan(intent=intent, warnings=told)

    def collective_context(self, job: Job) -> CollectiveContext:
        """What the job and its runtime show about the network."""
        question = self._question(job)
        values, node_labels = question.inputs.values, question.pods.node_labels
        machine = next((node_labels[key] for key in names.MACHINE_LABELS if key in node_labels), "")
        degrees = ("tp", "pp", "cp", "ep")
        return CollectiveContext(
            nodes=question.nodes or 1,
            gpus_per_node=question.gpus_per_node or 1,
            gpu=values.get("gpu") or names.gpu_of(node_labels),
            instance_type=values.get("instance_type") or machine,
            node_labels=node_labels,
            annotations={
                **question.pods.annotations,
                **texts_at(job, "metadata", "annotations"),
            },
            resources=question.resources,
            claims=question.pods.claims,
            sidecars=question.pods.containers,
            user_env=question.author_env,
            framework=values.get("framework") or question.launcher.framework,
            degrees={
                name: question.stated.fields[name]
                for name in degrees
                if name in question.stated.fields
            },
            command=question.command,
        )

    def operations(
        self,
        job: Job,
        *,
        plan: Plan | None,
        environment: Environment,
        default_precision: str,  # noqa: ARG002 - this API has no field for it
    ) -> tuple[Operation, ...]:
        """The patch of a planned job; without a plan there is nothing to write."""
        if plan is None or not isinstance(value_at(job, "spec", "trainer"), Mapping):
            return ()
        return answer(job, self._question(job), plan, environment, self.texts(plan))

    def field_errors(self, review: JobReview) -> tuple[FieldError, ...]:
        """All errors of a job being created; later writes are Kueue's and Trainer's."""
        return () if skip_reason(review) else _all_errors(self._question(review.job))

    def warnings(self, review: JobReview) -> tuple[str, ...]:
        """Advice about a job being created, and about where an update places one."""
        skipped = skip_reason(review)
        if skipped == NOT_A_CREATION:
            return placement_warnings(review, self.gpu_name)
        if skipped:
            return ()
        return (
            *advice(review.job, self._question(review.job), self.gpu_name),
            *leftover_warnings(review.job, ENV_PATH),
        )

    def declared_layout(self, job: Job) -> DeclaredLayout | None:
        """The layout the job's variables state, ours and the author's alike."""
        if not is_opted_in(job):
            return None
        listed = variables(job)
        question = self._question(job)
        complete = not question.errors and not unknowns(question)
        if not complete or not any(each.name in LAYOUT_VARIABLES for each in listed):
            return None
        stated = stated_by(listed, question.launcher)
        fields = {**mapping_at(question.inputs.values, "pins"), **stated.fields}
        planned = mapping_at(recorded_plan(question.annotations), "layout")
        return DeclaredLayout(
            intent=intent_of(question, pins={}),
            fields=dict(planned) if _agrees(planned, stated) else fields,
            paths=layout_paths(question, stated),
        )

    def _read(self, job: Job) -> Question:
        return read_question(job, self._runtime(job))

    def _runtime(self, job: Job) -> RuntimeFacts | None:
        reference = runtime_reference(job)
        return self.runtimes.known(reference) if reference is not None else None


NO_TRAINER = (
    "no plan: spec.trainer is absent, and creating it would change how the job starts; "
    "add spec.trainer"
)


def skip_reason(review: JobReview) -> str:
    """Why the review asks nothing of us, "" if it does."""
    if review.subresource:
        return "subresource"
    if value_at(review.job, "metadata", "deletionTimestamp"):
        return "deleting"
    if not is_opted_in(review.job):
        return "not-opted-in"
    return "" if review.operation == "CREATE" else NOT_A_CREATION


def kept_in(review: JobReview) -> Keeps | None:
    """What an update must not lose."""
    if review.operation != "UPDATE" or review.old is None:
        return None
    return kept_variables(review.job, review.old, ENV_PATH)


def wanted_runtime(review: JobReview) -> RuntimeReference | None:
    """The runtime worth reading before `review` is decided, `None` if there is none."""
    return None if skip_reason(review) else runtime_reference(review.job)


def _near_miss(job: Job) -> tuple[str, ...]:
    stated = labels_of(job).get(names.OPT_IN_LABEL, names.OPTED_IN)
    if stated != names.OPTED_IN and stated.strip().lower() in {names.OPTED_IN, "true", "yes"}:
        return (f"no plan: the label {names.OPT_IN_LABEL} must be `{names.OPTED_IN}`",)
    return ()


def _all_errors(question: Question) -> tuple[FieldError, ...]:
    return (*question.errors, *_accumulation(question))


def _accumulation(question: Question) -> Iterator[FieldError]:
    """Accumulation follows from the batch: a stated one must agree with the rest."""
    stated = question.stated
    batch = stated.workload.get(
        "global_batch_size", question.inputs.values.get("global_batch_size")
    )
    dp, size = stated.fields.get("dp"), stated.fields.get("microbatch_size")
    if stated.accumulation is None or batch is None or dp is None or size is None:
        return
    if stated.accumulation * size * dp != batch:
        yield FieldError(
            path=stated.paths["accumulation"],
            value=str(stated.accumulation),
            message=(
                f"accumulation x micro-batch {size} x data-parallel {dp} must be the global "
                f"batch {batch}"
            ),
        )


def _no_room(job: Job, question: Question) -> tuple[str, ...]:
    present = {each.name for each in (*question.theirs, *question.ours.values())}
    wanted = possible_names(question.launcher, question.command) - present
    room = names.MAX_ENV_ITEMS - env_items(job)
    if len(wanted) <= room:
        return ()
    sentence = (
        f"no plan: spec.trainer.env may hold {names.MAX_ENV_ITEMS} items and has room for {room}, "
        f"a plan needs {len(wanted)}"
    )
    return (sentence,)


def _agrees(planned: Mapping[str, Any], stated: Stated) -> bool:
    """Whether the recorded plan is the one the variables state."""
    return bool(planned) and all(
        planned.get(name) == stated.fields.get(name) for name in JUDGED_DEGREES
    )
