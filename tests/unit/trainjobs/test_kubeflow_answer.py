"""What a plan writes into a Kubeflow TrainJob."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest

from app.planner.layout import Layout
from app.trainjobs.adapter import Environment, Setting, WantsPlan
from app.trainjobs.kubeflow import KubeflowAdapter, RuntimeFacts
from app.trainjobs.kubeflow.names import MAX_ENV_ITEMS
from tests.kubeflow.jobs import (
    ENVIRONMENT,
    LAYOUT,
    NO_ENVIRONMENT,
    PREFIX,
    creation,
    env,
    env_of,
    job,
    patched,
    plan,
    worker,
)
from tests.kubeflow.schema import RELEASES, problems, without_zero_values

ADAPTER = KubeflowAdapter()
PLAN_ENV = {
    "TP_DEGREE": "2",
    "PP_DEGREE": "1",
    "CP_DEGREE": "1",
    "EP_DEGREE": "1",
    "DP_DEGREE": "8",
    "FSDP_DEGREE": "8",
    "MICRO_BATCH_SIZE": "1",
    "GRAD_ACCUM_STEPS": "16",
    "GLOBAL_BATCH_SIZE": "128",
    "ACTIVATION_CHECKPOINTING": "selective",
    "PRECISION": "bf16",
}


def operations(created, *, layout=LAYOUT, environment=NO_ENVIRONMENT, adapter=ADAPTER):
    return adapter.operations(
        created, plan=plan(layout), environment=environment, default_precision="bf16"
    )


def test_the_plan_travels_in_the_environment_in_order():
    assert list(env_of(patched(job())).items()) == list(PLAN_ENV.items())


def test_an_absent_list_is_created_whole():
    paths = [each.path for each in operations(job())]
    assert paths == [
        "/spec/trainer/env",
        "/spec/trainer/numProcPerNode",
        "/metadata/annotations/training.vsr.dev~1plan-result",
        "/metadata/annotations/training.vsr.dev~1auto-parallelism-reason",
        "/metadata/annotations/training.vsr.dev~1environment",
    ]


@pytest.mark.parametrize("present", [[], env(WANDB_MODE="offline")])
def test_a_present_list_is_appended_to(present):
    created = job(trainer=worker(env=present))
    ops = [each for each in operations(created) if each.path.startswith("/spec/trainer/env")]
    assert {each.path for each in ops} == {"/spec/trainer/env/-"}
    assert patched(created)["spec"]["trainer"]["env"][: len(present)] == present


def test_values_of_the_author_stay():
    created = job(trainer=worker(env=env(TP_DEGREE="4", PRECISION="fp16")))
    stored = env_of(patched(created))
    assert (stored["TP_DEGREE"], stored["PRECISION"]) == ("4", "fp16")


def test_a_value_from_elsewhere_stays():
    hidden = {"name": "TP_DEGREE", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "tp"}}}
    created = job(trainer=worker(env=[hidden]))
    assert patched(created)["spec"]["trainer"]["env"][0] == hidden
    assert list(env_of(patched(created))).count("TP_DEGREE") == 1


@pytest.mark.parametrize(
    ("layout", "extra"),
    [
        (
            replace(LAYOUT, sharding="hsdp", dp_shard=4),
            {"DP_REPLICATE_DEGREE": "2", "FSDP_DEGREE": "4"},
        ),
        (replace(LAYOUT, sharding="none"), {"DP_REPLICATE_DEGREE": "8", "FSDP_DEGREE": "1"}),
        (replace(LAYOUT, sharding="zero1"), {"FSDP_DEGREE": "8"}),
        (Layout(pp=2, vpp=4, dp=8, dp_shard=8), {"VPP_DEGREE": "4", "PP_DEGREE": "2"}),
    ],
)
def test_what_the_plan_needs_beyond_the_usual_is_added(layout, extra):
    stored = env_of(patched(job(), layout=layout))
    assert stored.items() >= extra.items()
    assert stored.keys() - PLAN_ENV.keys() == extra.keys() - PLAN_ENV.keys()


@pytest.mark.parametrize(
    "argument",
    ["--replicas=$(DP_REPLICATE_DEGREE)", "--replicas=${DP_REPLICATE_DEGREE}"],
)
def test_what_the_command_mentions_is_written(argument):
    created = job(trainer=worker(args=[argument, "$(SEQUENCE_LENGTH)", "$(SHARDING)"]))
    stored = env_of(patched(created))
    assert stored["DP_REPLICATE_DEGREE"] == "1"
    assert stored["SEQUENCE_LENGTH"] == "8192"
    assert stored["SHARDING"] == "zero3"


ACCELERATE_ENV = {
    "PARALLELISM_CONFIG_TP_SIZE": "2",
    "PARALLELISM_CONFIG_CP_SIZE": "1",
    "PARALLELISM_CONFIG_DP_SHARD_SIZE": "8",
    "PARALLELISM_CONFIG_DP_REPLICATE_SIZE": "1",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "true",
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_ACTIVATION_CHECKPOINTING": "true",
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "16",
    "ACCELERATE_MIXED_PRECISION": "bf16",
}


@pytest.mark.parametrize(
    ("launcher", "extra"),
    [
        ("torchrun", {}),
        ("megatron-lm", {}),
        ("torchtitan", {"LOCAL_BATCH_SIZE": "1", "RESHARD_AFTER_FORWARD": "always"}),
        ("deepspeed", {"ZERO_STAGE": "3"}),
        ("accelerate", ACCELERATE_ENV),
    ],
)
def test_each_launcher_gets_what_it_reads(launcher, extra):
    stored = env_of(patched(job(say={"model": "m", "launcher": launcher})))
    assert stored == {**PLAN_ENV, **extra}


def test_a_pipeline_of_torchtitan_takes_all_its_microbatches_at_once():
    created = job(say={"model": "m", "launcher": "torchtitan"})
    stored = env_of(patched(created, layout=Layout(pp=2, dp=8, dp_shard=8)))
    assert (stored["MICRO_BATCH_SIZE"], stored["LOCAL_BATCH_SIZE"]) == ("1", "16")


@pytest.mark.parametrize(
    ("trainer", "processes"),
    [
        (worker(), 8),
        (worker(resourcesPerNode={"requests": {"amd.com/gpu": "4"}}), 4),
        (worker(numProcPerNode="auto"), "auto"),
        (worker(numProcPerNode=2), 2),
        (worker(resourcesPerNode={"limits": {"nvidia.com/gpu": 8, "nvidia.com/gpumem": 1}}), None),
        (worker(env=env(PET_NNODES="2")), None),
    ],
)
def test_processes_are_set_only_when_unset_and_certain(trainer, processes):
    stored = patched(job(trainer=trainer))["spec"]["trainer"]
    assert stored.get("numProcPerNode") == processes


def test_an_annotation_makes_the_processes_certain():
    """Trainer would count 1 process for resources that only name memory."""
    created = job(
        trainer=worker(resourcesPerNode={"limits": {"memory": "1Ti"}}),
        say={"model": "m", "gpus_per_node": "8"},
    )
    assert patched(created)["spec"]["trainer"]["numProcPerNode"] == 8


def test_network_variables_wait_for_the_runtime_to_be_read():
    stored = env_of(patched(job(), environment=ENVIRONMENT))
    assert "NCCL_SOCKET_IFNAME" not in stored
    assert stored["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"


def test_a_stated_fabric_allows_network_variables():
    created = job(say={"model": "m", "fabric": "ethernet-100"})
    assert env_of(patched(created, environment=ENVIRONMENT))["NCCL_SOCKET_IFNAME"] == "eth0"


class Known:
    """A runtime that sets one of our variables itself."""

    def known(self, _reference):
        """Its facts."""
        return RuntimeFacts(environment={"TORCH_NCCL_DUMP_ON_TIMEOUT": "0"})


def test_a_runtime_that_was_read_keeps_its_own_values():
    stored = env_of(
        patched(job(), environment=ENVIRONMENT, adapter=KubeflowAdapter(runtimes=Known()))
    )
    assert "TORCH_NCCL_DUMP_ON_TIMEOUT" not in stored
    assert stored["NCCL_SOCKET_IFNAME"] == "eth0"


def test_nothing_empty_or_reserved_is_written():
    odd = Environment(
        settings=(
            Setting(name="EMPTY", value="", reason="", source=""),
            Setting(name="PET_NNODES", value="2", reason="", source=""),
        )
    )
    assert not {"EMPTY", "PET_NNODES"} & env_of(patched(job(), environment=odd)).keys()


@pytest.mark.parametrize("items", [MAX_ENV_ITEMS - 16, MAX_ENV_ITEMS - 13])
def test_the_list_stays_within_its_bound(items):
    created = job(trainer=worker(env=env(**{f"NAME_{i}": "x" for i in range(items)})))
    many = tuple(Setting(name=f"OURS_{i}", value="1", reason="", source="") for i in range(10))
    assert isinstance(ADAPTER.wish(creation(created)), WantsPlan)
    stored = env_of(patched(created, environment=Environment(settings=many)))
    assert len(stored) <= MAX_ENV_ITEMS
    assert stored.keys() >= PLAN_ENV.keys()


def test_the_annotations_say_what_was_planned_and_written():
    stored = patched(job(), environment=ENVIRONMENT)["metadata"]["annotations"]
    document = json.loads(stored[PREFIX + "plan-result"])
    assert document["layout"]["tp"] == 2
    assert document["gpu"] == "H100-SXM5-80"
    assert document["filled"] == {"numProcPerNode": 8}
    listed = json.loads(stored[PREFIX + "environment"])
    assert {each["name"] for each in listed} == {*PLAN_ENV, "TORCH_NCCL_DUMP_ON_TIMEOUT"}
    assert stored[PREFIX + "model"] == "llama-3.1-8b"


@pytest.mark.parametrize("environment", [NO_ENVIRONMENT, ENVIRONMENT])
@pytest.mark.parametrize(
    "created",
    [
        job(),
        job(trainer=worker(env=[])),
        job(trainer=worker(env=env(TP_DEGREE="2", NCCL_DEBUG="INFO"))),
        job(say={"model": "m", "launcher": "accelerate", "fabric": "x"}),
        job(trainer=worker(env=env(PET_NNODES="2"))),
    ],
)
def test_a_second_pass_writes_nothing_and_asks_the_same(created, environment):
    stored = patched(created, environment=environment)
    assert operations(stored, environment=environment) == ()
    assert ADAPTER.wish(creation(stored)) == ADAPTER.wish(creation(created))
    assert ADAPTER.collective_context(stored).user_env == (
        ADAPTER.collective_context(created).user_env
    )


def test_a_copied_manifest_is_planned_anew():
    """Variables we wrote into the original are brought up to date, not taken for the author's."""
    copied = patched(job())
    copied["spec"]["trainer"]["env"].append({"name": "LAST", "value": "1"})
    layout = Layout(tp=4, dp=4, dp_shard=4, recompute="selective")
    again = patched(copied, layout=layout)
    assert env_of(again)["TP_DEGREE"] == "4"
    assert [each["name"] for each in again["spec"]["trainer"]["env"]] == [*PLAN_ENV, "LAST"]
    assert operations(again, layout=layout) == ()


def test_an_edit_of_what_we_wrote_is_the_authors():
    stored = patched(job())
    stored["spec"]["trainer"]["env"][0]["value"] = "8"
    assert ADAPTER.wish(creation(stored)).intent.pins["tp"] == 8
    assert env_of(patched(stored))["TP_DEGREE"] == "8"


def test_our_variables_that_no_plan_needs_any_more_are_not_removed():
    pipelined = patched(job(), layout=Layout(pp=2, vpp=2, dp=8, dp_shard=8))
    flat = patched(pipelined)
    assert env_of(flat)["VPP_DEGREE"] == "1"
    assert operations(flat) == ()


@pytest.mark.parametrize("stated", [None, {}, {"kept": "x", "a/b~c": "y"}])
@pytest.mark.parametrize("listed", [None, [], env(A="1")])
def test_missing_parents_are_created_and_present_ones_kept(stated, listed):
    created = job(trainer=worker(env=listed))
    created["metadata"]["annotations"] = stated
    if stated is None:
        del created["metadata"]["annotations"]
    result = patched(created)
    assert result["metadata"]["annotations"].items() >= (stated or {}).items()
    assert result["spec"]["trainer"]["env"][: len(listed or [])] == (listed or [])


def test_no_plan_or_no_trainer_writes_nothing():
    nothing = ADAPTER.operations(
        job(), plan=None, environment=ENVIRONMENT, default_precision="bf16"
    )
    assert nothing == ()
    assert operations(job(trainer=None)) == ()
    assert operations(job(trainer="odd")) == ()


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("launcher", ["torchrun", "accelerate", "deepspeed", "torchtitan"])
def test_a_patched_job_is_valid_in_closed_mode(release, launcher):
    created = job(release=release, say={"model": "m", "launcher": launcher, "fabric": "x"})
    assert problems(created, release) == []
    assert problems(patched(created, environment=ENVIRONMENT), release) == []


def test_the_closed_schema_refuses_what_a_release_lacks():
    """The check itself: a field of 2.2 in a 2.1 object, a word in an integer, a double name."""
    assert problems(job(release="2.2"), "2.1")
    assert problems(job(trainer=worker(numProcPerNode="auto")), "2.2")
    assert problems(job(trainer=worker(env=[*env(A="1"), *env(A="2")])), "2.2")
    assert not problems(job(release="2.1", trainer=worker(numProcPerNode="auto")), "2.1")


def test_a_client_that_drops_zero_values_changes_nothing():
    """Kueue's full write must find `spec.trainer` as it is stored."""
    stored = patched(job(), environment=ENVIRONMENT)["spec"]["trainer"]
    assert without_zero_values(stored) == stored


def test_the_same_job_gets_the_same_bytes():
    first, second = (
        json.dumps(patched(copy.deepcopy(job()), environment=ENVIRONMENT)) for _ in range(2)
    )
    assert first == second


def test_a_job_that_states_all_of_it_gets_no_list_of_ours():
    created = job(trainer=worker(env=env(**PLAN_ENV)))
    assert {each.path for each in operations(created)} == {
        "/spec/trainer/numProcPerNode",
        "/metadata/annotations/training.vsr.dev~1plan-result",
        "/metadata/annotations/training.vsr.dev~1auto-parallelism-reason",
    }


def test_a_variable_of_an_earlier_environment_is_kept_as_ours():
    once = patched(job(), environment=ENVIRONMENT)
    again = patched(once)
    assert env_of(again)["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"
    assert operations(again) == ()


@pytest.mark.parametrize("record", ["not json", "[1]", '[{"name": 1}]', "{}"])
def test_a_record_that_is_not_ours_makes_nothing_ours(record):
    created = job(trainer=worker(env=env(TP_DEGREE="4")))
    created["metadata"]["annotations"][PREFIX + "environment"] = record
    assert env_of(patched(created))["TP_DEGREE"] == "4"
