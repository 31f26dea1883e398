"""The collective environment for people: what `/v1/environment` and `trainjob-advisor env` answer.

A question is that of a plan, with `model` optional, and what a job would show about its network.
With a model the environment is that of its plan, or of the `layout` given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from app.advisor.advise import Desk, EstimateAnswer, answer_estimate, resolve
from app.advisor.answers import Json, layout_body
from app.advisor.errors import Refusal
from app.advisor.requests import ESTIMATE_FIELDS, EstimateQuestion, parse_estimate_body
from app.catalog.reading import unknown_keys
from app.planner.intent import FieldError, TrainIntent
from app.planner.request import NoFeasiblePlan, Plan, PlanRequest, SearchStats
from app.trainjobs.adapter import CollectiveContext
from app.trainjobs.collectives import Rules
from app.trainjobs.collectives.facts import FEATURES_ANNOTATION
from app.trainjobs.labels import FABRIC

MAPS: Final = ("env", "resources", "annotations", "node_labels", "operator_values")
LISTS: Final = ("claims", "sidecars", "features")
TEXTS: Final = ("default_profile", "command")
DEGREES: Final = ("tp", "pp", "cp", "ep")
NO_MODEL: Final = "none asked for"
NOT_SEARCHED: Final = SearchStats(configurations=0, evaluated=0, legal=0, feasible=0)


def environment_body(
    body: Any,
    *,
    desk: Desk,
    rules: Rules,
    default_profile: str = "",
    operator_values: Mapping[str, str] | None = None,
) -> Json | Refusal:
    """What to set for the job `body` describes, why, and what to watch, or what is wrong with it.

    `default_profile` and `operator_values` are the operator's; the body may state its own.
    """
    question, shown = _split(body)
    errors = (*_unknown_keys(question), *_shown_errors(shown, rules))
    parsed = parse_estimate_body(question)
    if not isinstance(parsed, EstimateQuestion):
        return Refusal(code="invalid_request", errors=(*errors, *parsed))
    if errors:
        return Refusal(code="invalid_request", errors=errors)
    found = _resolved(question, parsed, desk)
    if isinstance(found, Refusal):
        return found
    request, planned = found
    plan = planned if isinstance(planned, Plan) else None
    operator = {"default_profile": default_profile, "operator_values": operator_values or {}}
    context = _context(parsed.intent, request, {**operator, **shown}, parsed.layout)
    assumed = _usual_network(context, parsed.intent, request, rules)
    answer = _answer(assumed or context, plan, rules)
    answer["warnings"][:0] = _why_not(planned)
    if assumed is not None:
        said = f"network {request.cluster.fabric} assumed, as a plan does; name yours by `fabric`"
        answer["advice"].insert(0, said)
    return answer


def _usual_network(
    context: CollectiveContext, intent: TrainIntent, request: PlanRequest, rules: Rules
) -> CollectiveContext | None:
    """The job on the network that its plan assumes; `None` where something else shows one."""
    stated = intent.fabric is not None or intent.instance_type is not None
    if stated or context.default_profile or context.nodes == 1:
        return None
    named = replace(context, annotations={FABRIC: request.cluster.fabric})
    assumed = replace(context, default_profile=rules.environment(named, None).profile)
    before, after = (rules.environment(each, None).profile for each in (context, assumed))
    return assumed if after != before else None


def _why_not(planned: Plan | NoFeasiblePlan | None) -> tuple[str, ...]:
    """What is wrong with the layout the environment is for, in one sentence at most."""
    if planned is None:
        return ()
    if isinstance(planned, NoFeasiblePlan):
        return planned.reasons[:1]
    return tuple(broken.message for broken in planned.estimate.violations[:1])


def _split(body: Any) -> tuple[Any, dict[str, Any]]:
    """The plan's part of the body, and the rest: what the job shows about its network.

    The parser insists on a model; one that nobody looks up stands in where none is given.
    """
    if not isinstance(body, Mapping):
        return body, {}
    own = {*MAPS, *LISTS, *TEXTS}
    shown = {key: value for key, value in body.items() if key in own and value is not None}
    question = {key: value for key, value in body.items() if key not in own}
    if question.get("model") is None:
        question["model"] = NO_MODEL
    return question, shown


def _unknown_keys(question: Any) -> tuple[FieldError, ...]:
    """Keys that neither a plan nor the network has, taken out of `question`."""
    if not isinstance(question, dict):
        return ()
    known = (*ESTIMATE_FIELDS, *MAPS, *LISTS, *TEXTS)
    errors = unknown_keys(question, known)
    for key in [key for key in question if key not in known]:
        del question[key]
    return tuple(errors)


def _shown_errors(shown: Mapping[str, Any], rules: Rules) -> tuple[FieldError, ...]:
    errors = []
    for key, value in shown.items():
        message = _complaint(key, value, rules)
        if message:
            errors.append(FieldError(path=key, value=value, message=f"`{key}` must be {message}"))
    return tuple(errors)


def _complaint(key: str, value: Any, rules: Rules) -> str:
    """What `value` should have been, "" if it is fine."""
    if key in MAPS:
        return "" if _is_map_of_texts(value) else "an object whose values are strings"
    if key in LISTS:
        return "" if _is_list_of_texts(value) else "a list of strings"
    if not isinstance(value, str):
        return "a string"
    if key == "default_profile" and value and value not in rules.profiles:
        return f"one of {', '.join(f'`{name}`' for name in rules.profiles)}"
    return ""


def _is_map_of_texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(text, str) for name, text in value.items()
    )


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(text, str) for text in value)


def _any_model(desk: Desk) -> str:
    """A model to resolve the cluster with; nothing of it reaches the answer."""
    return next(iter(desk.catalog.models))


def _resolved(
    question: Any, parsed: EstimateQuestion, desk: Desk
) -> tuple[PlanRequest, Plan | NoFeasiblePlan | None] | Refusal:
    """The cluster by its names, and the plan of the model, or the given layout in its form."""
    asked = question["model"] != NO_MODEL
    if asked and parsed.layout:
        judged = answer_estimate(question, desk)
        return judged if isinstance(judged, Refusal) else (judged.request, _as_plan(judged))
    intent = parsed.intent if asked else replace(parsed.intent, model=_any_model(desk))
    request = resolve(intent, desk)
    if isinstance(request, Refusal):
        return request
    return request, desk.planner(request) if asked else None


def _as_plan(judged: EstimateAnswer) -> Plan:
    return Plan(
        layout=judged.estimate.layout,
        estimate=judged.estimate,
        search=NOT_SEARCHED,
        explanation="",
        request=judged.request,
    )


def _context(
    intent: TrainIntent,
    request: PlanRequest,
    shown: Mapping[str, Any],
    layout: Mapping[str, Any],
) -> CollectiveContext:
    cluster = request.cluster
    stated = {**intent.pins, **layout}
    return CollectiveContext(
        nodes=cluster.nodes,
        gpus_per_node=cluster.gpus_per_node,
        gpu=cluster.gpu.name,
        gpu_family=cluster.gpu.family,
        gpu_exclusive=cluster.exclusive,
        instance_type=intent.instance_type or "",
        node_labels=shown.get("node_labels", {}),
        annotations=_annotations(intent, shown),
        resources=shown.get("resources", {}),
        claims=tuple(shown.get("claims", ())),
        sidecars=tuple(shown.get("sidecars", ())),
        user_env=shown.get("env", {}),
        framework=request.framework.name,
        default_profile=shown["default_profile"],
        operator_values=shown["operator_values"],
        degrees={name: stated[name] for name in DEGREES if isinstance(stated.get(name), int)},
        command=shown.get("command", ""),
    )


def _annotations(intent: TrainIntent, shown: Mapping[str, Any]) -> dict[str, str]:
    """The job's annotations, and as annotations what the body says in keys of its own."""
    annotations = dict(shown.get("annotations", {}))
    if isinstance(intent.fabric, str):
        annotations[FABRIC] = intent.fabric
    if shown.get("features"):
        annotations[FEATURES_ANNOTATION] = ",".join(shown["features"])
    return annotations


def _answer(context: CollectiveContext, plan: Plan | None, rules: Rules) -> Json:
    environment = rules.environment(context, plan)
    answer: Json = {
        "environment": [
            {
                "name": setting.name,
                "value": setting.value,
                "reason": setting.reason,
                "source": setting.source,
            }
            for setting in environment.settings
        ],
        "warnings": list(environment.warnings),
        "advice": list(rules.advise(context, plan)),
        "profile": environment.profile,
    }
    if plan is not None:
        answer["layout"] = layout_body(plan.layout)
    return answer
