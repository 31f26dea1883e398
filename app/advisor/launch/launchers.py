"""The table of launchers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.advisor.launch import manifests, megatron, scripts, torchtitan, wrappers
from app.advisor.launch.setup import FSDP_PROFILES, MEGATRON_PROFILES, Launcher

ANY_PROFILE: Final = (
    *FSDP_PROFILES,
    *MEGATRON_PROFILES,
    "deepspeed",
    "composer",
    "megatron-deepspeed",
    "megatron-lm-2022",
)
ONE: Final = (1,)

_ALL: Final = (
    Launcher(
        name="torchtitan",
        release="torchtitan 0.2.2",
        source="https://github.com/pytorch/torchtitan/blob/v0.2.2/torchtitan/config/job_config.py",
        profiles=FSDP_PROFILES,
        render=torchtitan.render,
        refuse=torchtitan.refuse,
        allowed={"precision": ("bf16", "fp32", "fp8", "mxfp8")},
    ),
    Launcher(
        name="megatron-lm",
        release="Megatron-LM core 0.20",
        source="https://github.com/NVIDIA/Megatron-LM megatron/training/arguments.py @d98e8a6",
        profiles=MEGATRON_PROFILES,
        render=megatron.render,
        refuse=megatron.refuse,
    ),
    Launcher(
        name="megatron-bridge",
        release="Megatron-Bridge 0.7",
        source="https://github.com/NVIDIA-NeMo/Megatron-Bridge "
        "docs/megatron-lm-to-megatron-bridge.md @067f987",
        profiles=MEGATRON_PROFILES,
        render=megatron.render_bridge,
        refuse=megatron.refuse_bridge,
    ),
    Launcher(
        name="deepspeed",
        release="DeepSpeed 0.16 to 0.19",
        source="https://www.deepspeed.ai/docs/config-json/",
        profiles=("deepspeed",),
        render=wrappers.render_deepspeed,
        refuse=wrappers.refuse_deepspeed,
        allowed={"tp": ONE, "pp": ONE, "cp": ONE, "ep": ONE},
    ),
    Launcher(
        name="accelerate",
        release="Accelerate 1.12 to 1.15",
        source="https://github.com/huggingface/accelerate "
        "src/accelerate/commands/config/config_args.py",
        profiles=FSDP_PROFILES,
        render=wrappers.render_accelerate,
        refuse=wrappers.refuse_accelerate,
        allowed={
            "pp": ONE,
            "ep": ONE,
            "recompute": ("none", "full"),
            "precision": ("bf16", "fp16", "fp32", "fp8"),
        },
    ),
    Launcher(
        name="ddp",
        release="PyTorch 2.6 and later",
        source="https://pytorch.org/docs/stable/generated/"
        "torch.nn.parallel.DistributedDataParallel.html",
        profiles=FSDP_PROFILES,
        render=scripts.render_ddp,
        refuse=scripts.refuse_ddp,
        allowed={
            "tp": ONE,
            "pp": ONE,
            "cp": ONE,
            "ep": ONE,
            "sharding": ("none",),
            "recompute": ("none", "full"),
            "precision": ("bf16", "fp16", "fp32"),
        },
    ),
    Launcher(
        name="fsdp2",
        release="PyTorch 2.6 and later",
        source="https://pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
        profiles=FSDP_PROFILES,
        render=scripts.render_fsdp2,
        refuse=scripts.refuse,
        allowed={
            "pp": ONE,
            "cp": ONE,
            "ep": ONE,
            "sequence_parallel": (False,),
            "sharding": ("zero2", "zero3", "hsdp"),
            "recompute": ("none", "full"),
            "precision": ("bf16", "fp32"),
        },
    ),
    Launcher(
        name="trainjob",
        release="training.vsr.dev/v1alpha1",
        source="the TrainJob API that this project serves",
        profiles=ANY_PROFILE,
        render=manifests.render_trainjob,
    ),
    Launcher(
        name="kubeflow",
        release="Kubeflow Trainer 2.2 and later",
        source="https://github.com/kubeflow/trainer pkg/apis/trainer/v1alpha1/trainjob_types.go",
        profiles=ANY_PROFILE,
        render=manifests.render_kubeflow,
    ),
)
LAUNCHERS: Final[Mapping[str, Launcher]] = {one.name: one for one in _ALL}
