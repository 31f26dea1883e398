"""What holds of the environment whatever the rules and the job say."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.trainjobs.adapter import CollectiveContext
from app.trainjobs.collectives import Rules
from app.trainjobs.collectives.rows import BASES, tables

DATA = Path(__file__).resolve().parents[2] / "app/catalog/data/collectives"
ROWS = [
    row
    for path in sorted(DATA.glob("*.csv"))
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())
]
SHIPPED = Rules.from_rows(ROWS)
TABLES = tables(ROWS)
NAMES = sorted(TABLES.variables)
FRAME = [row for row in ROWS if row["kind"] != "set"]
PROFILES = sorted({"common", "plan", *TABLES.profiles})
NEVER = {(rule.profile, rule.variable) for rule in TABLES.nevers}

maybe_text = st.sampled_from(["", "0", "1", "Ring", "IB", "mlx5_0", "expandable_segments:True"])
contexts = st.builds(
    CollectiveContext,
    nodes=st.integers(1, 64),
    gpus_per_node=st.sampled_from([1, 4, 8]),
    gpu=st.sampled_from(["", "NVIDIA-H100-80GB-HBM3", "NVIDIA-GB200", "RTX-4090", "MI300X"]),
    gpu_family=st.sampled_from(["", "ada", "hopper", "blackwell", "cdna3"]),
    gpu_exclusive=st.booleans(),
    instance_type=st.sampled_from(
        ["", "p5.48xlarge", "BM.GPU.H100.8", "BM.GPU.GB300.4", "a4-highgpu-8g", "x,p5.48xlarge"]
    ),
    resources=st.dictionaries(
        st.sampled_from(["rdma/ib", "vpc.amazonaws.com/efa", "nvidia.com/rdma-vf"]),
        st.sampled_from(["0", "1"]),
    ),
    claims=st.sampled_from([(), ("compute-domain-channel",), ("mrdma.google.com",)]),
    sidecars=st.sampled_from([(), ("tcpx-daemon",), ("tcpxo-daemon",)]),
    user_env=st.dictionaries(st.sampled_from(NAMES), maybe_text, max_size=6),
    framework=st.sampled_from(["", "fsdp", "megatron"]),
    default_profile=st.sampled_from(["", "ib-native", "roce-generic", "no-such"]),
    operator_values=st.dictionaries(
        st.sampled_from(["ib-hca", "ib-tc", "dump-dir", "socket-ifname", "nccl-conf", "imex"]),
        st.sampled_from(["", " ", "x"]),
    ),
    degrees=st.dictionaries(st.sampled_from(["tp", "cp", "ep"]), st.integers(1, 8)),
    annotations=st.builds(
        lambda words: {"training.vsr.dev/features": ",".join(words)},
        st.lists(st.sampled_from(["tight-memory", "nccl-ub", "moe-overlap", "cuda-graphs"])),
    ),
)


def set_row(profile: str, name: str, value: str, basis: str) -> dict[str, str | None]:
    return {
        "kind": "set",
        "profile": profile,
        "variable": name,
        "value": value,
        "basis": basis,
        "confidence": "high",
        "reason": "a drawn rule",
        "source": "nobody",
    }


any_rules = st.lists(
    st.builds(
        set_row,
        st.sampled_from(PROFILES),
        st.sampled_from(NAMES),
        st.sampled_from(["0", "1", "x,y"]),
        st.sampled_from([basis for basis in BASES if basis != "default"]),
    ).filter(lambda row: (row["profile"], row["variable"]) not in NEVER),
    max_size=20,
)


def check(rules: Rules, context: CollectiveContext) -> None:
    found = rules.environment(context, None)
    names = [setting.name for setting in found.settings]
    assert len(set(names)) == len(names)
    for setting in found.settings:
        variable = TABLES.variables[setting.name]
        assert not set(variable.names) & context.user_env.keys()
        assert setting.value.strip()
        assert "<" not in setting.value
        assert rules.reserved(setting.name) is None
        assert context.nodes > 1 or variable.scope != "network"
    assert rules.environment(context, None) == found


@given(contexts)
def test_the_shipped_rules_never_touch_what_the_user_set(context: CollectiveContext) -> None:
    """Nor set an empty value, a reserved name, or a network on one node; twice is once."""
    check(SHIPPED, context)


@given(contexts, any_rules)
def test_no_rule_set_touches_what_the_user_set(
    context: CollectiveContext, rules: list[dict[str, Any]]
) -> None:
    check(Rules.from_rows([*FRAME, *rules]), context)


@given(contexts)
def test_applying_the_answer_asks_for_nothing_new(context: CollectiveContext) -> None:
    """A job that already has the values gets none again, and no other value of any of them."""
    found = SHIPPED.environment(context, None)
    assert {one.name for one in found.settings}.isdisjoint(context.user_env)


others = st.dictionaries(st.sampled_from(["RUN", "HF_TOKEN", "example.com/note"]), maybe_text)
commands = st.sampled_from(["", "train --lr=1", "train --lr=2", "set_nccl_env; train"])


@given(contexts, others, others, commands, commands)
def test_contexts_that_show_the_same_have_the_same_environment(
    context: CollectiveContext,
    annotations: dict[str, str],
    variables: dict[str, str],
    command: str,
    other: str,
) -> None:
    """What no rule looks at changes nothing, and what one looks at is seen."""
    first = replace(context, command=command)
    second = replace(
        context,
        command=other,
        annotations={**context.annotations, **annotations},
        user_env={**context.user_env, **variables},
    )
    same = SHIPPED.shown(first) == SHIPPED.shown(second)
    assert same is (("set_nccl_env" in command) == ("set_nccl_env" in other))
    if same:
        assert SHIPPED.environment(first, None) == SHIPPED.environment(second, None)


@given(contexts, contexts)
def test_different_environments_are_of_contexts_that_show_it(
    first: CollectiveContext, second: CollectiveContext
) -> None:
    if SHIPPED.environment(first, None) != SHIPPED.environment(second, None):
        assert SHIPPED.shown(first) != SHIPPED.shown(second)
