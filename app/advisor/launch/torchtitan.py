"""torchtitan 0.2.2: a TOML file whose keys are also its flags.

Names: torchtitan v0.2.2, torchtitan/config/job_config.py.
"""

from __future__ import annotations

import json
import shlex
from typing import Any, Final

from app.advisor.launch.setup import File, Launch, Setup, only_adamw, torchrun

FLAVORS: Final = {
    "llama-3-8b": ("llama3", "8B"),
    "llama-3.1-8b": ("llama3", "8B"),
    "llama-3-70b": ("llama3", "70B"),
    "llama-3.1-70b": ("llama3", "70B"),
    "llama-3-405b": ("llama3", "405B"),
    "llama-3.1-405b": ("llama3", "405B"),
    "deepseek-v3": ("deepseek_v3", "671B"),
    "deepseek-v2-lite": ("deepseek_v3", "16B"),
    "qwen3-0.6b": ("qwen3", "0.6B"),
    "qwen3-1.7b": ("qwen3", "1.7B"),
    "qwen3-4b": ("qwen3", "4B"),
    "qwen3-8b": ("qwen3", "8B"),
    "qwen3-14b": ("qwen3", "14B"),
    "qwen3-32b": ("qwen3", "32B"),
    "qwen3-30b-a3b": ("qwen3", "30B-A3B"),
    "qwen3-235b-a22b": ("qwen3", "235B-A22B"),
    "gpt-oss-20b": ("gpt_oss", "20b"),
    "gpt-oss-120b": ("gpt_oss", "120b"),
    "llama-4-scout": ("llama4", "17bx16e"),
    "llama-4-maverick": ("llama4", "17bx128e"),
}
"""Catalog names that torchtitan ships as `model.name` and `model.flavor`."""
WITHOUT_PIPELINE: Final = frozenset({"qwen3", "gpt_oss"})
"""Models of torchtitan 0.2.2 that cannot be cut into stages."""

CONVERTERS: Final = {
    "bf16": [],
    "fp32": [],
    "fp8": ["quantize.linear.float8"],
    "mxfp8": ["quantize.linear.mx"],
}
CONFIG: Final = "torchtitan.toml"


def flavor_of(setup: Setup) -> tuple[str, str]:
    """`model.name` and `model.flavor`; of a model it does not ship, those to register it by."""
    dense = setup.model.moe is None
    unknown = ("llama3" if dense else setup.model.name, setup.model.name)
    return FLAVORS.get(setup.model.name, unknown)


def refuse(setup: Setup) -> tuple[str, ...]:
    """What torchtitan cannot start."""
    said = list(only_adamw(setup, "torchtitan"))
    name = flavor_of(setup)[0]
    if setup.layout.pp > 1 and name in WITHOUT_PIPELINE:
        said.append(f"torchtitan 0.2.2 cannot cut {name} into stages; `pp` must be 1")
    if setup.workload.offload == "optimizer":
        said.append(
            "torchtitan offloads parameters with the optimizer or nothing; `offload` "
            "must be none or parameters"
        )
    if setup.layout.pp > 1 and len(set(setup.stages)) > 1 and setup.layout.stage_layers:
        said.append("torchtitan splits layers itself; `stage_layers` must be left out")
    if setup.layout.tp > 1 and not setup.layout.sequence_parallel:
        said.append("torchtitan has sequence parallelism with tp; `sequence_parallel` must be true")
    return tuple(said)


def config(setup: Setup) -> dict[str, dict[str, Any]]:
    """The TOML tables."""
    layout, work = setup.layout, setup.workload
    name, flavor = flavor_of(setup)
    passes = setup.estimate.num_microbatches if layout.pp > 1 else 1
    parallelism: dict[str, Any] = {
        "data_parallel_replicate_degree": setup.replicate_degree,
        "data_parallel_shard_degree": setup.shard_degree,
        "fsdp_reshard_after_forward": "always" if setup.shards_weights else "never",
        "tensor_parallel_degree": layout.tp,
        "pipeline_parallel_degree": layout.pp,
        "context_parallel_degree": layout.cp,
        "expert_parallel_degree": layout.ep,
    }
    if setup.model.moe is not None:
        parallelism["expert_tensor_parallel_degree"] = 1 if layout.ep > 1 else layout.tp
    if layout.pp > 1:
        parallelism |= {
            "pipeline_parallel_schedule": "Interleaved1F1B" if layout.vpp > 1 else "1F1B",
            "pipeline_parallel_microbatch_size": layout.microbatch_size,
            "pipeline_parallel_layers_per_stage": -(
                -setup.model.num_layers // (layout.pp * layout.vpp)
            ),
            "pipeline_parallel_first_stage_less_layers": 0,
            "pipeline_parallel_last_stage_less_layers": 0,
        }
    checkpointing: dict[str, Any] = {"mode": layout.recompute}
    if layout.recompute == "selective":
        checkpointing["selective_ac_option"] = "op"
    return {
        "model": {"name": name, "flavor": flavor, "converters": CONVERTERS[layout.precision]},
        "training": {
            "local_batch_size": layout.microbatch_size * passes,
            "global_batch_size": setup.estimate.global_batch_size,
            "seq_len": work.sequence_length,
            "mixed_precision_param": "float32" if layout.precision == "fp32" else "bfloat16",
            "enable_cpu_offload": work.offload == "parameters",
        },
        "parallelism": parallelism,
        "activation_checkpoint": checkpointing,
        "compile": {"enable": True},
    }


def toml(tables: dict[str, dict[str, Any]]) -> str:
    """Tables of plain values as TOML."""
    lines: list[str] = []
    for name, table in tables.items():
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {_literal(value)}" for key, value in table.items()]
    return "\n".join(lines[1:]) + "\n"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        # JSON escapes what TOML asks to be escaped, but for one character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return str(value)


def flags(setup: Setup) -> tuple[str, ...]:
    """The same as flags; a switch is named or negated."""
    found = []
    for name, table in config(setup).items():
        for key, value in table.items():
            if isinstance(value, bool):
                found.append(f"--{name}.{key}" if value else f"--{name}.no-{key}")
            elif isinstance(value, list):
                found += [f"--{name}.{key}={','.join(value)}"] if value else []
            else:
                found.append(f"--{name}.{key}={value}")
    return tuple(found)


def render(setup: Setup) -> Launch:
    """The TOML file and the command."""
    notes = [
        "the flags of the file: " + shlex.join(flags(setup)),
        (
            "torchtitan 0.3 and its main branch have no TOML and count the batch in tokens; the "
            "parallelism names are the same"
        ),
        "also set training.dataset, model.hf_assets_path and optimizer.lr for your run",
    ]
    if setup.model.name not in FLAVORS:
        notes.append(
            f"torchtitan 0.2.2 ships no flavor for {setup.model.name}: register it as [model] "
            "names it, or name yours there"
        )
    file = File(name=CONFIG, language="toml", content=toml(config(setup)))
    command = torchrun(setup, "-m", "torchtitan.train", f"--job.config_file={CONFIG}")
    return Launch(files=(file,), command=command, notes=tuple(notes))
