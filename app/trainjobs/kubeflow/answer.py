"""A plan -> the operations that bring it into a Kubeflow TrainJob at its creation.

Written are items of `spec.trainer.env`, `numProcPerNode` where it is certain, and annotations of
ours. The author's values stay; what an earlier answer of ours put there is brought up to date.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from app.planner.request import Plan
from app.trainjobs import labels
from app.trainjobs.adapter import Environment, Job, Operation, Setting
from app.trainjobs.kept import KEPT
from app.trainjobs.kubeflow import names
from app.trainjobs.kubeflow.contract import plan_variables
from app.trainjobs.kubeflow.question import Question, recorded_plan
from app.trainjobs.kubeflow.shown import trainer_of
from app.trainjobs.patch import Edit, append_operations, pointer, set_operations
from app.trainjobs.plan_json import PLAN_SOURCE, PLANNED, PlanTexts, environment_record

ENV_PATH = ("spec", "trainer", "env")
PROCESSES = "numProcPerNode"


def answer(
    job: Job, question: Question, plan: Plan, environment: Environment, texts: PlanTexts
) -> tuple[Operation, ...]:
    """The patch; empty when all of it is there already. `texts` are those of the plan."""
    settings = _wanted(job, question, plan, environment)
    filled = _processes(job, question)
    edits = [
        *(Edit(path=("spec", "trainer", name), value=value) for name, value in filled.items()),
        *_annotations(texts, settings, filled),
    ]
    return (
        *_replaced(question, settings),
        *_appended(job, question, settings),
        *set_operations(job, edits),
    )


def env_items(job: Job) -> int:
    """Items of `spec.trainer.env`, whatever they are."""
    listed = trainer_of(job).get("env")
    return len(listed) if isinstance(listed, list) else 0


def _wanted(
    job: Job, question: Question, plan: Plan, environment: Environment
) -> dict[str, Setting]:
    """Variables that are ours by name: plan, then collective environment, then earlier ones."""
    taken = {each.name for each in question.theirs} | names.RESERVED_ENV
    wanted: dict[str, Setting] = {}
    values = plan_variables(plan, question.launcher, question.command, present=question.ours.keys())
    for name, value in values.items():
        if name not in taken:
            wanted[name] = Setting(name=name, value=value, reason=PLANNED, source=PLAN_SOURCE)
    wanted.update(_collective(job, question, environment, taken | wanted.keys(), len(wanted)))
    for name, variable in question.ours.items():
        if name not in wanted and variable.value:
            wanted[name] = Setting(name=name, value=variable.value, reason=KEPT, source=PLAN_SOURCE)
    return wanted


def _collective(
    job: Job,
    question: Question,
    environment: Environment,
    taken: set[str],
    planned: int,
) -> dict[str, Setting]:
    """The collective environment, all of it or (where the list has no room) none."""
    allowed = {
        each.name: each
        for each in environment.settings
        if each.value and each.name not in taken and may_set(question, each.name)
    }
    room = names.MAX_ENV_ITEMS - env_items(job) + len(question.ours) - planned
    return allowed if len(allowed) <= room else {}


def may_set(question: Question, name: str) -> bool:
    """Whether a variable of the collective environment may be written.

    `spec.trainer.env` beats the runtime's environment. So a name the runtime sets is left to it,
    and while the runtime is unread no variable that describes the network is written, unless the
    author told us about the network.
    """
    if question.runtime is not None:
        return name not in question.runtime.environment
    network = name.startswith(names.NETWORK_ENV_PREFIXES)
    return not network or "fabric" in question.inputs.values


def _replaced(question: Question, settings: Mapping[str, Setting]) -> Iterator[Operation]:
    for name, variable in question.ours.items():
        setting = settings.get(name)
        if setting is not None and setting.value != variable.value:
            path = pointer((*ENV_PATH, variable.index, "value"))
            yield Operation(op="replace", path=path, value=setting.value)


def _appended(
    job: Job, question: Question, settings: Mapping[str, Setting]
) -> tuple[Operation, ...]:
    missing = [
        {"name": each.name, "value": each.value}
        for each in settings.values()
        if each.name not in question.ours
    ]
    return append_operations(job, ENV_PATH, missing)


def _processes(job: Job, question: Question) -> dict[str, Any]:
    """`numProcPerNode`, if it is for us to fill: unset (or ours before), and certain.

    Trainer 2.0 and 2.1 refuse reserved names only once `numProcPerNode` is set, so it stays unset
    in a job that has one.
    """
    present = trainer_of(job).get(PROCESSES)
    earlier = recorded_plan(question.annotations).get("filled")
    ours = earlier.get(PROCESSES) if isinstance(earlier, Mapping) else None
    if present is not None and present != ours:
        return {}
    if not question.certain_gpus or question.author_env.keys() & names.TORCH_RESERVED_ENV:
        return {}
    return {PROCESSES: question.gpus_per_node}


def _annotations(
    texts: PlanTexts, settings: Mapping[str, Setting], filled: Mapping[str, Any]
) -> Iterator[Edit]:
    yield _annotated(labels.PLAN_RESULT, texts.completed(filled))
    yield _annotated(labels.REASON, texts.reason)
    if settings:
        yield _annotated(labels.ENVIRONMENT, environment_record(settings.values()))


def _annotated(name: str, text: str) -> Edit:
    return Edit(path=("metadata", "annotations", name), value=text)
