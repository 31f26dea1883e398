"""What `/v1/launch` and `trainjob-advisor launch` answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from app.advisor.advise import Desk, resolve
from app.advisor.answers import Json, judged_body, layout_body, plan_body, question_body
from app.advisor.errors import Refusal
from app.advisor.launch.launchers import LAUNCHERS
from app.advisor.launch.setup import File, Launch, Launcher, Setup
from app.advisor.launch.tips import strategy, tips
from app.advisor.requests import EstimateQuestion, parse_estimate_body
from app.catalog.reading import quoted, shown
from app.planner.estimate import complete, estimate, limit_bytes
from app.planner.explain import estimate_line, excess
from app.planner.intent import FieldError
from app.planner.layout import Layout
from app.planner.refuse import WITHOUT_PINS
from app.planner.request import Estimate, NoFeasiblePlan, Plan, PlanRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAnswer:
    """The files, or why nothing fits: `launch` is then `None`."""

    launch: Launch | None
    outcome: NoFeasiblePlan | None
    body: Json


def answer_launch(body: Any, desk: Desk) -> LaunchAnswer | Refusal:
    """Files and command for the plan of `body`, or for the layout it gives."""
    launcher = _launcher(body)
    if isinstance(launcher, Refusal):
        return launcher
    rest = {key: value for key, value in body.items() if key != "launcher"}
    if rest.get("framework") is None:
        rest["framework"] = launcher.profiles[0]
    question = parse_estimate_body(rest)
    if not isinstance(question, EstimateQuestion):
        return Refusal(code="invalid_request", errors=question)
    request = resolve(question.intent, desk)
    if isinstance(request, Refusal):
        return request
    wrong = _wrong_profile(launcher, request)
    if wrong:
        return wrong
    judged = (
        _given(request, question)
        if body.get("layout")
        else _planned(launcher, question, request, desk)
    )
    if isinstance(judged, NoFeasiblePlan):
        judged = _limits_named(judged, launcher, question.intent.pins)
        nothing = plan_body(judged, duration_seconds=0.0)
        return LaunchAnswer(
            launch=None, outcome=judged, body={"launcher": launcher.name, **nothing}
        )
    if isinstance(judged, Refusal):
        return judged
    label = desk.catalog.label_of(question.intent.gpu, request.cluster.gpu.name)
    return _rendered(launcher, Setup(request=request, estimate=judged, node_label=label))


def _launcher(body: Any) -> Launcher | Refusal:
    if not isinstance(body, Mapping):
        message = "the request must be a JSON object with the keys of a plan and `launcher`"
        return _refusal("", body, message)
    name = body.get("launcher")
    if isinstance(name, str) and name in LAUNCHERS:
        return LAUNCHERS[name]
    message = f"`launcher` must be one of {quoted(LAUNCHERS)}, not {shown(name)}"
    return _refusal("launcher", name, message)


def _refusal(path: str, value: Any, *messages: str) -> Refusal:
    errors = tuple(FieldError(path=path, value=value, message=message) for message in messages)
    return Refusal(code="invalid_request", errors=errors)


def _wrong_profile(launcher: Launcher, request: PlanRequest) -> Refusal | None:
    name = request.framework.name
    if name in launcher.profiles:
        return None
    message = (
        f"{launcher.release} does not do what the profile `{name}` says; `framework` must be one "
        f"of {quoted(launcher.profiles)} for the launcher {launcher.name}"
    )
    return _refusal("framework", name, message)


def _given(request: PlanRequest, question: EstimateQuestion) -> Estimate | Refusal:
    """The layout of the question, which must be legal."""
    layout = complete(request, question.layout)
    if not isinstance(layout, Layout):
        errors = tuple(replace(one, path=f"layout.{one.path}") for one in layout)
        return Refusal(code="invalid_request", errors=errors)
    judged = estimate(request, layout)
    if judged.legal:
        return judged
    errors = tuple(
        FieldError(path=f"layout.{one.field}", value=None, message=one.message)
        for one in judged.violations
    )
    return Refusal(code="invalid_request", errors=errors)


def _planned(
    launcher: Launcher, question: EstimateQuestion, request: PlanRequest, desk: Desk
) -> Estimate | NoFeasiblePlan | Refusal:
    """The fastest plan that the launcher can write.

    First with what leaves no choice pinned; where the plan still names a value that the launcher
    does not know, once for each combination of the values it does.
    """
    pins = dict(question.intent.pins)
    fixed = {
        name: values[0]
        for name, values in launcher.allowed.items()
        if len(values) == 1 and name not in pins
    }
    outcome = _plan(question, {**fixed, **pins}, desk)
    if not isinstance(outcome, Plan) or not _unknown(launcher, outcome.layout):
        return outcome.estimate if isinstance(outcome, Plan) else outcome
    open_fields = {
        name: values
        for name, values in launcher.allowed.items()
        if len(values) > 1 and name not in pins
    }
    tried = [
        _plan(question, {**fixed, **pins, **choice}, desk)
        for choice in _choices(open_fields, request)
    ]
    plans = [one for one in tried if isinstance(one, Plan)]
    if plans:
        return min(plans, key=lambda one: one.estimate.step_time_seconds).estimate
    misses = [one for one in tried if isinstance(one, NoFeasiblePlan)]
    if misses:
        return min(misses, key=lambda one: one.short_by_bytes)
    return outcome.estimate


def _limits_named(
    nothing: NoFeasiblePlan, launcher: Launcher, pins: Mapping[str, Any]
) -> NoFeasiblePlan:
    """The refusal, with the pins that are the launcher's own called so."""
    own = [name for name in launcher.allowed if name not in pins]
    if not own:
        return nothing
    launcher_limits = "; ".join(f"{name} {_words(launcher.allowed[name])}" for name in own)
    limits = f"the limits of the launcher {launcher.name} ({launcher_limits})"
    both = f"{limits} and your pins" if pins else limits
    said = f"the same job without {both} would fit"
    told = (said if one == WITHOUT_PINS else one for one in nothing.remedies)
    return replace(nothing, remedies=tuple(told))


def _choices(
    fields: Mapping[str, tuple[Any, ...]], request: PlanRequest
) -> Iterator[dict[str, Any]]:
    kept = {
        name: tuple(one for one in values if _offered(name, one, request))
        for name, values in fields.items()
    }
    for values in product(*kept.values()):
        yield dict(zip(kept, values, strict=True))


def _offered(name: str, value: Any, request: PlanRequest) -> bool:
    offered: Mapping[str, Any] = {
        "precision": request.allowed_precisions,
        "sharding": request.framework.states,
        "recompute": request.framework.kept,
    }
    supported = name != "precision" or request.cluster.gpu.supports(value)
    return supported and value in offered.get(name, (value,))


def _plan(
    question: EstimateQuestion, pins: Mapping[str, Any], desk: Desk
) -> Plan | NoFeasiblePlan | Refusal:
    request = resolve(replace(question.intent, pins=pins), desk)
    return request if isinstance(request, Refusal) else desk.planner(request)


def _unknown(launcher: Launcher, layout: Layout) -> tuple[FieldError, ...]:
    """Fields of a layout that the launcher has no word for."""
    return tuple(
        FieldError(
            path=f"layout.{name}",
            value=getattr(layout, name),
            message=f"{launcher.release} cannot start `{name}` {getattr(layout, name)}; it "
            f"must be {_words(values)}",
        )
        for name, values in launcher.allowed.items()
        if getattr(layout, name) not in values and not _idle(name, layout)
    )


def _words(values: tuple[Any, ...]) -> str:
    return " or ".join(str(one).lower() for one in values)


def _idle(name: str, layout: Layout) -> bool:
    """Sequence parallelism means nothing with one tensor-parallel rank."""
    return name == "sequence_parallel" and layout.tp == 1


def _rendered(launcher: Launcher, setup: Setup) -> LaunchAnswer | Refusal:
    errors = (
        *_unknown(launcher, setup.layout),
        *(
            FieldError(path="launcher", value=launcher.name, message=message)
            for message in launcher.refuse(setup)
        ),
    )
    if errors:
        return Refusal(code="invalid_request", errors=errors)
    launch = launcher.render(setup)
    judged = setup.estimate
    body: Json = {
        "launcher": launcher.name,
        "release": launcher.release,
        "source": launcher.source,
        "summary": estimate_line(judged, setup.request.framework),
        "files": [_file(one) for one in launch.files],
        "command": list(launch.command),
        "notes": list(launch.notes),
        "warnings": _warnings(setup),
        "strategy": strategy(setup),
        "tips": tips(setup),
        "layout": layout_body(setup.layout),
        "estimate": judged_body(judged),
        **question_body(setup.request),
    }
    return LaunchAnswer(launch=launch, outcome=None, body=body)


def _file(one: File) -> Json:
    return {"name": one.name, "language": one.language, "content": one.content}


def _warnings(setup: Setup) -> list[str]:
    over = setup.estimate.memory.total - limit_bytes(setup.request)
    if over <= 0:
        return []
    return [
        (
            f"this layout needs {excess(over)} GiB more than a plan may use of the card; it may "
            "run out of memory"
        )
    ]
