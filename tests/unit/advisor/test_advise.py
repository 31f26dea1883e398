"""Questions answered with the real catalog and planner: the shapes other tools rely on."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from app.advisor.advise import (
    Desk,
    EstimateAnswer,
    PlanAnswer,
    answer_estimate,
    answer_plan,
    judge,
)
from app.advisor.errors import SHOWN_ERRORS, Refusal, refusal_body
from app.advisor.requests import EstimateQuestion
from app.catalog.loader import load_catalog
from app.planner.intent import FieldError, TrainIntent
from app.planner.request import Plan
from app.planner.search import plan

SMALL = {"model": "llama-3-8b", "gpu": "NVIDIA-H100-80GB-HBM3", "nodes": 1}
MEMORY_TERMS = {
    "total",
    "parameters",
    "gradients",
    "optimizer",
    "activations",
    "logits",
    "buffers",
    "communicators",
    "reserve",
}
TIME_TERMS = {"compute", "tp", "cp", "ep", "pp_bubble", "pp_p2p", "dp", "optimizer"}
LAYOUT_FIELDS = {
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "dp",
    "dp_shard",
    "sharding",
    "sequence_parallel",
    "microbatch_size",
    "recompute",
    "precision",
    "stage_layers",
}


@pytest.fixture(scope="module")
def desk() -> Desk:
    """The real catalog and search; a clock that moves a second at each look."""
    ticks = count()
    return Desk(
        catalog=load_catalog(),
        planner=plan,
        clock=lambda: float(next(ticks)),
        allowed_precisions=("bf16", "fp16"),
    )


def planned(desk: Desk, **change: Any) -> dict[str, Any]:
    """The body of a plan that must be answered."""
    answer = answer_plan(SMALL | change, desk)
    assert isinstance(answer, PlanAnswer), answer
    return answer.body


def estimated(desk: Desk, layout: dict[str, Any], **change: Any) -> dict[str, Any]:
    """The body of an estimate that must be answered."""
    answer = answer_estimate(SMALL | change | {"layout": layout}, desk)
    assert isinstance(answer, EstimateAnswer), answer
    return answer.body


def refused(answer: Any) -> dict[str, Any]:
    """The error of a question that must be refused."""
    assert isinstance(answer, Refusal), answer
    error: dict[str, Any] = refusal_body(answer)["error"]
    assert {"code", "message", "path"} <= set(error)
    return error


def test_a_plan_has_all_its_parts(desk: Desk) -> None:
    body = planned(desk)
    assert set(body) == {
        "layout",
        "estimate",
        "alternatives",
        "search",
        "explanation",
        "architecture",
        "cluster",
        "framework",
        "workload",
        "catalog_version",
    }
    assert set(body["layout"]) == LAYOUT_FIELDS
    assert body["estimate"]["fits"] is True
    assert body["estimate"]["legal"] is True
    assert set(body["search"]) == {
        "configurations",
        "evaluated",
        "legal",
        "feasible",
        "duration_seconds",
    }
    assert body["search"]["duration_seconds"] == 1.0
    assert body["explanation"]
    assert all(set(one) == {"layout", "estimate", "why_not"} for one in body["alternatives"])


def test_names_are_answered_as_they_were_resolved(desk: Desk) -> None:
    body = planned(desk)
    assert body["cluster"] == {
        "gpu": "H100-SXM5-80GB",
        "nodes": 1,
        "gpus_per_node": 8,
        "fabric": "infiniband-400",
        "instance_type": None,
    }
    assert body["architecture"]["params"] == 8_030_261_248
    assert body["architecture"]["active_params"] == 8_030_261_248
    assert body["framework"] == "fsdp"
    assert body["workload"]["global_batch_size"] > 0
    assert "lora_rank" not in body["workload"]


def test_terms_of_an_estimate_add_up(desk: Desk) -> None:
    estimate = planned(desk)["estimate"]
    memory, time = estimate["memory_bytes"], estimate["time_seconds"]
    assert set(memory) == MEMORY_TERMS
    assert set(time) == TIME_TERMS
    assert sum(memory[name] for name in MEMORY_TERMS - {"total"}) == pytest.approx(memory["total"])
    assert sum(time.values()) == pytest.approx(estimate["step_time_seconds"])


def test_an_estimate_of_the_plan_says_the_same(desk: Desk) -> None:
    """What the search found is what judging its layout gives."""
    body = planned(desk)
    judged = estimated(desk, body["layout"])
    assert judged["layout"] == body["layout"]
    assert {name: judged[name] for name in body["estimate"]} == body["estimate"]


def test_absent_layout_fields_take_defaults(desk: Desk) -> None:
    layout = estimated(desk, {"tp": 2})["layout"]
    assert (layout["tp"], layout["pp"], layout["dp"]) == (2, 1, 4)
    assert layout["sharding"] == "zero3"


def test_an_illegal_layout_is_still_computed(desk: Desk) -> None:
    body = estimated(desk, {"tp": 3, "dp": 2})
    assert body["legal"] is False
    assert all(set(one) == {"rule", "field", "message"} for one in body["violations"])
    assert "tp" in {one["field"] for one in body["violations"]}
    assert body["memory_bytes"]["total"] > 0
    assert body["step_time_seconds"] > 0


def test_what_the_gpu_cannot_do_at_all_has_no_numbers(desk: Desk) -> None:
    body = estimated(desk, {"precision": "nvfp4"})
    assert body["legal"] is False
    assert body["memory_bytes"] == dict.fromkeys(MEMORY_TERMS)
    assert body["time_seconds"] == dict.fromkeys(TIME_TERMS)
    assert body["step_time_seconds"] is None
    assert body["gpu_memory_bytes"] > 0


def test_nothing_fits_is_an_answer(desk: Desk) -> None:
    body = planned(desk, model="llama-3-70b", gpu="T4", gpus_per_node=2)
    assert "layout" not in body
    infeasible = body["infeasible"]
    assert infeasible["reasons"]
    assert infeasible["nearest"]["short_by_bytes"] > 0
    assert set(infeasible["nearest"]["layout"]) == LAYOUT_FIELDS
    assert infeasible["nearest"]["estimate"]["fits"] is False
    assert isinstance(infeasible["remedies"], list)
    assert body["catalog_version"] == desk.catalog.version


def test_a_pipeline_nobody_can_mean_is_refused_at_once(desk: Desk) -> None:
    """Memory is judged stage by stage, so the number of stages has a bound."""
    error = refused(answer_estimate(SMALL | {"layout": {"pp": 10**9}}, desk))
    assert error["path"] == "layout.pp"


def test_pins_are_kept(desk: Desk) -> None:
    layout = planned(desk, pins={"tp": 4, "recompute": "full"})["layout"]
    assert (layout["tp"], layout["recompute"]) == (4, "full")


def test_pins_nobody_can_keep_are_infeasible_and_say_so(desk: Desk) -> None:
    assert planned(desk, pins={"tp": 3})["infeasible"]["reasons"]


def test_an_answered_architecture_can_be_asked_again(desk: Desk) -> None:
    """The answer's `architecture` is a request's, so an answer explains itself completely."""
    for name in ("llama-3-8b", "mixtral-8x7b", "deepseek-v3"):
        first = planned(desk, model=name, nodes=64)
        again = planned(desk, model={"architecture": first["architecture"]}, nodes=64)
        assert again["architecture"] == first["architecture"]


def test_active_parameters_of_experts_are_fewer(desk: Desk) -> None:
    shape = planned(desk, model="mixtral-8x7b", nodes=8)["architecture"]
    assert shape["active_params"] < shape["params"]
    assert shape["moe"]["num_experts"] == 8


def test_bodies_are_strict_json(desk: Desk) -> None:
    for body in (
        planned(desk),
        planned(desk, gpu="T4"),
        estimated(desk, {"precision": "nvfp4"}),
        estimated(desk, {"tp": 10**9, "pp": 2**14, "microbatch_size": 10**9}),
    ):
        assert json.loads(json.dumps(body, allow_nan=False)) == body


def test_the_same_question_has_the_same_answer(desk: Desk) -> None:
    first, second = planned(desk), planned(desk)
    assert first == second


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        ({"gpu": "H1000"}, "gpu", "H100"),
        ({"model": "lama-3-70b"}, "model", "llama-3-70b"),
        ({"fabric": "infiniband-4000"}, "fabric", "infiniband-400"),
        ({"framework": "megatrons"}, "framework", "megatron"),
        (
            {"model": {"architecture": {"hidden_size": 64}}},
            "model.architecture.num_heads",
            "num_heads",
        ),
        ({"model": {"hf_config": {"model_type": "mamba"}}}, "model.hf_config.model_type", "mamba"),
    ],
)
def test_an_unknown_name_is_an_error_that_names_what_is_near(
    desk: Desk, change: dict[str, Any], path: str, words: str
) -> None:
    error = refused(answer_plan(SMALL | change, desk))
    assert error["code"] == "unresolved"
    assert path in {error["path"], *(one["path"] for one in error.get("details", ()))}
    assert words in error["message"]


def test_all_errors_are_listed(desk: Desk) -> None:
    error = refused(answer_plan({"model": "m", "gpu": "g", "nodes": 0, "pins": {"tp": 0}}, desk))
    assert [one["path"] for one in error["details"]] == ["nodes", "pins.tp"]
    assert error["path"] == "nodes"


def test_the_layout_s_errors_stand_under_layout(desk: Desk) -> None:
    error = refused(answer_estimate(SMALL | {"layout": {"tpp": 2}}, desk))
    assert error["path"] == "layout.tpp"
    assert "did you mean `tp`" in error["message"]


def test_narrow_precisions_are_chosen_only_where_allowed(desk: Desk) -> None:
    answer = answer_plan(SMALL, desk)
    assert isinstance(answer, PlanAnswer)
    assert isinstance(answer.outcome, Plan)
    assert answer.outcome.layout.precision == "bf16"


def test_the_planner_s_own_errors_stand_under_layout_too(desk: Desk) -> None:
    intent = TrainIntent(model="llama-3-8b", gpu="H100-SXM5-80GB")
    error = refused(judge(EstimateQuestion(intent=intent, layout={"tp": "two"}), desk))
    assert error["path"] == "layout.tp"


def test_the_rank_of_adapters_is_answered_where_there_are_any(desk: Desk) -> None:
    workload = planned(desk, workload={"task": "lora", "lora_rank": 8})["workload"]
    assert (workload["task"], workload["lora_rank"]) == ("lora", 8)


@pytest.mark.parametrize("where", ["", "workload", "pins", "fabric", "model", "model.architecture"])
def test_a_flood_of_unknown_keys_is_answered_briefly(where: str, desk: Desk) -> None:
    """A few are told, each with the name it is most like; of the rest their number."""
    flood = {"x" * 1_000_000: 1} | {f"k{number}": number for number in range(50_000)}
    body: dict[str, Any] = SMALL | {"model": {"architecture": {"hidden_size": 64}}}
    here = body
    for key in filter(None, where.split(".")):
        here[key] = dict(here.get(key) or {})
        here = here[key]
    here.update(flood)
    error = refused(answer_plan(body, desk))
    assert "49985 more keys are not known" in error["message"]
    assert len(str(error)) < 50_000


def test_many_errors_are_counted() -> None:
    errors = tuple(FieldError(path=f"p{n}", value=n, message=f"m{n}") for n in range(1000))
    error = refusal_body(Refusal(code="invalid_request", errors=errors))["error"]
    assert len(error["details"]) == SHOWN_ERRORS
    assert error["message"].endswith(f"m{SHOWN_ERRORS - 1}; and {1000 - SHOWN_ERRORS} more errors")
