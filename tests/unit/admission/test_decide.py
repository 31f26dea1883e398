"""Who decides, on whose fault, and what is nobody's business."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from app.admission.decide import Decision, Deps, mutate, validate
from app.admission.review import parse_review
from app.planner.request import NoFeasiblePlan, PlanRequest
from app.trainjobs.adapter import CollectiveContext
from tests.vsr.reviews import auto_job, manual_job, review_of, shipped


def decided(job: dict[str, Any], deps: Deps, **request: Any) -> Decision:
    """What /mutate decides."""
    return mutate(parse_review(json.dumps(review_of(job, **request)).encode()), deps)


@pytest.mark.parametrize("fault", [RuntimeError, MemoryError, TimeoutError, RecursionError])
@pytest.mark.parametrize("part", ["plan", "resolve", "environment"])
def test_our_own_fault_is_no_refusal(fault: type[Exception], part: str) -> None:
    """kubernetes-sigs/controller-runtime#2662: a fault answered as a refusal defeats Ignore."""

    def fail(*_: Any, **__: Any) -> Any:
        raise fault

    with pytest.raises(fault):
        decided(auto_job(), replace(shipped(), **{part: fail}))


@pytest.mark.parametrize(
    ("job", "outcome", "reason"),
    [
        (auto_job(), "patched", ""),
        (manual_job(), "patched", ""),
        (auto_job(model="llama-9"), "denied", "unresolved"),
        (auto_job(model="llama-3-405b"), "denied", "infeasible"),
        (auto_job(numNodes="two"), "denied", "invalid"),
        (manual_job(numNodes="two"), "patched", ""),
        ({"metadata": {}}, "skipped", "no-spec"),
    ],
)
def test_outcomes_are_words_of_a_closed_set(job: Any, outcome: str, reason: str) -> None:
    decision = decided(job, shipped())
    assert (decision.outcome, decision.reason) == (outcome, reason)
    assert decision.allowed == (outcome != "denied")
    assert bool(decision.operations) == (outcome == "patched")


def test_a_refusal_names_every_reason() -> None:
    """What cannot be resolved and what is wrong besides, once each."""
    decision = decided(auto_job(model="llama-9", nodeSelector={}, image=""), shipped())
    assert [each.path for each in decision.causes] == [
        "spec.model",
        "spec.nodeSelector",
        "spec.image",
    ]
    assert all(each.message in decision.message for each in decision.causes)


def test_nothing_fits_says_by_how_much_and_what_would() -> None:
    decision = decided(auto_job(model="llama-3-405b"), shipped())
    assert isinstance(decision.plan, NoFeasiblePlan)
    assert "GiB too much" in decision.message
    assert "nodes instead of 1" in decision.message


def test_an_excluded_namespace_gets_not_even_a_default() -> None:
    """kubernetes-sigs/kueue#13374: a job outside the scope was suspended and waited forever."""
    job = manual_job()
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    deps = replace(shipped(), excluded_namespaces=frozenset({"research"}))
    for decide in (mutate, validate):
        review = parse_review(json.dumps(review_of(job)).encode())
        decision = decide(review, deps)
        assert (decision.outcome, decision.reason) == ("skipped", "namespace-excluded")


def test_the_environment_rules_see_the_planned_cluster() -> None:
    seen: list[tuple[CollectiveContext, Any]] = []

    def environment(context: CollectiveContext, plan: Any) -> Any:
        seen.append((context, plan))
        return shipped().environment(context, plan)

    deps = replace(shipped(), environment=environment, default_profile="tcp")
    decided(auto_job(numNodes=2), deps)
    decided(manual_job(nodeSelector={"nvidia.com/gpu.product": "Tesla-T4"}), deps)
    (planned, plan), (manual, none) = seen
    assert (planned.nodes, planned.gpus_per_node, planned.gpu_family) == (2, 8, "hopper")
    assert (planned.framework, planned.default_profile) == ("fsdp", "tcp")
    assert isinstance(plan.request, PlanRequest)
    assert (manual.gpu_family, none) == ("turing", None)
    assert manual.degrees == {"tp": 2, "pp": 1}


def test_a_jobs_size_does_not_change_what_it_costs() -> None:
    """volcano-sh/volcano#3358: the answer for thousands of nodes is as short as for one."""
    small = decided(auto_job(numNodes=2), shipped())
    large = decided(auto_job(numNodes=512), shipped())
    assert len(small.operations) == len(large.operations)
