"""`/v1/environment` and `trainjob-advisor env`: a question in, the environment with reasons out."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import pytest

from app.advisor.advise import Desk
from app.advisor.environment import environment_body
from app.advisor.errors import Refusal
from app.catalog.loader import load_catalog
from app.planner.search import plan
from app.trainjobs.collectives import Rules

CATALOG = load_catalog()
RULES = Rules.from_rows(CATALOG.collective_rules)
DESK = Desk(
    catalog=CATALOG, planner=plan, clock=perf_counter, allowed_precisions=("bf16", "fp16", "mxfp8")
)
H100 = "NVIDIA-H100-80GB-HBM3"


def ask(body: Any, **operator: Any) -> dict[str, Any]:
    answer = environment_body(body, desk=DESK, rules=RULES, **operator)
    assert not isinstance(answer, Refusal), answer
    return answer


def refusal(body: Any) -> dict[str, str]:
    answer = environment_body(body, desk=DESK, rules=RULES)
    assert isinstance(answer, Refusal)
    return {error.path: error.message for error in answer.errors}


def values(answer: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in answer["environment"]}


def test_an_instance_type_is_enough() -> None:
    answer = ask({"instance_type": "p5.48xlarge", "nodes": 4})
    assert answer["profile"] == "aws-efa"
    assert values(answer)["FI_PROVIDER"] == "efa"
    assert not [name for name in values(answer) if name.startswith("NCCL_IB_")]
    assert all(
        one.keys() == {"name", "value", "reason", "source"} and all(one.values())
        for one in answer["environment"]
    )


def test_the_network_is_the_one_a_plan_assumes() -> None:
    """Without one named: the same as with the usual one named, and said."""
    body = {"model": "llama-3-70b", "gpu": H100, "nodes": 8}
    assumed, named = ask(body), ask(body | {"fabric": "infiniband-400"})
    assert assumed["profile"] == named["profile"] == "ib-native"
    assert values(assumed) == values(named)
    assert "infiniband-400 assumed" in assumed["advice"][0]
    assert not any("assumed" in line for line in named["advice"])


@pytest.mark.parametrize(
    "more",
    [
        {"default_profile": "tcp"},
        {"resources": {"vpc.amazonaws.com/efa": "4"}},
        {"nodes": 1},
    ],
    ids=["operator", "resources", "one node"],
)
def test_what_shows_a_network_needs_no_assumption(more: dict[str, Any]) -> None:
    answer = ask({"gpu": H100, "nodes": 8} | more)
    assert answer["profile"] != "ib-native"
    assert not any("assumed" in line for line in answer["advice"])


def test_pinned_degrees_and_a_framework_count_without_a_model() -> None:
    answer = ask({"gpu": H100, "nodes": 2, "framework": "megatron", "pins": {"tp": 8}})
    assert values(answer)["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert "layout" not in answer


def test_with_a_model_the_environment_is_that_of_its_plan() -> None:
    body = {"model": "llama-3-70b", "gpu": H100, "nodes": 8, "framework": "megatron"}
    answer = ask(body)
    needs_order = answer["layout"]["tp"] > 1 or answer["layout"]["cp"] > 1
    assert (values(answer).get("CUDA_DEVICE_MAX_CONNECTIONS") == "1") is needs_order


def test_a_layout_near_capacity_gets_the_variables_of_the_public_report() -> None:
    """Megatron-Bridge issue 4587: out of memory without them, fine with them."""
    body = {
        "model": "qwen3-30b-a3b",
        "gpu": "B300",
        "nodes": 1,
        "framework": "megatron",
        "layout": {"tp": 1, "pp": 1, "cp": 1, "ep": 8, "microbatch_size": 8, "precision": "mxfp8"},
        "workload": {"sequence_length": 4096, "global_batch_size": 512},
    }
    expected = {
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_GRAPH_REGISTER": "0",
    }
    assert expected.items() <= values(ask(body)).items()
    roomy = {**body, "layout": {**body["layout"], "microbatch_size": 1, "recompute": "full"}}
    assert not expected.keys() & values(ask(roomy)).keys()


def test_what_the_job_shows_counts() -> None:
    answer = ask(
        {
            "gpu": H100,
            "nodes": 2,
            "fabric": "infiniband-400",
            "env": {"NCCL_IB_DISABLE": "1", "NCCL_DEBUG": "INFO"},
            "features": ["nccl-ub"],
        }
    )
    assert answer["profile"] == "ib-native"
    assert "NCCL_DEBUG" not in values(answer)
    assert values(answer)["NCCL_NVLS_ENABLE"] == "1"
    assert ["turns RDMA off" in warning for warning in answer["warnings"]] == [True]
    assert any("memory-backed" in advice for advice in answer["advice"])


def test_the_operator_counts_and_the_body_may_say_otherwise() -> None:
    body = {"gpu": H100, "nodes": 2}
    operator = {"default_profile": "ib-native", "operator_values": {"ib-hca": "mlx5"}}
    assert values(ask(body, **operator))["NCCL_IB_HCA"] == "mlx5"
    assert ask({**body, "default_profile": "tcp"}, **operator)["profile"] == "tcp"


def test_a_model_that_fits_nowhere_is_said_and_the_rest_answered() -> None:
    answer = ask({"model": "llama-3-405b", "gpu": H100, "nodes": 1})
    assert answer["profile"] == "single-node"
    assert answer["warnings"]
    assert "layout" not in answer


def test_a_layout_that_breaks_a_rule_is_said() -> None:
    answer = ask({"model": "llama-3-8b", "gpu": H100, "nodes": 1, "layout": {"tp": 3}})
    assert answer["layout"]["tp"] == 3
    assert "the job has 8 GPUs" in answer["warnings"][0]


def test_everything_wrong_is_said_at_once() -> None:
    found = refusal(
        {
            "gpu": H100,
            "nodes": 0,
            "resource": {},
            "resources": ["rdma/ib"],
            "claims": "efa",
            "command": 1,
            "default_profile": "fast",
        }
    )
    assert found.keys() == {
        "nodes",
        "resource",
        "resources",
        "claims",
        "command",
        "default_profile",
    }
    assert "`resources`" in found["resource"]
    assert "`ib-native`" in found["default_profile"]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ([], ""),
        ({"nodes": 2}, "gpu"),
        ({"gpu": "no such card"}, "gpu"),
        ({"gpu": H100, "env": {"NCCL_DEBUG": 1}}, "env"),
        ({"model": "no such model", "gpu": H100}, "model"),
        ({"model": "no such model", "gpu": H100, "layout": {"tp": 1}}, "model"),
        ({"model": "llama-3-8b", "gpu": H100, "layout": {"tp": "x"}}, "layout.tp"),
    ],
)
def test_what_cannot_be_answered_is_refused_by_its_path(body: Any, path: str) -> None:
    assert [found for found in refusal(body) if found.startswith(path)]
