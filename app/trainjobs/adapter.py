"""What every TrainJob API has in common: the shapes that pass between adapters and admission."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from app.planner.intent import FieldError, TrainIntent
from app.planner.request import Plan

Job = Mapping[str, Any]
Op = Literal["add", "replace"]


class Operation(NamedTuple):
    """One RFC 6902 operation. Only `add` and `replace` exist: nothing of a user's is removed.

    A tuple, as `Edit`: a review makes some forty of them, and a frozen dataclass takes thrice as
    long to make.
    """

    op: Op
    path: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One environment variable we would set, why, and who says so."""

    name: str
    value: str
    reason: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The collective environment of one job. `warnings` hold what we advise but must not set."""

    settings: tuple[Setting, ...] = ()
    warnings: tuple[str, ...] = ()
    profile: str = "single-node"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveContext:
    """What a job shows about its network, for the environment rules.

    `user_env` are the names and values the user set (last one of a duplicate wins).
    `resources` are extended resource names and counts, `claims` device class or claim template
    names, `sidecars` container names. `gpu_family` and `gpu` come from the plan or the catalog, ""
    if unknown. `degrees` are the tp, pp, cp, ep the job states itself, for jobs without a plan.
    `command` is command and args in one line, "" if unknown. `instance_type` may list the types
    of all candidate nodes, separated by commas.
    """

    nodes: int
    gpus_per_node: int
    gpu: str = ""
    gpu_family: str = ""
    gpu_exclusive: bool = True
    instance_type: str = ""
    node_labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)
    claims: tuple[str, ...] = ()
    sidecars: tuple[str, ...] = ()
    user_env: Mapping[str, str] = field(default_factory=dict)
    framework: str = ""
    default_profile: str = ""
    operator_values: Mapping[str, str] = field(default_factory=dict)
    degrees: Mapping[str, int] = field(default_factory=dict)
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReview:
    """One admission request reduced to what an adapter may look at."""

    operation: str
    job: Job
    old: Job | None
    namespace: str
    subresource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Nothing to do for this review, and why: one of a closed set of words, a log field."""

    reason: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Defaults and environment only; the job chose its own layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantsPlan:
    """The job asks for a plan. `warnings` are for its author whatever the plan says."""

    intent: TrainIntent
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecidable:
    """The job asks for a plan but hides a fact only its runtime knows: allow, warn, do nothing."""

    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed:
    """The job asks for something, and its own fields make that impossible to read."""

    errors: tuple[FieldError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeps:
    """An update left out what we had added: `operations` put it back as it was."""

    operations: tuple[Operation, ...]
    warnings: tuple[str, ...] = ()


Wish = Skip | Defaults | WantsPlan | Undecidable | Malformed | Keeps


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredLayout:
    """The layout a job states itself, for `/validate`.

    `intent` resolves its model and GPUs; `fields` are the `Layout` fields it names, `paths` where.
    """

    intent: TrainIntent
    fields: Mapping[str, Any]
    paths: Mapping[str, str]


class Adapter(Protocol):
    """One TrainJob API: job -> wish, plan -> operations. Pure functions of their arguments."""

    @property
    def judges_updates(self) -> bool:
        """Whether the layout of a job that exists may still be refused."""

    @property
    def group(self) -> str:
        """API group."""

    @property
    def version(self) -> str:
        """API version."""

    @property
    def kind(self) -> str:
        """Kind of the objects."""

    @property
    def resource(self) -> str:
        """Their plural name in URLs."""

    def shown(self, review: JobReview) -> tuple[Any, ...]:
        """All of the review that any answer here may depend on: equal ones are answered alike."""

    def wish(self, review: JobReview) -> Wish:
        """What the review asks of us."""

    def collective_context(self, job: Job) -> CollectiveContext:
        """What the job shows about its network."""

    def operations(
        self, job: Job, *, plan: Plan | None, environment: Environment, default_precision: str
    ) -> tuple[Operation, ...]:
        """The patch: plan (if any), defaults, environment. Empty when all is there already.

        `default_precision` is what the job's GPU trains in when nobody says: bf16, or fp16.
        """

    def field_errors(self, review: JobReview) -> tuple[FieldError, ...]:
        """Everything wrong with the job's own fields, no planner needed. All of it.

        On UPDATE also what may not change any more. Empty for an update that changes nothing
        the rules are about.
        """

    def warnings(self, review: JobReview) -> tuple[str, ...]:
        """What the job's author should know and may well have meant. No planner needed."""

    def declared_layout(self, job: Job) -> DeclaredLayout | None:
        """The layout the job states, for judging it; `None` if it states none."""
