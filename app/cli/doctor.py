"""`trainjob-advisor doctor`: what went wrong in a training log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from app.cli.desk import open_desk
from app.cli.question import Question, key_values, layout_pairs, with_question
from app.cli.refuse import NO, CannotAnswer, bad_input
from app.cli.screen import console, print_json, say

if TYPE_CHECKING:
    from app.advisor.launch.setup import Setup


@with_question
def command(
    question: Question,
    files: Annotated[
        list[str], typer.Argument(help="Logs, or - for standard input.", metavar="FILE...")
    ],
    *,
    manifest: Annotated[
        Path | None,
        typer.Option(
            "--manifest",
            help="The job's TrainJob, in YAML or JSON: training.vsr.dev or Kubeflow.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    layout: Annotated[
        list[str] | None,
        typer.Option(
            "--layout", metavar="KEY=VALUE[,...]", help="Fields of the job's layout. Repeatable."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Read a training log or NCCL_DEBUG output, and say cause, evidence and change.

    With a manifest, or the flags of a plan, changes come with predicted numbers.
    Exit code 0: no error found; 1: errors found; 2: bad input.
    """
    from app.advisor.doctor import diagnosis, examine

    setup = _setup(question, manifest, layout)
    with ExitStack() as stack:
        findings = examine([(name, _open(name, stack)) for name in files])
    body = diagnosis(findings, setup)
    if json:
        print_json(body)
    else:
        _show(body)
    if not body["healthy"]:
        raise typer.Exit(NO)


def _open(name: str, stack: ExitStack) -> BinaryIO:
    if name == "-":
        return sys.stdin.buffer
    try:
        return stack.enter_context(Path(name).open("rb"))
    except OSError as problem:
        raise bad_input(f"{name} cannot be read: {problem.strerror}", path="FILE") from problem


def _setup(question: Question, manifest: Path | None, layout: list[str] | None) -> Setup | None:
    """The job that wrote the log, as far as it is said."""
    from app.advisor.advise import judge, resolve
    from app.advisor.errors import Refusal
    from app.advisor.launch.setup import Setup
    from app.advisor.requests import EstimateQuestion, parse_plan_body
    from app.planner.intent import TrainIntent
    from app.planner.request import Plan

    if manifest is None and not question.given():
        return None
    desk = open_desk(question)
    if manifest is not None:
        intent, stated = _job(manifest)
    else:
        parsed = parse_plan_body(question.body())
        if not isinstance(parsed, TrainIntent):
            raise CannotAnswer(Refusal(code="invalid_request", errors=parsed))
        intent, stated = parsed, {}
    stated |= key_values(layout_pairs(layout or ()), flag="--layout")
    if not stated:
        planned = resolve(intent, desk)
        if isinstance(planned, Refusal):
            raise CannotAnswer(planned)
        outcome = desk.planner(planned)
        if not isinstance(outcome, Plan):
            return None
        return Setup(request=planned, estimate=outcome.estimate)
    judged = judge(EstimateQuestion(intent=intent, layout=stated), desk)
    if isinstance(judged, Refusal):
        raise CannotAnswer(judged)
    return Setup(request=judged.request, estimate=judged.estimate)


def _job(manifest: Path) -> tuple[Any, dict[str, Any]]:
    """The wish and the stated layout of a TrainJob."""
    import yaml

    try:
        document = yaml.safe_load(manifest.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as problem:
        raise bad_input(f"`--manifest` cannot be read: {problem}", path="--manifest") from problem
    group = document.get("apiVersion") if isinstance(document, dict) else None
    reader = READERS.get(str(group).partition("/")[0])
    if reader is None:
        message = (
            f"`--manifest` must be one TrainJob of {' or '.join(READERS)}; "
            "or give the flags of a plan"
        )
        raise bad_input(message, path="--manifest")
    return reader(document)


def _of_vsr(job: Any) -> tuple[Any, dict[str, Any]]:
    from app.trainjobs.vsr_fields import intent, stated_layout

    return intent(job), dict(stated_layout(job))


def _of_kubeflow(job: Any) -> tuple[Any, dict[str, Any]]:
    """What its variables state, else what its annotations ask a plan for."""
    from app.trainjobs.adapter import JobReview, Malformed, Undecidable, WantsPlan
    from app.trainjobs.kubeflow import KubeflowAdapter, NoRuntimes

    adapter = KubeflowAdapter(runtimes=NoRuntimes())
    declared = adapter.declared_layout(job)
    if declared is not None:
        return declared.intent, dict(declared.fields)
    wish = adapter.wish(JobReview(operation="CREATE", job=job, old=None, namespace=""))
    if isinstance(wish, WantsPlan):
        return wish.intent, {}
    said = "it does not ask for a plan by the label training.vsr.dev/plan: auto"
    if isinstance(wish, Malformed):
        said = "; ".join(f"{one.path}: {one.message}" for one in wish.errors)
    elif isinstance(wish, Undecidable):
        said = "; ".join(wish.warnings)
    raise bad_input(
        f"`--manifest` does not say what is trained: {said}; or give the flags of a plan",
        path="--manifest",
    )


READERS: Mapping[str, Callable[[Any], tuple[Any, dict[str, Any]]]] = {
    "training.vsr.dev": _of_vsr,
    "trainer.kubeflow.org": _of_kubeflow,
}
"""By the group of the API: what a TrainJob asks for, and the layout it states."""


def _show(body: dict[str, Any]) -> None:
    screen = console()
    if not body["findings"]:
        say(screen, "No known symptom in these logs.", style="bold")
    for one in body["findings"]:
        times = f", {one['count']:,} lines" if one["count"] > 1 else ""
        say(screen, f"{one['symptom'].replace('_', ' ')} ({one['severity']}{times})", style="bold")
        seen = one["evidence"]
        say(screen, f"  {seen['file']}:{seen['line']}: {seen['text']}", style="dim")
        say(screen, f"  cause: {one['cause']}")
        say(screen, f"  change: {one['change']}")
        for line in one["planner"]:
            say(screen, f"  planner: {line}")
