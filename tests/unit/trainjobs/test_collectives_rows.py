"""Rule tables: a bad row never loads, and a provider is added by rows alone."""

from __future__ import annotations

from typing import Any

import pytest

from app.trainjobs.adapter import CollectiveContext
from app.trainjobs.collectives import BadRule, Rules
from app.trainjobs.collectives.conditions import condition
from app.trainjobs.collectives.facts import facts_of


def row(kind: str, **cells: str) -> dict[str, str]:
    defaults = {"source": "somebody", "reason": "because", "file": f"{kind}.csv", "line": "7"}
    more = {
        "set": {"basis": "default", "confidence": "high", "when": ""},
        "warn": {"spoken": "always", "when": ""},
        "variable": {"class": "system", "scope": "network"},
        "profile": {"role": "fabric", "link": "rdma", "parent": "", "options": ""},
        "detect": {"tier": "node"},
    }
    return {"kind": kind, **defaults, **more.get(kind, {}), **cells}


BASE = [
    row("profile", profile="tcp", link="tcp"),
    row("profile", profile="generic", link="unknown"),
    row("variable", variable="NCCL_IB_HCA"),
    row("variable", variable="NCCL_ALGO", **{"class": "debugging", "scope": "node"}),
    row("reserved", variable="PET_*"),
    row("reserved", variable="MASTER_ADDR"),
]
PROVIDER = [
    row("profile", profile="acme-ib"),
    row("detect", profile="acme-ib", when="label:acme.example/pool~gpu"),
    row("set", profile="acme-ib", variable="NCCL_IB_HCA", value="acme"),
    row("warn", profile="acme-ib", variable="NCCL_ALGO", reason="Acme asks to leave NCCL_ALGO"),
]


def test_a_provider_is_added_by_rows_alone() -> None:
    context = CollectiveContext(
        nodes=2,
        gpus_per_node=8,
        node_labels={"acme.example/pool": "gpu-8"},
        user_env={"NCCL_ALGO": "Tree"},
    )
    before = Rules.from_rows(BASE).environment(context, None)
    after = Rules.from_rows([*BASE, *PROVIDER]).environment(context, None)
    assert (before.profile, before.settings) == ("tcp", ())
    assert after.profile == "acme-ib"
    assert [(one.name, one.value) for one in after.settings] == [("NCCL_IB_HCA", "acme")]
    assert after.warnings == ("Acme asks to leave NCCL_ALGO",)


SET = {"profile": "common", "variable": "NCCL_IB_HCA", "value": "x"}
BAD: dict[str, tuple[dict[str, str], str]] = {
    "kind": (row("sett"), "`kind` is `sett`; it must be one of"),
    "no source": (row("set", **SET, source=""), "`source` must not be empty"),
    "no reason": (row("set", **SET, reason=" "), "`reason` must not be empty"),
    "long reason": (row("set", **SET, reason="x" * 121), "121 characters"),
    "no value": (row("set", **{**SET, "value": ""}), "`value` must not be empty"),
    "unknown profile": (row("set", **{**SET, "profile": "acme"}), "`profile` is `acme`"),
    "undescribed variable": (row("set", **{**SET, "variable": "NCCL_X"}), "must be described"),
    "reserved name": (row("set", **{**SET, "variable": "MASTER_ADDR"}), "is reserved"),
    "reserved prefix": (row("set", **{**SET, "variable": "PET_NNODES"}), "is reserved"),
    "debugging by default": (row("set", **{**SET, "variable": "NCCL_ALGO"}), "debugging class"),
    "unknown basis": (row("set", **SET, basis="hope"), "`basis` is `hope`"),
    "placeholder without operator": (row("set", **{**SET, "value": "<hca>"}), "must be `operator`"),
    "broken placeholder": (row("set", **{**SET, "value": "<A b>"}), "a placeholder must read"),
    "condition": (row("set", **SET, when="tp>many"), "`many` must be a number"),
    "warned variable": (row("warn", profile="common", variable="X"), "must be described"),
    "sign without condition": (row("detect", profile="tcp", when=""), "`when` must not be empty"),
    "tier": (row("detect", profile="tcp", when="tp>1", tier="guess"), "`tier` is `guess`"),
    "parent": (row("profile", profile="a", parent="b"), "parent `b` must be a profile"),
    "self": (row("profile", profile="a", parent="a"), "must not refine itself"),
    "twice": (row("profile", profile="tcp"), "must be named once"),
    "section": (row("profile", profile="common"), "must be named once"),
    "option": (row("profile", profile="a", options="half"), "must be `whole` or `bare`"),
    "variable twice": (row("variable", variable="NCCL_ALGO"), "must be described once"),
    "lower case": (row("variable", variable="nccl_algo"), "in capitals"),
}


@pytest.mark.parametrize(("bad", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_row_says_where_it_stands_and_what_would_be_right(
    bad: dict[str, str], message: str
) -> None:
    with pytest.raises(BadRule) as caught:
        Rules.from_rows([*BASE, bad])
    assert message in str(caught.value)
    assert f"{bad['kind']}.csv, line 7" in str(caught.value)


def test_a_row_without_a_file_is_named_by_its_number() -> None:
    bare = {key: cell for key, cell in BAD["no value"][0].items() if key not in {"file", "line"}}
    with pytest.raises(BadRule, match=r"row 7 \(set common NCCL_IB_HCA\)"):
        Rules.from_rows([*BASE, bare])


def test_what_is_never_set_cannot_be_set() -> None:
    never = row("never", profile="common", variable="NCCL_IB_HCA")
    with pytest.raises(BadRule, match="`never` row"):
        Rules.from_rows([*BASE, never, row("set", **SET)])


def test_the_fallbacks_must_exist() -> None:
    with pytest.raises(BadRule, match="generic"):
        Rules.from_rows(BASE[:1])


CONTEXT = CollectiveContext(
    nodes=2,
    gpus_per_node=8,
    gpu="NVIDIA-H100-80GB-HBM3",
    gpu_family="hopper",
    framework="megatron",
    degrees={"tp": 4},
    resources={"rdma/hca_shared_a": "1", "rdma/ib": "0"},
    claims=("a", "compute-domain-channel"),
    annotations={"training.vsr.dev/features": "nccl-ub, cuda-graphs"},
    user_env={"NCCL_ALGO": "Ring", "EMPTY": ""},
    node_labels={"pool": "a"},
)
CONDITIONS: dict[str, bool] = {
    "": True,
    "nodes>1": True,
    "nodes=1 or world>=16": True,
    "nodes<=1; world=16": False,
    "tp!=4": False,
    "pp": False,
    "no pp": True,
    "pp>1": False,
    "pp<100": False,
    "pp!=1": True,
    "family<blackwell": True,
    "family>=hopper": True,
    "family!=ada": True,
    "family=hopper": True,
    "no family": False,
    "framework=fsdp,megatron": True,
    "framework!=fsdp": True,
    "framework~^mega": True,
    "framework!~^mega": False,
    "sharding!=zero3": True,
    "no sharding": True,
    "gpu~H100": True,
    "claim": True,
    "sidecar": False,
    "claim~compute-domain": True,
    "no claim~compute-domain": False,
    "claim=b": False,
    "feature=nccl-ub": True,
    "feature!=nccl-ub": False,
    "resource:rdma/ib": False,
    "resource:rdma/hca_shared_*": True,
    "no resource:rdma/hca_shared_*": False,
    "resource:nvidia.com/*": False,
    "env:NCCL_ALGO=Ring,Tree": True,
    "env:NCCL_ALGO!=Ring": False,
    "env:ABSENT!=1": True,
    "env:EMPTY": True,
    "env:ABSENT": False,
    "label:pool~^a$": True,
}


@pytest.mark.parametrize(("text", "expected"), CONDITIONS.items())
def test_a_condition_reads_as_it_says(text: str, expected: bool) -> None:
    assert condition(text)(facts_of(CONTEXT, None)) is expected


def test_families_of_other_vendors_compare_with_none() -> None:
    facts = facts_of(CollectiveContext(nodes=1, gpus_per_node=8, gpu_family="cdna3"), None)
    assert not condition("family<blackwell")(facts)
    assert not condition("family>=hopper")(facts)
    assert condition("family!=hopper")(facts)


@pytest.mark.parametrize(
    "text",
    [
        "Nodes>1",
        "label=1",
        "tp:x>1",
        "speed>1",
        "tp~1",
        "family<fermi",
        "family~a",
        "gpu~[",
        "framework<a",
        "resource:a*=1",
    ],
)
def test_a_condition_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must|take|compare"):
        condition(text)


def test_other_facts_come_from_labels() -> None:
    labels: dict[str, Any] = {
        "nvidia.com/gpu.family": "ada-lovelace",
        "beta.kubernetes.io/instance-type": "g6e.48xlarge",
        "cloud.google.com/gke-accelerator": "nvidia-l4",
    }
    facts = facts_of(CollectiveContext(nodes=1, gpus_per_node=8, node_labels=labels), None)
    assert (facts.instance, facts.gpu) == ("g6e.48xlarge", "nvidia-l4")
    assert condition("family>ampere; family<hopper")(facts)
