"""Whatever a Kubeflow TrainJob holds, our patch touches our own paths and nothing else."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.planner.layout import RECOMPUTES, SHARDINGS, Layout
from app.trainjobs.adapter import WantsPlan
from app.trainjobs.kubeflow import KubeflowAdapter, runtime_facts
from app.trainjobs.patch import as_json
from tests.kubeflow.jobs import (
    ENVIRONMENT,
    NO_ENVIRONMENT,
    PREFIX,
    annotations,
    creation,
    env_of,
    job,
    patched,
    plan,
    update,
    worker,
)
from tests.kubeflow.schema import without_zero_values

ADAPTER = KubeflowAdapter()
OUR_ANNOTATIONS = {
    PREFIX + "plan-result",
    PREFIX + "auto-parallelism-reason",
    PREFIX + "environment",
}

keys = st.text(alphabet="abcXYZ/~ .é0", min_size=1, max_size=8).map("x-".__add__)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
extras = st.dictionaries(keys, values, max_size=3)
names = st.sampled_from(
    ["TP_DEGREE", "PRECISION", "FSDP_DEGREE", "NCCL_DEBUG", "TORCH_NCCL_DUMP_ON_TIMEOUT", "A", "B"]
)
good = {"PRECISION": "bf16"}


@st.composite
def variables(draw: st.DrawFn) -> list[dict[str, Any]]:
    """An `env` list without duplicate names, unknown fields included."""
    chosen = draw(st.lists(names, unique=True, max_size=5))
    return [{"name": name, "value": good.get(name, "2"), **draw(extras)} for name in chosen]


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    """Opted-in jobs with unknown fields at every level."""
    launcher = draw(st.sampled_from(["torchrun", "torchtitan", "deepspeed", "accelerate"]))
    listed = draw(st.none() | variables())
    created = job(
        release=draw(st.sampled_from(["2.0", "2.1", "2.2"])),
        trainer={**worker(env=listed), **draw(extras)},
        **draw(extras),
    )
    created["metadata"]["annotations"].update(annotations(launcher=launcher), **draw(texts))
    created["metadata"].update(draw(extras))
    created.update(draw(extras))
    return created


texts = st.dictionaries(keys, st.text(max_size=6), max_size=3)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Layouts of 16 GPUs."""
    tp, pp, cp = draw(st.sampled_from([(1, 1, 1), (2, 1, 1), (4, 2, 1), (2, 2, 2), (8, 1, 2)]))
    dp = 16 // (tp * pp * cp)
    sharding = draw(st.sampled_from(SHARDINGS))
    shard = draw(st.sampled_from([d for d in (1, 2, 4, 8, 16) if dp % d == 0]))
    return Layout(
        tp=tp,
        pp=pp,
        cp=cp,
        dp=dp,
        vpp=draw(st.sampled_from([1, 2])) if pp > 1 else 1,
        dp_shard=shard if sharding == "hsdp" else dp,
        sharding=sharding,
        recompute=draw(st.sampled_from(RECOMPUTES)),
        sequence_parallel=tp > 1,
    )


environments = st.sampled_from([NO_ENVIRONMENT, ENVIRONMENT])


def operations(created: Any, layout: Layout, environment: Any) -> Any:
    return ADAPTER.operations(
        created, plan=plan(layout), environment=environment, default_precision="bf16"
    )


@given(jobs(), layouts(), environments)
def test_everything_outside_our_paths_is_byte_equal(created, layout, environment):
    before = copy.deepcopy(created)
    result = patched(created, layout=layout, environment=environment)
    assert created == before
    listed = before["spec"]["trainer"].get("env")
    trainer = result["spec"]["trainer"]
    assert trainer["env"][: len(listed or [])] == (listed or [])
    if listed is None:
        del trainer["env"]
    else:
        trainer["env"] = trainer["env"][: len(listed)]
    trainer.pop("numProcPerNode")
    for key in OUR_ANNOTATIONS:
        del result["metadata"]["annotations"][key]
    assert json.dumps(result, sort_keys=True) == json.dumps(before, sort_keys=True)


@given(jobs(), layouts(), environments)
def test_only_additions_and_never_an_empty_value(created, layout, environment):
    for each in as_json(operations(created, layout, environment)):
        assert each["op"] == "add"
        assert without_zero_values({"value": each["value"]}) == {"value": each["value"]}


@given(jobs(), layouts(), environments)
def test_a_second_pass_has_no_patch(created, layout, environment):
    once = patched(created, layout=layout, environment=environment)
    assert operations(once, layout, environment) == ()
    assert ADAPTER.wish(creation(once)) == ADAPTER.wish(creation(created))
    env_of(once)


@given(jobs(), layouts())
def test_the_plan_is_read_back_from_the_job(created, layout):
    once = patched({**created, "spec": {**created["spec"], "trainer": worker()}}, layout=layout)
    assert Layout(**ADAPTER.declared_layout(once).fields) == layout


@given(jobs(), jobs())
def test_an_update_never_patches_nor_refuses(new, old):
    review = update(new, old)
    assert not isinstance(ADAPTER.wish(review), WantsPlan)
    assert ADAPTER.field_errors(review) == ()


odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "env", "name", "value", "spec", "template", "nodeSelector", "affinity",
                    "targetJobs", "replicatedJobs", "trainingRuntimeSpec", "limits", "numNodes",
                    "nvidia.com/gpu", "containers", "resourceClaims", "metadata", "annotations",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "trainer", "podSpecOverrides", "podTemplateOverrides", "runtimePatches",
                "runtimeRef", "suspend",
            ]
        ),
        odd,
    ),
    st.dictionaries(
        st.sampled_from(
            sorted(annotations(model=0, architecture=0, gpu=0, pins=0, environment=0, fabric=0))
        ),
        odd,
    ),
    odd,
)  # fmt: skip
def test_nothing_misshapen_makes_it_fail(spec, stated, runtime):
    created = {
        "metadata": {"labels": {PREFIX + "plan": "auto"}, "annotations": stated},
        "spec": {**spec},
    }
    ADAPTER.wish(creation(created))
    ADAPTER.field_errors(creation(created))
    ADAPTER.warnings(creation(created))
    ADAPTER.collective_context(created)
    ADAPTER.declared_layout(created)
    ADAPTER.wish(update(created, {"spec": runtime}))
    ADAPTER.operations(created, plan=plan(), environment=ENVIRONMENT, default_precision="bf16")


@given(
    st.dictionaries(st.sampled_from(["spec", "mlPolicy", "template"]), odd),
    st.dictionaries(st.sampled_from(["template", "name"]), odd),
)
def test_a_misshapen_runtime_is_a_runtime_that_says_nothing_odd(document, replicated):
    runtime_facts(document)
    jobs_of = {"spec": {"template": {"spec": {"replicatedJobs": [replicated, {"name": "node"}]}}}}
    facts = runtime_facts(jobs_of)
    assert facts.nodes is None
    assert "node" in facts.targets
