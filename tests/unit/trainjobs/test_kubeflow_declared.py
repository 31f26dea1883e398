"""The layout a Kubeflow TrainJob states, for judging it."""

from __future__ import annotations

import pytest

from app.planner.layout import Layout
from app.trainjobs.kubeflow import KubeflowAdapter
from tests.kubeflow.jobs import LAYOUT, env, job, patched, worker

ADAPTER = KubeflowAdapter()


def declared(created):
    return ADAPTER.declared_layout(created)


def test_our_own_plan_is_read_back_whole():
    layout = Layout(
        tp=2, cp=2, dp=4, dp_shard=4, sharding="zero2", sequence_parallel=True, microbatch_size=2
    )
    stated = declared(patched(job(), layout=layout))
    assert Layout(**stated.fields) == layout
    assert stated.intent.global_batch_size == 128
    assert stated.intent.pins == {}


def test_an_edited_variable_counts_and_the_rest_of_the_plan_does_not():
    stored = patched(job())
    stored["spec"]["trainer"]["env"][0]["value"] = "8"
    stated = declared(stored)
    assert stated.fields["tp"] == 8
    assert stated.paths["tp"] == "spec.trainer.env[0].value"
    assert "vpp" not in stated.fields


@pytest.mark.parametrize(
    ("variables", "fields"),
    [
        ({"TP_DEGREE": "8"}, {"tp": 8}),
        ({"PRECISION": "fp8", "PP_DEGREE": "4"}, {"pp": 4, "precision": "fp8"}),
        (
            {"DP_DEGREE": "8", "FSDP_DEGREE": "2"},
            {"dp": 8, "dp_shard": 2, "sharding": "hsdp"},
        ),
        ({"DP_DEGREE": "8", "FSDP_DEGREE": "1"}, {"dp": 8, "sharding": "none"}),
    ],
)
def test_the_authors_variables_are_a_layout(variables, fields):
    assert declared(job(trainer=worker(env=env(**variables)))).fields == fields


def test_every_layout_field_has_a_place():
    created = job(
        trainer=worker(env=env(TP_DEGREE="8")), say={"model": "m", "pins": '{"sharding": "zero1"}'}
    )
    paths = declared(created).paths
    assert paths["tp"] == "spec.trainer.env[0].value"
    assert paths["cp"] == "spec.trainer.env"
    assert paths["sharding"] == "metadata.annotations[training.vsr.dev/pins]"


def test_pins_count_as_stated():
    created = job(
        trainer=worker(env=env(TP_DEGREE="8")), say={"model": "m", "pins": '{"sharding": "zero1"}'}
    )
    assert declared(created).fields == {"tp": 8, "sharding": "zero1"}


@pytest.mark.parametrize(
    "created",
    [
        job(),
        job(trainer=worker(env=env(TP_DEGREE="2")), labels={"training.vsr.dev/plan": "no"}),
        job(trainer=worker(env=env(TP_DEGREE="2")), gpu_label=None),
        job(trainer=worker(env=env(TP_DEGREE="two"))),
    ],
    ids=["no variables", "not opted in", "unknown GPU", "unreadable"],
)
def test_what_cannot_be_judged_states_nothing(created):
    assert declared(created) is None


def test_updates_are_never_judged():
    """A running job belongs to Kueue and Trainer: see decide.newly_declared."""
    assert ADAPTER.judges_updates is False
    assert LAYOUT.world_size == 16
