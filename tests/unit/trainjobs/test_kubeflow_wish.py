"""What a Kubeflow TrainJob asks for, and what it leaves unknown."""

from __future__ import annotations

import copy

import pytest

from app.trainjobs.adapter import Malformed, Skip, Undecidable, WantsPlan
from app.trainjobs.kubeflow import (
    KubeflowAdapter,
    RuntimeFacts,
    RuntimeReference,
    runtime_facts,
    wanted_runtime,
)
from tests.kubeflow.jobs import (
    A100,
    H100,
    annotations,
    creation,
    env,
    job,
    on_nodes,
    patch,
    update,
    worker,
)

ADAPTER = KubeflowAdapter()
HF = '{"model_type": "llama", "hidden_size": 4096}'


def intent(created):
    wish = ADAPTER.wish(creation(created))
    assert isinstance(wish, WantsPlan), wish
    return wish.intent


def test_everything_a_job_shows_reaches_the_intent():
    wanted = intent(
        job(
            say={
                "model": "llama-3.1-8b",
                "gpu": "H100",
                "sequence_length": "8192",
                "global_batch_size": "256",
                "task": "qlora",
                "lora_rank": "64",
                "optimizer": "sgd",
                "offload": "optimizer",
                "framework": "megatron",
                "fabric": '{"bytes_per_second_per_gpu": 5e10}',
                "instance_type": "p5.48xlarge",
                "pins": '{"tp": 4}',
            }
        )
    )
    assert (wanted.model, wanted.gpu, wanted.nodes, wanted.gpus_per_node) == (
        "llama-3.1-8b",
        "H100",
        2,
        8,
    )
    assert (wanted.sequence_length, wanted.global_batch_size) == (8192, 256)
    assert (wanted.task, wanted.lora_rank) == ("qlora", 64)
    assert (wanted.optimizer, wanted.offload) == ("sgd", "optimizer")
    assert wanted.framework == "megatron"
    assert wanted.fabric == {"bytes_per_second_per_gpu": 5e10}
    assert wanted.instance_type == "p5.48xlarge"
    assert wanted.pins == {"tp": 4, "vpp": 1}
    assert wanted.node_labels == {"nvidia.com/gpu.product": H100}
    assert wanted.path("gpu") == "metadata.annotations[training.vsr.dev/gpu]"


@pytest.mark.parametrize(
    ("say", "field", "value"),
    [
        ({"model": "m"}, "model", "m"),
        ({"architecture": '{"hidden_size": 64}'}, "architecture", {"hidden_size": 64}),
        ({"hf_config": HF}, "hf_config", {"model_type": "llama", "hidden_size": 4096}),
    ],
)
def test_a_model_is_named_or_described(say, field, value):
    assert getattr(intent(job(say=say)), field) == value


@pytest.mark.parametrize("release", ["2.0", "2.1", "2.2"])
def test_node_labels_are_read_where_each_release_has_them(release):
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {
                                "key": "nvidia.com/gpu.product",
                                "operator": "In",
                                "values": [H100],
                            },
                            {"key": "zone", "operator": "In", "values": ["a", "b"]},
                            {"key": "spot", "operator": "DoesNotExist"},
                        ]
                    }
                ]
            }
        }
    }
    nodes = on_nodes(release, {"affinity": affinity})
    assert intent(job(gpu_label=None, **nodes)).node_labels == {"nvidia.com/gpu.product": H100}


def test_alternative_affinity_terms_count_only_where_they_agree():
    def term(gpu):
        expression = {"key": "nvidia.com/gpu.product", "operator": "In", "values": [gpu]}
        pool = {"key": "accelerator", "operator": "In", "values": ["h100"]}
        return {"matchExpressions": [expression, pool]}

    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [term(H100), term(A100)]
        }
    }
    pods = {"affinity": {"nodeAffinity": required}}
    created = job(gpu_label=None, runtimePatches=[patch(pods)])
    assert intent(created).node_labels == {"accelerator": "h100"}


def test_the_last_override_of_the_training_job_wins():
    created = job(
        runtimePatches=[
            patch({"nodeSelector": {"nvidia.com/gpu.product": H100, "pool": "a"}}),
            patch({"nodeSelector": {"nvidia.com/gpu.product": A100}}, manager="example.com/b"),
            patch({"nodeSelector": {"pool": "b"}}, target="dataset-initializer"),
        ]
    )
    assert intent(created).node_labels == {"nvidia.com/gpu.product": A100, "pool": "a"}


@pytest.mark.parametrize("release", ["2.0", "2.1", "2.2"])
def test_an_override_for_a_job_whose_name_is_no_text_is_nobodys(release):
    created = job(
        gpu_label=None, **on_nodes(release, {"nodeSelector": {"pool": "a"}}, target=["node"])
    )
    assert ADAPTER.wish(creation(created)) == ADAPTER.wish(creation(job(gpu_label=None)))


@pytest.mark.parametrize(
    ("created", "settles"),
    [
        (job(trainer=worker(numNodes=None)), "spec.trainer.numNodes"),
        (job(trainer=worker(resourcesPerNode=None)), "training.vsr.dev/gpus-per-node"),
        (
            job(trainer=worker(resourcesPerNode={"requests": {"memory": "1Ti"}})),
            "training.vsr.dev/gpus-per-node",
        ),
        (
            job(trainer=worker(resourcesPerNode={"limits": {"nvidia.com/mig-1g.10gb": 8}})),
            "training.vsr.dev/gpus-per-node",
        ),
        (job(gpu_label=None), "training.vsr.dev/gpu"),
        (job(say={}), "training.vsr.dev/model"),
    ],
    ids=["nodes", "gpus", "memory only", "mig", "gpu type", "model"],
)
def test_what_only_the_runtime_knows_is_not_guessed(created, settles):
    wish = ADAPTER.wish(creation(created))
    assert isinstance(wish, Undecidable)
    assert settles in wish.warnings[0]
    assert len(wish.warnings[0]) <= 120


def test_annotations_settle_what_the_runtime_hides():
    created = job(
        gpu_label=None,
        trainer=worker(numNodes=None, resourcesPerNode=None),
        say={"model": "m", "gpu": "H100", "nodes": "4", "gpus_per_node": "8"},
    )
    wanted = intent(created)
    assert (wanted.nodes, wanted.gpus_per_node) == (4, 8)


RUNTIME = {
    "spec": {
        "mlPolicy": {"numNodes": 3, "torch": {}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {
                                "labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
                            },
                            "spec": {
                                "template": {
                                    "metadata": {"annotations": {"nets": "rdma"}},
                                    "spec": {
                                        "nodeSelector": {"nvidia.com/gpu.product": A100},
                                        "containers": [
                                            {"name": "tcpx-daemon"},
                                            {
                                                "name": "node",
                                                "env": env(NCCL_DEBUG="WARN"),
                                                "resources": {"limits": {"nvidia.com/gpu": 4}},
                                            },
                                        ],
                                    },
                                }
                            },
                        },
                    }
                ]
            }
        },
    }
}


class OneRuntime:
    """One runtime that was read."""

    def __init__(self, facts: RuntimeFacts) -> None:
        self.facts = facts

    def known(self, reference: RuntimeReference) -> RuntimeFacts | None:
        """The runtime, by its name."""
        return self.facts if reference.name == "torch-distributed" else None


def test_a_runtime_that_was_read_answers_what_the_job_leaves_out():
    adapter = KubeflowAdapter(runtimes=OneRuntime(runtime_facts(RUNTIME)))
    created = job(gpu_label=None, trainer=worker(numNodes=None, resourcesPerNode=None))
    wish = adapter.wish(creation(created))
    assert isinstance(wish, WantsPlan)
    assert (wish.intent.nodes, wish.intent.gpus_per_node) == (3, 4)
    assert wish.intent.node_labels == {"nvidia.com/gpu.product": A100}
    context = adapter.collective_context(created)
    assert context.annotations["nets"] == "rdma"
    assert context.sidecars == ("tcpx-daemon",)
    assert context.resources == {"nvidia.com/gpu": "4"}


def test_a_job_beats_its_runtime():
    adapter = KubeflowAdapter(runtimes=OneRuntime(runtime_facts(RUNTIME)))
    wish = adapter.wish(creation(job()))
    assert isinstance(wish, WantsPlan)
    assert (wish.intent.nodes, wish.intent.gpus_per_node) == (2, 8)
    assert wish.intent.node_labels == {"nvidia.com/gpu.product": H100}


def changed(created, **metadata):
    other = copy.deepcopy(created)
    other["metadata"].update(metadata)
    return other


@pytest.mark.parametrize(
    ("review", "reason"),
    [
        (creation(changed(job(), labels={})), "not-opted-in"),
        (creation(changed(job(), labels={"training.vsr.dev/plan": "off"})), "not-opted-in"),
        (creation(job(), subresource="status"), "subresource"),
        (update(job(), job()), "not-a-creation"),
        (update(job(), job(), subresource="status"), "subresource"),
        (creation({}, operation="DELETE", old=job()), "not-opted-in"),
        (update(changed(job(), deletionTimestamp="2026-01-01T00:00:00Z"), job()), "deleting"),
        (creation(changed(job(), deletionTimestamp="2026-01-01T00:00:00Z")), "deleting"),
    ],
)
def test_only_the_creation_of_an_opted_in_job_is_planned(review, reason):
    wish = ADAPTER.wish(review)
    assert wish == Skip(reason=reason)
    assert ADAPTER.field_errors(review) == ()
    assert ADAPTER.warnings(review) == ()


def test_a_misspelt_opt_in_is_told():
    wish = ADAPTER.wish(creation(changed(job(), labels={"training.vsr.dev/plan": "Auto"})))
    assert wish.warnings == ("no plan: the label training.vsr.dev/plan must be `auto`",)


def test_a_job_without_trainer_is_left_alone():
    """Creating `spec.trainer` would make Trainer set its torch variables: another launch."""
    wish = ADAPTER.wish(creation(job(trainer=None)))
    assert isinstance(wish, Undecidable)
    assert "spec.trainer is absent" in wish.warnings[0]


@pytest.mark.parametrize(
    ("created", "path", "words"),
    [
        (job(trainer=worker(numNodes=0)), "spec.trainer.numNodes", "at least 1"),
        (job(trainer=worker(numNodes=-4)), "spec.trainer.numNodes", "at least 1"),
        (
            job(trainer=worker(resourcesPerNode={"limits": {"nvidia.com/gpu": "many"}})),
            "spec.trainer.resourcesPerNode.limits[nvidia.com/gpu]",
            "whole number",
        ),
        (
            job(
                trainer=worker(
                    resourcesPerNode={
                        "limits": {"nvidia.com/gpu": 8},
                        "requests": {"nvidia.com/gpu": 4},
                    }
                )
            ),
            "spec.trainer.resourcesPerNode",
            "must be equal",
        ),
        (
            job(say={"model": "m", "gpus_per_node": "4"}),
            "metadata.annotations[training.vsr.dev/gpus-per-node]",
            "must equal the 8 GPUs",
        ),
        (
            job(say={"model": "m", "sequence_length": "8k"}),
            "metadata.annotations[training.vsr.dev/sequence-length]",
            "whole number",
        ),
        (
            job(say={"model": "m", "pins": '{"tensor": 4}'}),
            "metadata.annotations[training.vsr.dev/pins]",
            "it can fix tp, pp",
        ),
        (
            job(say={"model": "m", "launcher": "slurm"}),
            "metadata.annotations[training.vsr.dev/launcher]",
            "torchtitan",
        ),
        (
            job(say={"model": "m", "hf_config": HF}),
            "metadata.annotations[training.vsr.dev/model]",
            "must stand alone",
        ),
        (
            job(trainer=worker(env=env(TP_DEGREE="eight"))),
            "spec.trainer.env[0].value",
            "at least 1",
        ),
        (
            job(trainer=worker(env=env(PRECISION="half"))),
            "spec.trainer.env[0].value",
            "one of fp32",
        ),
        (
            job(trainer=worker(env=env(TP_DEGREE="8")), say={"model": "m", "pins": '{"tp": 4}'}),
            "spec.trainer.env[0].value",
            "disagrees with",
        ),
        (
            job(trainer=worker(env=env(GLOBAL_BATCH_SIZE="64"))),
            "spec.trainer.env[0].value",
            "which says 128",
        ),
        (
            job(trainer=worker(env=env(DP_DEGREE="8", MICRO_BATCH_SIZE="1", GRAD_ACCUM_STEPS="4"))),
            "spec.trainer.env[2].value",
            "global batch 128",
        ),
        (
            job(say={"model": "m", "nodes": "3"}),
            "metadata.annotations[training.vsr.dev/nodes]",
            "which says 2",
        ),
        (
            job(say={"model": " "}),
            "metadata.annotations[training.vsr.dev/model]",
            "must not be empty",
        ),
        (
            job(say={"architecture": "{"}),
            "metadata.annotations[training.vsr.dev/architecture]",
            "JSON object",
        ),
        (
            job(say={"hf_config": "[]"}),
            "metadata.annotations[training.vsr.dev/hf-config]",
            "JSON object",
        ),
        (
            job(say={"model": "m", "gpu": 8}),
            "metadata.annotations[training.vsr.dev/gpu]",
            "must be a string",
        ),
        (
            job(
                trainer=worker(env=env(TP_DEGREE="2", PARALLELISM_CONFIG_TP_SIZE="4")),
                say={"model": "m", "launcher": "accelerate"},
            ),
            "spec.trainer.env[1].value",
            "disagrees with spec.trainer.env[0].value",
        ),
        (
            job(trainer=worker(env=env(DP_DEGREE="16", FSDP_DEGREE="3"))),
            "spec.trainer.env[1].value",
            "must equal the data-parallel degree 16",
        ),
    ],
)
def test_a_field_that_cannot_be_read_is_named(created, path, words):
    wish = ADAPTER.wish(creation(created))
    assert isinstance(wish, Malformed)
    (error,) = wish.errors
    assert error.path == path
    assert words in error.message
    assert ADAPTER.field_errors(creation(created)) == wish.errors


def test_all_errors_come_at_once():
    created = job(
        trainer=worker(numNodes=0, env=env(TP_DEGREE="x", PRECISION="y")),
        say={"model": "m", "gpus_per_node": "z"},
    )
    assert len(ADAPTER.field_errors(creation(created))) == 4


@pytest.mark.parametrize(
    ("variables", "pins"),
    [
        ({"TP_DEGREE": "4"}, {"tp": 4}),
        (
            {"MICRO_BATCH_SIZE": "2", "PRECISION": "fp16"},
            {"microbatch_size": 2, "precision": "fp16"},
        ),
        ({"ACTIVATION_CHECKPOINTING": "full"}, {"recompute": "full"}),
        ({"DP_DEGREE": "8", "FSDP_DEGREE": "8"}, {"dp": 8}),
        ({"DP_DEGREE": "8", "FSDP_DEGREE": "1"}, {"dp": 8, "sharding": "none"}),
        (
            {"FSDP_DEGREE": "4", "DP_REPLICATE_DEGREE": "2"},
            {"dp": 8, "dp_shard": 4, "sharding": "hsdp"},
        ),
        ({"FSDP_DEGREE": "8"}, {"dp_shard": 8}),
        ({"ZERO_STAGE": "2"}, {"sharding": "zero2"}),
    ],
)
def test_what_the_author_set_is_planned_around(variables, pins):
    wanted = intent(job(trainer=worker(env=env(**variables))))
    assert wanted.pins == {"vpp": 1, **pins}


def test_virtual_stages_need_a_variable_to_travel_in():
    free = worker(args=["train.py", "--vpp=$(VPP_DEGREE)"])
    assert "vpp" not in intent(job(trainer=free)).pins


@pytest.mark.parametrize(
    ("launcher", "framework", "pins"),
    [
        ("torchtitan", "fsdp", {"vpp": 1}),
        ("megatron-lm", "megatron", {"vpp": 1}),
        ("deepspeed", "deepspeed", {"vpp": 1}),
        ("accelerate", "fsdp", {"vpp": 1, "pp": 1, "ep": 1}),
    ],
)
def test_a_launcher_brings_its_profile_and_its_limits(launcher, framework, pins):
    wanted = intent(job(say={"model": "m", "launcher": launcher}))
    assert (wanted.framework, wanted.pins) == (framework, pins)


def test_env_without_room_is_told():
    full = env(**{f"NAME_{index}": "x" for index in range(120)})
    wish = ADAPTER.wish(creation(job(trainer=worker(env=full))))
    assert isinstance(wish, Undecidable)
    assert "room for 8" in wish.warnings[0]


def warned(created):
    return " | ".join(ADAPTER.warnings(creation(created)))


@pytest.mark.parametrize(
    ("created", "words"),
    [
        (
            job(
                trainer=worker(env=env(WANDB_MODE="")),
                labels={"kueue.x-k8s.io/queue-name": "gpus"},
            ),
            "WANDB_MODE has an empty value",
        ),
        (job(trainer=worker(env=env(PET_NNODES="2"))), "PET_NNODES is reserved"),
        (job(trainer=worker(env=env(PET_NNODES="2"))), "numProcPerNode is left unset"),
        (
            job(
                trainer=worker(
                    resourcesPerNode={"limits": {"nvidia.com/gpu": 8, "nvidia.com/gpumem": 4000}}
                )
            ),
            "nvidia.com/gpumem does not count whole GPUs",
        ),
        (job(trainer=worker(numProcPerNode=1)), "one process for each of 8 GPUs"),
        (job(trainer=worker(numProcPerNode="cpu")), "one process per GPU"),
        (
            job(
                trainer=worker(
                    env=[{"name": "TP_DEGREE", "valueFrom": {"configMapKeyRef": {"key": "tp"}}}]
                )
            ),
            "TP_DEGREE has valueFrom",
        ),
        (job(say={"model": "m", "gpu": "A100"}), f"says A100, node labels {H100}"),
        (
            job(
                trainer=worker(command=["accelerate", "launch"]),
                say={"model": "m", "launcher": "accelerate"},
            ),
            "replaces PARALLELISM_CONFIG_*",
        ),
    ],
)
def test_what_may_go_wrong_is_told(created, words):
    assert words in warned(created)


def test_a_plain_job_gets_no_advice():
    assert warned(job()) == ""


def test_an_empty_value_without_a_queue_is_fine():
    assert warned(job(trainer=worker(env=env(WANDB_MODE="")))) == ""


PLANNED = annotations(plan_result='{"gpu":"H100-SXM5-80"}')
NAMES = {H100: "H100-SXM5-80", A100: "A100-SXM4-80"}


@pytest.mark.parametrize(
    ("before", "after", "stated", "words"),
    [
        (None, A100, PLANNED, "planned for H100-SXM5-80, now placed on " + A100),
        (None, H100, PLANNED, None),
        (A100, A100, PLANNED, None),
        (None, None, PLANNED, None),
        (None, A100, {}, None),
        (None, A100, annotations(plan_result='{"tp":2}'), "does not say for which GPU"),
        (None, A100, annotations(plan_result='{"tp":2}', gpu=H100), "planned for " + H100),
        (None, A100, annotations(plan_result="not json"), "does not say for which GPU"),
    ],
)
def test_a_placement_on_another_gpu_is_told(before, after, stated, words):
    adapter = KubeflowAdapter(gpu_name=lambda name: NAMES.get(name, name))
    old, new = (changed(job(gpu_label=gpu), annotations=stated) for gpu in (before, after))
    wish = adapter.wish(update(new, old))
    assert isinstance(wish, Skip)
    assert len(wish.warnings) == (words is not None)
    assert adapter.warnings(update(new, old)) == wish.warnings
    assert all(words in each and len(each) <= 120 for each in wish.warnings)


@pytest.mark.parametrize("count", [0, "0"])
def test_no_gpu_at_all_is_unknown_and_not_none(count):
    created = job(trainer=worker(resourcesPerNode={"limits": {"nvidia.com/gpu": count}}))
    assert isinstance(ADAPTER.wish(creation(created)), Undecidable)


def test_the_operators_label_of_an_amd_gpu_names_it():
    label = {"beta.amd.com/gpu.product-name.AMD_Instinct_MI300X": "8"}
    created = job(gpu_label=None, runtimePatches=[patch({"nodeSelector": label})])
    assert intent(created).node_labels == label


def test_a_lone_shard_degree_of_one_fixes_nothing():
    assert intent(job(trainer=worker(env=env(FSDP_DEGREE="1")))).pins == {"vpp": 1}


def test_accumulation_that_agrees_is_fine():
    stated = env(DP_DEGREE="8", MICRO_BATCH_SIZE="2", GRAD_ACCUM_STEPS="8")
    assert intent(job(trainer=worker(env=stated))).pins == {"vpp": 1, "dp": 8, "microbatch_size": 2}


def test_a_batch_the_author_states_twice_alike_is_fine():
    assert intent(job(trainer=worker(env=env(GLOBAL_BATCH_SIZE="128")))).global_batch_size == 128


def test_only_a_creation_wants_a_runtime():
    assert wanted_runtime(creation(job())).path == (
        "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/torch-distributed"
    )
    assert wanted_runtime(update(job(), job())) is None
    namespaced = {"kind": "TrainingRuntime", "name": "mine"}
    assert wanted_runtime(creation(job(runtimeRef=namespaced))).namespace == "team"
    alone = changed(job(runtimeRef=namespaced), namespace="")
    assert wanted_runtime(creation(alone)) is None


@pytest.mark.parametrize(
    ("say", "must"),
    [
        ({"task": "LoRA"}, "one of pretrain, sft, lora, qlora"),
        ({"lora_rank": "65537"}, "a whole number from 1 to 65536"),
        ({"optimizer": "adam"}, "one of adamw, adamw_bf16, adamw_8bit, sgd, muon"),
        ({"offload": "true"}, "one of none, optimizer, parameters"),
    ],
)
def test_what_is_trained_and_how_is_one_of_a_few(say, must):
    wish = ADAPTER.wish(creation(job(say={"model": "llama-3.1-8b", **say})))
    ((path, message),) = [(each.path, each.message) for each in wish.errors]
    (name,) = annotations(**say)
    assert (path, message) == (f"metadata.annotations[{name}]", f"must be {must}")


def test_an_annotation_that_nobody_reads_is_told():
    stated = job()
    stated["metadata"]["annotations"] |= annotations(
        global_batchsize="7", owner="ann", plan_result="{}", reason="x"
    ) | {"example.com/owner": "bob"}
    told = [each for each in ADAPTER.warnings(creation(stated)) if "nothing reads" in each]
    assert [each.split("`")[1] for each in told] == list(
        annotations(global_batchsize="", owner="", reason="")
    )
    assert told[0].endswith("`training.vsr.dev/global-batch-size` counts")
    assert "training.vsr.dev/ has model, " in told[1]
