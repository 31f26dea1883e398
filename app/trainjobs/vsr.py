"""The adapter of `training.vsr.dev/v1alpha1`: what its TrainJob asks for, and what we write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from app.planner.architecture import ModelArchitecture
from app.planner.intent import FieldError
from app.planner.request import Plan
from app.trainjobs import labels
from app.trainjobs.adapter import (
    CollectiveContext,
    DeclaredLayout,
    Defaults,
    Environment,
    Job,
    JobReview,
    Keeps,
    Malformed,
    Operation,
    Setting,
    Skip,
    WantsPlan,
    Wish,
)
from app.trainjobs.document import (
    count_at,
    mapping_at,
    texts_at,
    value_at,
)
from app.trainjobs.kept import KEPT, kept_variables, leftover_warnings, our_entries
from app.trainjobs.patch import Edit, append_operations, pointer, set_operations
from app.trainjobs.plan_json import (
    PLAN_SOURCE,
    PlanTexts,
    environment_record,
    plan_texts,
    recomputes,
    rounded,
)
from app.trainjobs.vsr_fields import (
    INSTANCE_TYPE_LABEL,
    LAYOUT_PATHS,
    added_variables,
    annotation,
    asks_for_plan,
    filled_fields,
    intent,
    planned_layout,
    stated_environment,
    stated_layout,
)
from app.trainjobs.vsr_rules import (
    OPERATOR_VARIABLES,
    frozen_errors,
    intent_errors,
    job_errors,
    job_warnings,
    misspelt_names,
    running,
)
from app.trainjobs.vsr_shown import Reads, command_line, shown

NOT_A_CREATION: Final = "not-a-creation"
ENVIRONMENT_PATH: Final = ("spec", "env")
STATED_DEGREES: Final = ("tp", "pp", "cp")
CHECKPOINT_DEFAULTS: Final = {"intervalMinutes": 30, "retainCount": 3}
JUDGED_FIELDS: Final = (
    "model",
    "image",
    "numNodes",
    "gpusPerNode",
    "tpDegree",
    "ppDegree",
    "cpDegree",
    "precision",
    "autoParallelism",
    "modelSpec",
    "checkpoint",
    "maxRuntime",
    "env",
)
"""Spec fields whose change is judged. `suspend` and `nodeSelector` are a queue's to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VsrAdapter:
    """`Adapter` of the TrainJob whose spec holds the degrees themselves.

    `texts` writes a plan down; it may remember what it wrote. `rules` is what the environment's
    rules look at; without it all of a job counts.
    """

    texts: Callable[[Plan], PlanTexts] = plan_texts
    rules: Reads | None = None
    judges_updates: bool = True
    group: str = "training.vsr.dev"
    version: str = "v1alpha1"
    kind: str = "TrainJob"
    resource: str = "trainjobs"

    def shown(self, review: JobReview) -> tuple[Any, ...]:
        """Both jobs without what decides nothing, and whether what is judged has changed."""
        if self.rules is None:
            return (review.job, review.old)
        job = shown(review.job, self.rules)
        if review.old is None:
            return (job,)
        return (job, shown(review.old, self.rules), unchanged(review))

    def wish(self, review: JobReview) -> Wish:
        """Only a creation is planned. Of a job that exists, what we added is kept."""
        skipped = skip_reason(review)
        kept = kept_in(review) if skipped == NOT_A_CREATION else None
        if kept is not None:
            return kept
        if skipped:
            return Skip(reason=skipped, warnings=late_wish(review))
        if not asks_for_plan(review.job):
            return Defaults()
        if intent_errors(review.job):
            return Malformed(errors=job_errors(review.job))
        return WantsPlan(intent=intent(review.job), warnings=tuple(misspelt_names(review.job)))

    def collective_context(self, job: Job) -> CollectiveContext:
        """Node labels and annotations are all this API shows; its pods ask for no NIC."""
        node_labels = texts_at(job, "spec", "nodeSelector")
        return CollectiveContext(
            nodes=count_at(job, "spec", "numNodes") or 1,
            gpus_per_node=count_at(job, "spec", "gpusPerNode") or 1,
            instance_type=node_labels.get(INSTANCE_TYPE_LABEL, ""),
            node_labels=node_labels,
            annotations=texts_at(job, "metadata", "annotations"),
            user_env=stated_environment(job),
            framework=annotation(job, labels.FRAMEWORK) or "",
            degrees={
                name: value
                for name, value in stated_layout(job).items()
                if name in STATED_DEGREES and isinstance(value, int)
            },
            command=command_line(job),
        )

    def operations(
        self, job: Job, *, plan: Plan | None, environment: Environment, default_precision: str
    ) -> tuple[Operation, ...]:
        """Plan, defaults, variables and annotations, in that order."""
        texts = self.texts(plan) if plan is not None else None
        planned = texts.variables if texts is not None else ()
        settings = wanted_settings(job, (*planned, *environment.settings))
        edits = [
            *(
                plan_edits(job, plan, texts)
                if plan is not None and texts is not None
                else layout_defaults(job, precision=default_precision)
            ),
            *default_edits(job),
            *environment_edits(settings),
        ]
        return (*set_operations(job, edits), *variable_operations(job, settings))

    def field_errors(self, review: JobReview) -> tuple[FieldError, ...]:
        """All errors of a new job; of a changed one those that the change brought."""
        if review.operation == "CREATE":
            return job_errors(review.job)
        if review.operation != "UPDATE" or review.old is None or unchanged(review):
            return ()
        if running(review.old):
            return frozen_errors(review.job, review.old)
        now = job_errors(review.job)
        before = {(error.path, error.message) for error in job_errors(review.old)} if now else ()
        return tuple(error for error in now if (error.path, error.message) not in before)

    def warnings(self, review: JobReview) -> tuple[str, ...]:
        """Warnings about the job's own fields, where it is new or changed."""
        if review.operation == "UPDATE" and unchanged(review):
            return ()
        return (*job_warnings(review.job), *leftover_warnings(review.job, ENVIRONMENT_PATH))

    def declared_layout(self, job: Job) -> DeclaredLayout | None:
        """Our own plan whole, where the spec still agrees with it; else what the spec says."""
        fields = stated_layout(job)
        if intent_errors(job) or "tp" not in fields or "pp" not in fields:
            return None
        return DeclaredLayout(
            intent=intent(job), fields=planned_layout(job) or fields, paths=LAYOUT_PATHS
        )


def skip_reason(review: JobReview) -> str:
    """Why the review asks nothing of us, "" if it does."""
    if review.subresource:
        return "subresource"
    if value_at(review.job, "metadata", "deletionTimestamp"):
        return "deleting"
    if review.operation != "CREATE":
        return NOT_A_CREATION
    if not mapping_at(review.job, "spec"):
        return "no-spec"
    return ""


def kept_in(review: JobReview) -> Keeps | None:
    """What an update must not lose. One that takes its wish for a plan back wants nothing of us."""
    if review.operation != "UPDATE" or review.old is None:
        return None
    if asks_for_plan(review.old) and not asks_for_plan(review.job):
        return None
    return kept_variables(review.job, review.old, ENVIRONMENT_PATH)


def late_wish(review: JobReview) -> tuple[str, ...]:
    """What to say to an update that asks for a plan its job did not ask for."""
    if review.operation != "UPDATE" or review.old is None or not asks_for_plan(review.job):
        return ()
    if asks_for_plan(review.old):
        return ()
    return ("autoParallelism is read when a job is created; delete it and create it again",)


def unchanged(review: JobReview) -> bool:
    """Whether an update leaves alone everything that is judged."""
    new, old = mapping_at(review.job, "spec"), mapping_at(review.old, "spec")
    return all(new.get(name) == old.get(name) for name in JUDGED_FIELDS)


def plan_edits(job: Job, plan: Plan, texts: PlanTexts) -> Iterator[Edit]:
    """The fields and annotations a plan is written to."""
    layout = plan.layout
    filled = fillable(job, plan)
    spec = {"tpDegree": layout.tp, "ppDegree": layout.pp, "cpDegree": layout.cp}
    for name, value in spec.items():
        yield Edit(path=("spec", name), value=value)
    yield Edit(path=("spec", "precision"), value=layout.precision)
    model_spec: dict[str, Any] = {
        **filled,
        "microBatchSize": layout.microbatch_size,
        "activationCheckpointing": recomputes(layout),
    }
    for name, value in model_spec.items():
        yield Edit(path=("spec", "modelSpec", name), value=value)
    yield annotated(labels.CONFIG, texts.config)
    yield annotated(labels.REASON, texts.reason)
    yield annotated(labels.PLAN, texts.completed(filled))


def fillable(job: Job, plan: Plan) -> dict[str, Any]:
    """`modelSpec` fields its author left out, as the plan resolved them.

    The operator's own schema requires them all once `modelSpec` is there, and we must put the
    micro-batch there.
    """
    present, ours = mapping_at(job, "spec", "modelSpec"), filled_fields(job)
    shape = model_spec_of(plan.request.model, plan.request.workload.sequence_length)
    return {key: value for key, value in shape.items() if key not in present or key in ours}


def model_spec_of(model: ModelArchitecture, sequence_length: int) -> dict[str, Any]:
    """A model in the API's words."""
    return {
        "paramsBillions": rounded(model.params / 1e9),
        "hiddenDim": model.hidden_size,
        "numLayers": model.num_layers,
        "numHeads": model.num_heads,
        "numKVHeads": model.num_kv_heads,
        "seqLen": sequence_length,
    }


def layout_defaults(job: Job, *, precision: str) -> Iterator[Edit]:
    """What a job without a plan gets where it leaves its layout open."""
    spec = mapping_at(job, "spec")
    if spec.get("precision") in (None, ""):
        yield Edit(path=("spec", "precision"), value=precision)
    if spec.get("cpDegree") in (None, 0):
        yield Edit(path=("spec", "cpDegree"), value=1)


def default_edits(job: Job) -> Iterator[Edit]:
    """What any job gets where it does not say."""
    spec = mapping_at(job, "spec")
    checkpoint = mapping_at(spec, "checkpoint")
    if checkpoint.get("enabled") is True:
        for name, value in CHECKPOINT_DEFAULTS.items():
            if checkpoint.get(name) is None:
                yield Edit(path=("spec", "checkpoint", name), value=value)
    queue = texts_at(job, "metadata", "labels").get(labels.KUEUE_QUEUE)
    if queue and spec.get("suspend") is None:
        yield Edit(path=("spec", "suspend"), value=True)


def wanted_settings(job: Job, offered: Iterable[Setting]) -> tuple[Setting, ...]:
    """Variables to have in the job, one of a name: none the author or the operator sets.

    What an earlier answer of ours put there stays, since nothing is removed, and stays recorded.
    """
    taken = stated_environment(job)
    wanted: dict[str, Setting] = {}
    for setting in offered:
        name = setting.name
        if setting.value and name not in taken and name not in OPERATOR_VARIABLES:
            wanted.setdefault(name, setting)
    for name, value in added_variables(job).items():
        if name not in OPERATOR_VARIABLES:
            kept = Setting(name=name, value=value, reason=KEPT, source=PLAN_SOURCE)
            wanted.setdefault(name, kept)
    return tuple(wanted.values())


def variable_operations(job: Job, settings: Iterable[Setting]) -> Iterator[Operation]:
    """Append what is missing; bring what we added to an earlier copy up to date."""
    ours = our_entries(job, ENVIRONMENT_PATH)
    listed = value_at(job, *ENVIRONMENT_PATH)
    missing = []
    for setting in settings:
        index = ours.get(setting.name)
        if index is None:
            missing.append({"name": setting.name, "value": setting.value})
        elif listed[index]["value"] != setting.value:
            path = pointer((*ENVIRONMENT_PATH, index, "value"))
            yield Operation(op="replace", path=path, value=setting.value)
    yield from append_operations(job, ENVIRONMENT_PATH, missing)


def environment_edits(settings: tuple[Setting, ...]) -> Iterator[Edit]:
    """The annotation that says which variables are ours, and why."""
    if settings:
        yield annotated(labels.ENVIRONMENT, environment_record(settings))


def annotated(name: str, text: str) -> Edit:
    """An annotation as an edit."""
    return Edit(path=("metadata", "annotations", name), value=text)
