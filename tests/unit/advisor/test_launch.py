"""Launch files: names that each release has, batches that multiply, refusals with reasons."""

from __future__ import annotations

import ast
import base64
import itertools
import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
import yaml

from app.admission.decide import mutate, validate
from app.admission.response import respond
from app.admission.review import parse_review
from app.advisor.advise import Desk
from app.advisor.errors import Refusal
from app.advisor.launch.answer import LaunchAnswer, answer_launch
from app.advisor.launch.launchers import LAUNCHERS
from app.advisor.launch.tips import rule_of_thumb
from app.catalog.loader import load_catalog
from app.planner.search import plan
from tests.vsr.reviews import shipped

NAMES = Path(__file__).parents[2] / "data" / "launch"
DESK = Desk(
    catalog=load_catalog(),
    planner=plan,
    clock=itertools.count().__next__,
    allowed_precisions=("bf16", "fp16"),
)
SMALL = {"model": "llama-3-8b", "gpu": "H100-SXM5-80GB"}
TINY = {
    "hidden_size": 2048,
    "ffn_hidden_size": 5632,
    "num_layers": 7,
    "num_heads": 16,
    "num_kv_heads": 8,
    "vocab_size": 32000,
}
LARGE = {"model": "llama-3-70b", "gpu": "H100-SXM5-80GB", "nodes": 8}
EXPERTS = {"model": "mixtral-8x7b", "gpu": "H100-SXM5-80GB", "nodes": 4}


def names(release: str) -> set[str]:
    """Option names of a release, as its own parser lists them."""
    lines = (NAMES / f"{release}.txt").read_text("utf-8").splitlines()
    return {line for line in lines if not line.startswith("#")}


def launched(launcher: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = answer_launch(body | {"launcher": launcher}, DESK)
    assert isinstance(answer, LaunchAnswer), answer
    assert answer.launch is not None
    return answer.body


def content(launcher: str, body: dict[str, Any]) -> str:
    (file,) = launched(launcher, body)["files"]
    return str(file["content"])


def options(text: str) -> set[str]:
    """The options of a file of arguments."""
    return {word.split("=")[0] for word in text.split() if word.startswith("--")}


@pytest.mark.parametrize("body", [SMALL, LARGE, EXPERTS], ids=["8b", "70b", "moe"])
@pytest.mark.parametrize("launcher", ["torchtitan", "megatron-lm", "trainjob", "kubeflow"])
def test_every_model_is_launched(launcher: str, body: dict[str, Any]) -> None:
    answer = launched(launcher, body)
    assert answer["command"]
    assert answer["tips"]
    assert answer["estimate"]["legal"]


def reviewed(job: dict[str, Any], door: Any) -> dict[str, Any]:
    """What admission, as it is shipped, answers when this job is created."""
    group, _, version = job["apiVersion"].partition("/")
    kind = {"group": group, "version": version}
    request = {
        "uid": "1ef51e77-e463-576d-a42d-86486b8fa82c",
        "kind": kind | {"kind": "TrainJob"},
        "resource": kind | {"resource": "trainjobs"},
        "operation": "CREATE",
        "namespace": "research",
        "name": job["metadata"]["name"],
        "userInfo": {"username": "ann"},
        "object": job,
    }
    document = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    review = parse_review(json.dumps(document).encode())
    return dict(respond(review, door(review, shipped()))["response"])


@pytest.mark.parametrize("body", [SMALL, LARGE, EXPERTS], ids=["8b", "70b", "moe"])
@pytest.mark.parametrize("launcher", ["trainjob", "kubeflow"])
def test_a_manifest_is_admitted_with_its_layout(launcher: str, body: dict[str, Any]) -> None:
    """Valid as written; only the environment is added, and nothing the second time."""
    job = yaml.safe_load(content(launcher, body))
    assert reviewed(job, validate)["allowed"]
    first = reviewed(job, mutate)
    assert first["allowed"]
    patch = json.loads(base64.b64decode(first.get("patch", "W10=")))
    added = {"/spec/env", "/metadata/annotations/training.vsr.dev~1environment"}
    assert {one["path"] for one in patch} == (added if launcher == "trainjob" else set())
    stored = jsonpatch.apply_patch(job, patch)
    assert "patch" not in reviewed(stored, mutate)
    assert reviewed(stored, validate)["allowed"]


def program(body: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Command and arguments of a Kubeflow job."""
    trainer = yaml.safe_load(content("kubeflow", body))["spec"]["trainer"]
    return trainer["command"], trainer["args"]


@pytest.mark.parametrize("body", [SMALL, EXPERTS], ids=["8b", "moe"])
@pytest.mark.parametrize("framework", ["megatron", "fsdp", "deepspeed"])
def test_a_manifests_arguments_are_one_word_each(framework: str, body: dict[str, Any]) -> None:
    """No shell takes them apart: Megatron refused `--recompute-modules layernorm` as one word."""
    pins = {"recompute": "selective"} if framework != "deepspeed" else {}
    _, arguments = program(body | {"framework": framework, "pins": pins})
    assert not [each for each in arguments if " " in each]
    assert ("--recompute-modules" in arguments) == (framework == "megatron")


PROGRAMS_REFUSE = {
    ("megatron", "task", "lora"): True,
    ("megatron", "optimizer", "adamw_8bit"): True,
    ("megatron", "offload", "optimizer"): False,
    ("fsdp", "task", "lora"): True,
    ("fsdp", "optimizer", "adamw_8bit"): True,
    ("fsdp", "offload", "optimizer"): True,
}


@pytest.mark.parametrize(
    ("work", "refused"), PROGRAMS_REFUSE.items(), ids=map(" ".join, PROGRAMS_REFUSE)
)
def test_a_manifest_starts_no_program_that_would_train_something_else(
    work: tuple[str, str, str], *, refused: bool
) -> None:
    """Adapters were planned for, and the command of full training with AdamW was written."""
    framework, name, value = work
    body = SMALL | {"framework": framework, "workload": {name: value}}
    command, arguments = program(body)
    assert (command[-1] == "/opt/train/train.py") is refused
    assert (f"--{name}={value}" in arguments) is refused
    assert any("is your script" in note for note in launched("kubeflow", body)["notes"]) is refused


@pytest.mark.parametrize("profile", ["megatron-lm-2022", "megatron-deepspeed", "composer"])
def test_a_program_of_other_names_gets_none_of_ours(profile: str) -> None:
    command, arguments = program(SMALL | {"framework": profile})
    assert command == ["torchrun", "/opt/train/train.py"]
    assert {each.split("=")[0] for each in arguments} >= {"--tp", "--sharding", "--sequence-length"}


def test_a_script_is_told_what_a_copy_shards_and_where_layers_are() -> None:
    layout = {"sharding": "hsdp", "dp_shard": 8, "recompute": "full"}
    body = SMALL | {"nodes": 2, "framework": "fsdp", "layout": layout}
    written = yaml.safe_load(content("trainjob", body))["spec"]["args"]
    assert {"--dp=$(FSDP_DEGREE)", "--dp-shard=8", "--sharding=hsdp"} <= set(written)
    uneven = {"pp": 4, "stage_layers": [7, 8, 9, 8], "sharding": "none"}
    body = SMALL | {"framework": "megatron", "layout": uneven}
    written = yaml.safe_load(content("trainjob", body))["spec"]["args"]
    assert "--stage-layers=7,8,9,8" in written
    assert not [each for each in written if each.startswith("--dp-shard")]


@pytest.mark.parametrize("name", ['x"""\nimport os\n"""', "a\nb", "\\", "a\x7f", "{x}"])
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_models_name_is_only_a_name(launcher: str, name: str) -> None:
    """It was code in the scripts, and broke the TOML."""
    body = SMALL | {"model": {"name": name, "architecture": TINY}}
    document = content(launcher, body)
    language = launched(launcher, body)["files"][0]["language"]
    if language == "python":
        plain = content(launcher, body | {"model": {"name": "x", "architecture": TINY}})
        assert ast.dump(ast.parse(document).body[1]) == ast.dump(ast.parse(plain).body[1])
        assert len(ast.parse(document).body) == len(ast.parse(plain).body)
    if language == "toml":
        assert tomllib.loads(document)["model"]["flavor"] == name
    if language == "yaml":
        yaml.safe_load(document)


def test_a_manifest_says_what_is_trained() -> None:
    """A layout that holds an adapter, and not the whole state, is admitted as one."""
    body = LARGE | {"nodes": 1, "layout": {"tp": 8}}
    body["workload"] = {"task": "qlora", "lora_rank": 8}
    job = yaml.safe_load(content("trainjob", body))
    stated = job["metadata"]["annotations"]
    assert stated["training.vsr.dev/task"] == "qlora"
    assert stated["training.vsr.dev/lora-rank"] == "8"
    assert "training.vsr.dev/optimizer" not in stated
    assert reviewed(job, validate)["allowed"]
    del stated["training.vsr.dev/task"]
    assert not reviewed(job, validate)["allowed"]


@pytest.mark.parametrize("body", [SMALL, LARGE], ids=["8b", "70b"])
def test_torchtitan_has_every_key(body: dict[str, Any]) -> None:
    tables = tomllib.loads(content("torchtitan", body))
    keys = {f"{table}.{key}" for table, values in tables.items() for key in values}
    assert keys <= names("torchtitan")


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ("qwen3-30b-a3b", ("qwen3", "30B-A3B")),
        ("mixtral-8x7b", ("mixtral-8x7b", "mixtral-8x7b")),
        ("mistral-7b", ("llama3", "mistral-7b")),
    ],
)
def test_torchtitan_is_told_the_family_of_a_model(model: str, named: tuple[str, str]) -> None:
    """One with experts never trains as a dense one, whatever its name."""
    found = tomllib.loads(content("torchtitan", EXPERTS | {"model": model, "pins": {"pp": 1}}))
    assert (found["model"]["name"], found["model"]["flavor"]) == named


def test_torchtitan_pipeline_batches_hold_every_microbatch() -> None:
    body = LARGE | {"layout": {"tp": 8, "pp": 4, "sharding": "zero2"}}
    tables = tomllib.loads(content("torchtitan", body))
    training, degrees = tables["training"], tables["parallelism"]
    ranks = degrees["data_parallel_shard_degree"] * degrees["data_parallel_replicate_degree"]
    assert training["local_batch_size"] * ranks == training["global_batch_size"]
    assert degrees["pipeline_parallel_schedule"] == "1F1B"


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"tp": 8, "pp": 2, "vpp": 2},
        {"tp": 8, "recompute": "full"},
        {"tp": 8, "recompute": "selective", "cp": 2},
        {"tp": 2, "sharding": "zero3"},
    ],
)
def test_megatron_knows_every_argument(layout: dict[str, Any]) -> None:
    body = LARGE | ({"layout": layout} if layout else {})
    assert options(content("megatron-lm", body)) <= names("megatron-lm")


def test_megatron_knows_every_argument_of_experts() -> None:
    found = options(content("megatron-lm", EXPERTS))
    assert found <= names("megatron-lm")
    assert "--expert-model-parallel-size" in found


NARROW_DESK = replace(DESK, allowed_precisions=("bf16", "fp8", "mxfp8", "nvfp4"))


def narrow(launcher: str, precision: str, **layout: Any) -> dict[str, Any]:
    """A launch of 8B in a narrow precision on GB200, which has them all."""
    body = {
        "model": "llama-3-8b",
        "gpu": "GB200-186GB",
        "gpus_per_node": 4,
        "framework": "megatron",
        "launcher": launcher,
        "layout": {"precision": precision, **layout},
    }
    answer = answer_launch(body, NARROW_DESK)
    assert isinstance(answer, LaunchAnswer), answer
    assert answer.launch is not None
    return answer.body


@pytest.mark.parametrize("sharding", ["zero1", "none"])
@pytest.mark.parametrize("precision", ["fp8", "mxfp8", "nvfp4"])
def test_megatron_holds_narrow_weights_once(precision: str, sharding: str) -> None:
    """The plan counts 2 bytes of weights and 2 of gradients a parameter: the flags make it so."""
    answer = narrow("megatron-lm", precision, sharding=sharding)
    found = options(answer["files"][0]["content"])
    assert {"--grad-reduce-in-bf16", "--use-distributed-optimizer"} <= found
    assert {"--fp8-param-gather", "--fp4-param-gather"} & found
    assert found <= names("megatron-lm")
    assert any("gradients are reduced in 16 bits" in note for note in answer["notes"])


def test_megatron_reduces_bf16_gradients_in_fp32() -> None:
    answer = narrow("megatron-lm", "bf16")
    assert "--grad-reduce-in-bf16" not in options(answer["files"][0]["content"])
    assert not any("16 bits" in note for note in answer["notes"])


def test_megatron_bridge_says_what_its_precision_recipe_leaves_wide() -> None:
    assert any("grad_reduce_in_fp32" in note for note in narrow("megatron-bridge", "fp8")["notes"])
    wide = narrow("megatron-bridge", "bf16")
    assert not any("grad_reduce_in_fp32" in note for note in wide["notes"])


def test_selective_recomputation_names_the_modules_the_plan_counts() -> None:
    """Megatron's own default recomputes unfused attention, which saves nothing here."""
    body = EXPERTS | {"layout": {"tp": 2, "ep": 8, "recompute": "selective"}}
    assert "--recompute-modules layernorm moe_act\n" in content("megatron-lm", body)
    assert "model.recompute_modules=[layernorm,moe_act]" in content("megatron-bridge", body)
    dense = SMALL | {"layout": {"recompute": "selective"}}
    assert "--recompute-modules layernorm\n" in content("megatron-lm", dense)


def test_deepspeed_batches_multiply() -> None:
    config = json.loads(content("deepspeed", SMALL))
    product = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * 8
    assert product == config["train_batch_size"]
    known = names("deepspeed")
    assert {f"zero_optimization.{key}" for key in config["zero_optimization"]} <= known
    assert set(config) <= known


def test_accelerate_has_every_key() -> None:
    config = yaml.safe_load(content("accelerate", LARGE))
    known = names("accelerate")
    assert set(config) <= known
    assert set(config["fsdp_config"]) <= known
    assert set(config.get("parallelism_config", {})) <= known


@pytest.mark.parametrize(
    ("launcher", "body"),
    [
        ("ddp", {"model": "llama-3.2-1b", "gpu": "H100-SXM5-80GB"}),
        ("fsdp2", LARGE),
        ("fsdp2", LARGE | {"layout": {"tp": 8, "sequence_parallel": False, "recompute": "full"}}),
    ],
)
def test_scripts_are_python(launcher: str, body: dict[str, Any]) -> None:
    ast.parse(content(launcher, body))


@pytest.mark.parametrize(
    ("launcher", "body", "word"),
    [
        ("ddp", SMALL | {"layout": {"tp": 2}}, "`tp` 2"),
        ("accelerate", LARGE | {"layout": {"pp": 2, "sharding": "zero2"}}, "`pp` 2"),
        ("torchtitan", SMALL | {"framework": "megatron"}, "`framework` must be one"),
        ("torchtitan", SMALL | {"workload": {"task": "lora"}}, "adapters"),
        ("torchtitan", EXPERTS | {"model": "qwen3-30b-a3b", "pins": {"pp": 2}}, "`pp` must be 1"),
        ("megatron-lm", SMALL | {"layout": {"tp": 3}}, "power of two"),
        ("nothing", SMALL, "`launcher` must be one"),
    ],
)
def test_what_cannot_start_is_refused(launcher: str, body: dict[str, Any], word: str) -> None:
    answer = answer_launch(body | {"launcher": launcher}, DESK)
    assert isinstance(answer, Refusal)
    assert any(word in one.message for one in answer.errors)


def test_nothing_fits_is_an_answer() -> None:
    body = {"model": "llama-3-70b", "gpu": "T4", "launcher": "deepspeed"}
    answer = answer_launch(body, DESK)
    assert isinstance(answer, LaunchAnswer)
    assert answer.launch is None
    assert answer.body["infeasible"]["reasons"]


@pytest.mark.parametrize(
    ("pins", "also"), [({}, ") would fit"), ({"precision": "bf16"}, ") and your pins would fit")]
)
def test_limits_of_a_launcher_are_not_called_pins(pins: dict[str, str], also: str) -> None:
    answer = answer_launch(SMALL | {"launcher": "ddp", "pins": pins}, DESK)
    assert isinstance(answer, LaunchAnswer)
    (said,) = (one for one in answer.body["infeasible"]["remedies"] if "launcher ddp" in one)
    assert said.startswith("the same job without the limits of the launcher ddp (tp 1; pp 1;")
    assert said.endswith(also)
    assert ("precision" in said) == (not pins)


@pytest.mark.parametrize(
    ("params", "rule"),
    [(5e8, "DDP"), (8e9, "FSDP or ZeRO-2"), (7e10, "ZeRO-3 or tensor parallel"), (4e11, "3D")],
)
def test_the_rule_of_thumb_goes_by_size(params: float, rule: str) -> None:
    assert rule_of_thumb(params).startswith(rule)


def test_the_table_names_profiles_of_the_catalog() -> None:
    for launcher in LAUNCHERS.values():
        assert set(launcher.profiles) <= set(DESK.catalog.frameworks)


@pytest.mark.parametrize(
    ("body", "label"),
    [
        ({"gpu": "H100-SXM5-80GB"}, {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}),
        ({"gpu": "NVIDIA-H100-80GB-HBM3"}, {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}),
        (
            {"gpu": "nvidia-h100-mega-80gb"},
            {"cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb"},
        ),
        ({"gpu": "L40S", "model": "llama-3-1b"}, {"nvidia.com/gpu.product": "NVIDIA-L40S"}),
        ({"gpu": "MI300X"}, {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}),
        ({"instance_type": "p5.48xlarge"}, {"node.kubernetes.io/instance-type": "p5.48xlarge"}),
    ],
)
def test_a_manifest_selects_nodes_by_a_label_they_have(
    body: dict[str, Any], label: dict[str, str]
) -> None:
    job = yaml.safe_load(content("trainjob", {"model": "llama-3-8b"} | body))
    assert job["spec"]["nodeSelector"] == label


@pytest.mark.parametrize("launcher", ["megatron-lm", "kubeflow"])
@pytest.mark.parametrize("known", [True, False])
def test_megatron_says_which_arguments_of_the_model_are_left_out(
    launcher: str, *, known: bool
) -> None:
    """Rotary positions among them only where the catalog does not know them."""
    body = {**SMALL, "framework": "megatron", **({} if known else {"model": "deepseek-v2-lite"})}
    (note,) = (one for one in launched(launcher, body)["notes"] if "--norm-epsilon" in one)
    left_out = {word.strip("(),.") for word in note.split() if word.startswith("--")}
    assert {one.removeprefix("--") for one in left_out} <= {
        one.removeprefix("--") for one in names("megatron-lm")
    }
    assert not left_out & options(content("megatron-lm", body))
    assert ("--rotary-base" in left_out) != known


@pytest.mark.parametrize(
    ("model", "arguments"),
    [
        ("llama-3-8b", ["--rotary-base=500000"]),
        (
            "llama-3.1-8b",
            ["--rotary-base=500000", "--use-rope-scaling", "--rope-scaling-factor=8"],
        ),
        ("qwen2.5-7b", ["--rotary-base=1000000"]),
        ("deepseek-v2-lite", []),
    ],
)
def test_megatron_gets_the_models_rotary_positions(model: str, arguments: list[str]) -> None:
    lines = content("megatron-lm", {**SMALL, "framework": "megatron", "model": model}).split()
    written = [line for line in lines if line.startswith(("--rotary", "--rope", "--use-rope"))]
    assert written == arguments


def test_a_gpu_without_a_known_label_says_so() -> None:
    answer = launched("kubeflow", {"model": "llama-3-1b", "gpu": "RTX-2080Ti"})
    assert "no node label of RTX-2080Ti is known" in answer["notes"][0]
