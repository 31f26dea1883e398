"""DeepSpeed (0.16 to 0.19) JSON and Accelerate (1.12 to 1.15) YAML.

Names: DeepSpeed docs/_pages/config-json.md and deepspeed/runtime/config.py; Accelerate
src/accelerate/commands/config/config_args.py and commands/launch.py.
"""

from __future__ import annotations

import json
from typing import Any, Final

import yaml

from app.advisor.launch.setup import File, Launch, Setup, torchrun

ZERO_STAGES: Final = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3}
_TRAIN: Final = "train.py is your script; it makes the model and the data"


def adapters(setup: Setup) -> tuple[str, ...]:
    """A note where only adapters are trained."""
    task = setup.workload.task
    return (f"wrap the model for {task} in your script (peft)",) if task.endswith("lora") else ()


def deepspeed_config(setup: Setup) -> dict[str, Any]:
    """The JSON document; batch sizes obey micro x accumulation x GPUs."""
    layout, work = setup.layout, setup.workload
    zero: dict[str, Any] = {"stage": ZERO_STAGES[layout.sharding]}
    if layout.sharding in {"zero1", "zero2"}:
        zero |= {"overlap_comm": True, "contiguous_gradients": True}
    if layout.sharding == "zero3":
        zero |= {"overlap_comm": True, "stage3_gather_16bit_weights_on_model_save": True}
    if work.offload != "none":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if work.offload == "parameters":
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    return {
        "train_batch_size": setup.estimate.global_batch_size,
        "train_micro_batch_size_per_gpu": layout.microbatch_size,
        "gradient_accumulation_steps": setup.estimate.num_microbatches,
        "zero_optimization": zero,
        "bf16": {"enabled": layout.precision == "bf16"},
        "fp16": {"enabled": layout.precision == "fp16"},
        "gradient_clipping": 1.0,
    }


def refuse_deepspeed(setup: Setup) -> tuple[str, ...]:
    """Offloading needs a stage that shards what is moved."""
    stage, offload = ZERO_STAGES[setup.layout.sharding], setup.workload.offload
    if offload == "parameters" and stage < 3:  # noqa: PLR2004 - a ZeRO stage
        return ("DeepSpeed offloads parameters with zero3 only; `sharding` must be zero3",)
    if offload == "optimizer" and stage < 1:
        return ("DeepSpeed offloads a sharded optimizer only; `sharding` must not be none",)
    return ()


def render_deepspeed(setup: Setup) -> Launch:
    """The JSON file."""
    content = json.dumps(deepspeed_config(setup), indent=2) + "\n"
    recompute = setup.layout.recompute
    notes = [_TRAIN, *adapters(setup)]
    if recompute != "none":
        notes.append(
            f"the plan counts on {recompute} recomputation, which DeepSpeed leaves to the model: "
            "model.gradient_checkpointing_enable()"
        )
    return Launch(
        files=(File(name="deepspeed.json", language="json", content=content),),
        command=torchrun(setup, "train.py", "--deepspeed", "deepspeed.json"),
        notes=tuple(notes),
    )


def accelerate_config(setup: Setup) -> dict[str, Any]:
    """The YAML document of `accelerate launch --config_file`."""
    layout, cluster = setup.layout, setup.request.cluster
    sharded = layout.sharding != "none"
    config: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP" if sharded else "MULTI_GPU",
        "mixed_precision": "no" if layout.precision == "fp32" else layout.precision,
        "num_machines": cluster.nodes,
        "num_processes": cluster.world_size,
        "machine_rank": 0,
        "main_process_ip": "localhost",
        "main_process_port": 29500,
        "main_training_function": "main",
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": False,
        "debug": False,
    }
    if sharded:
        config["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_reshard_after_forward": setup.shards_weights,
            "fsdp_activation_checkpointing": layout.recompute == "full",
            "fsdp_offload_params": setup.workload.offload == "parameters",
            "fsdp_cpu_ram_efficient_loading": True,
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        }
    if sharded and (layout.tp > 1 or layout.cp > 1 or setup.replicate_degree > 1):
        config["parallelism_config"] = {
            "parallelism_config_dp_replicate_size": setup.replicate_degree,
            "parallelism_config_dp_shard_size": setup.shard_degree,
            "parallelism_config_tp_size": layout.tp,
            "parallelism_config_cp_size": layout.cp,
        }
    return config


def refuse_accelerate(setup: Setup) -> tuple[str, ...]:
    """What the configuration file has no word for."""
    said = []
    if setup.layout.sharding == "none" and setup.layout.tp * setup.layout.cp > 1:
        said.append("Accelerate has tp and cp with FSDP2 only; `sharding` must be zero2 or zero3")
    if setup.workload.offload == "optimizer":
        said.append(
            "Accelerate's FSDP offloads parameters with the optimizer or nothing; "
            "`offload` must be none or parameters"
        )
    return tuple(said)


def render_accelerate(setup: Setup) -> Launch:
    """The YAML file."""
    accumulate = setup.estimate.num_microbatches
    content = yaml.safe_dump(accelerate_config(setup), sort_keys=False)
    notes = [
        _TRAIN,
        (
            f"in the script: Accelerator(gradient_accumulation_steps={accumulate}) and a loader "
            f"with batch_size={setup.layout.microbatch_size}"
        ),
        "on several machines give each its --machine_rank and the first one's --main_process_ip",
        *adapters(setup),
    ]
    if setup.layout.recompute == "full" and setup.layout.sharding == "none":
        notes.append("recompute with model.gradient_checkpointing_enable()")
    return Launch(
        files=(File(name="accelerate.yaml", language="yaml", content=content),),
        command=(
            "accelerate",
            "launch",
            "--config_file=accelerate.yaml",
            f"--gradient_accumulation_steps={accumulate}",
            "train.py",
        ),
        notes=tuple(notes),
    )
