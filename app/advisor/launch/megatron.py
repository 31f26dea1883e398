"""Megatron-LM (core 0.20) arguments and Megatron-Bridge (0.7) overrides.

Names: NVIDIA/Megatron-LM megatron/training/arguments.py @d98e8a6 and the configuration classes it
makes flags from; NVIDIA-NeMo/Megatron-Bridge docs/megatron-lm-to-megatron-bridge.md @067f987.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from app.advisor.launch.setup import File, Launch, Setup, only_adamw, torchrun

PRECISION_FLAGS: Final = {
    "bf16": ("--bf16",),
    "fp16": ("--fp16",),
    "fp32": (),
    "fp8": ("--bf16", "--fp8-format=hybrid", "--fp8-recipe=tensorwise", "--fp8-param-gather"),
    "mxfp8": ("--bf16", "--fp8-format=e4m3", "--fp8-recipe=mxfp8", "--fp8-param-gather"),
    "nvfp4": ("--bf16", "--fp4-format=e2m1", "--fp4-param-gather"),
}
NARROW: Final = frozenset({"fp8", "mxfp8", "nvfp4"})
"""Numerics whose plan counts weights kept narrow and gradients reduced in 16 bits, as NVIDIA's own
recipes train: without these flags weights are held twice and gradients in fp32."""
NOT_WRITTEN: Final = (
    "the arguments hold what the plan depends on; add the rest of the model from its config.json: "
    "{unknown}--norm-epsilon, --qk-layernorm, --window-size"
)
ROTARY: Final = (
    "--rotary-base (rope_theta; Megatron takes 10000 without it), --use-rope-scaling with "
    "--rope-scaling-factor (Llama 3.1 and later), "
)
RECOMPUTED_MODULES: Final = ("layernorm", "moe_act")
"""What `selective` recomputes in the memory of a plan; Megatron's default is unfused attention."""
BRIDGE_PRECISION: Final = {
    "bf16": "bf16_mixed",
    "fp16": "fp16_mixed",
    "fp8": "bf16_with_fp8_current_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}


def refuse(setup: Setup) -> tuple[str, ...]:
    """What neither can start."""
    said = list(only_adamw(setup, "Megatron"))
    if setup.layout.vpp > 1 and setup.layout.stage_layers:
        said.append("an uneven split with vpp above 1 is not written; `vpp` must be 1")
    if setup.layout.sharding == "zero3" and setup.layout.pp > 1:
        said.append("Megatron-FSDP is not written with a pipeline; `pp` must be 1")
    if setup.layout.precision in NARROW and setup.workload.offload != "none":
        said.append("narrow weights are not written with offload; `precision` must be bf16")
    return tuple(said)


def recomputed_modules(setup: Setup) -> tuple[str, ...]:
    """The modules that `selective` recomputes in this model."""
    routed = setup.model.moe is not None
    return tuple(each for each in RECOMPUTED_MODULES if routed or each != "moe_act")


def refuse_bridge(setup: Setup) -> tuple[str, ...]:
    """What Megatron-Bridge cannot start."""
    said = refuse(setup)
    if setup.layout.precision not in BRIDGE_PRECISION:
        said += ("Megatron-Bridge has no recipe for `precision` fp32",)
    return said


def not_written(setup: Setup) -> str:
    """What of the model the arguments leave out."""
    return NOT_WRITTEN.format(unknown="" if setup.model.rotary is not None else ROTARY)


def stage_text(stages: tuple[int, ...]) -> str:
    """A pipeline layout: `Et*3|t*4|t*3L`."""
    parts = [f"t*{layers}" if layers else "" for layers in stages]
    return "|".join(["E" + parts[0], *parts[1:-1], parts[-1] + "L"])


def parallel_arguments(setup: Setup) -> Iterator[str]:
    """Degrees, sharding, batch, recomputation, precision."""
    layout, work = setup.layout, setup.workload
    yield f"--tensor-model-parallel-size={layout.tp}"
    yield f"--pipeline-model-parallel-size={layout.pp}"
    yield f"--context-parallel-size={layout.cp}"
    if layout.sequence_parallel:
        yield "--sequence-parallel"
    if layout.vpp > 1:
        yield f"--num-virtual-stages-per-pipeline-rank={layout.vpp}"
    if layout.pp > 1 and layout.stage_layers:
        yield f"--pipeline-model-parallel-layout={stage_text(setup.stages)}"
    if layout.sharding != "none" or layout.precision in NARROW:
        yield "--use-distributed-optimizer"
    if layout.sharding == "zero3":
        yield "--use-megatron-fsdp"
        yield "--data-parallel-sharding-strategy=optim_grads_params"
        yield "--ckpt-format=fsdp_dtensor"
        yield "--init-model-with-meta-device"
        yield "--no-gradient-accumulation-fusion"
    else:
        yield "--overlap-grad-reduce"
        if layout.sharding == "zero1":
            yield "--overlap-param-gather"
    yield f"--micro-batch-size={layout.microbatch_size}"
    yield f"--global-batch-size={setup.estimate.global_batch_size}"
    yield from recompute_arguments(setup)
    if work.offload == "optimizer":
        yield "--optimizer-cpu-offload"
        yield "--use-precision-aware-optimizer"
    yield from precision_arguments(setup)


def recompute_arguments(setup: Setup) -> Iterator[str]:
    """What is computed again, as far as it is."""
    recompute = setup.layout.recompute
    if recompute != "none":
        yield f"--recompute-granularity={recompute}"
    if recompute == "full":
        yield "--recompute-method=uniform"
        yield "--recompute-num-layers=1"
    if recompute == "selective":
        yield f"--recompute-modules {' '.join(recomputed_modules(setup))}"


def precision_arguments(setup: Setup) -> Iterator[str]:
    """Numerics; narrow ones hold weights once and reduce gradients in 16 bits, as planned."""
    layout = setup.layout
    yield from PRECISION_FLAGS[layout.precision]
    if layout.precision in NARROW:
        yield "--grad-reduce-in-bf16"
    if layout.precision == "mxfp8" and layout.sharding == "zero1":
        yield "--reuse-grad-buf-for-mxfp8-param-ag"


def model_arguments(setup: Setup) -> Iterator[str]:
    """The architecture."""
    model, tokens = setup.model, setup.workload.sequence_length
    yield "--use-mcore-models"
    yield "--transformer-impl=transformer_engine"
    yield f"--num-layers={model.num_layers}"
    yield f"--hidden-size={model.hidden_size}"
    yield f"--ffn-hidden-size={model.ffn_hidden_size}"
    yield f"--num-attention-heads={model.num_heads}"
    if model.latent is not None:
        yield from _latent_arguments(setup)
    else:
        yield f"--kv-channels={model.head_dim}"
        if model.num_kv_heads != model.num_heads:
            yield "--group-query-attention"
            yield f"--num-query-groups={model.num_kv_heads}"
    yield f"--seq-length={tokens}"
    yield f"--max-position-embeddings={tokens}"
    yield "--position-embedding-type=rope"
    yield from _rotary_arguments(setup)
    yield "--normalization=RMSNorm"
    if model.gated_mlp:
        yield "--swiglu"
    yield "--disable-bias-linear"
    if not model.tied_embeddings:
        yield "--untie-embeddings-and-output-weights"
    yield f"--vocab-size={model.vocab_size}"
    yield "--attention-dropout=0"
    yield "--hidden-dropout=0"
    yield from _expert_arguments(setup)


def _rotary_arguments(setup: Setup) -> Iterator[str]:
    rotary = setup.model.rotary
    if rotary is None:
        return
    yield f"--rotary-base={rotary.base}"
    if rotary.factor > 1:
        yield "--use-rope-scaling"
        yield f"--rope-scaling-factor={rotary.factor:g}"


def _latent_arguments(setup: Setup) -> Iterator[str]:
    latent = setup.model.latent
    assert latent is not None  # noqa: S101 - asked for by its caller
    yield "--multi-latent-attention"
    if latent.q_lora_rank:
        yield f"--q-lora-rank={latent.q_lora_rank}"
    yield f"--kv-lora-rank={latent.kv_lora_rank}"
    yield f"--qk-head-dim={latent.qk_nope_head_dim}"
    yield f"--qk-pos-emb-head-dim={latent.qk_rope_head_dim}"
    yield f"--v-head-dim={latent.v_head_dim}"


def _expert_arguments(setup: Setup) -> Iterator[str]:
    moe, layout = setup.model.moe, setup.layout
    if moe is None:
        return
    yield f"--num-experts={moe.num_experts}"
    yield f"--moe-router-topk={moe.top_k}"
    yield f"--moe-ffn-hidden-size={moe.expert_ffn_hidden_size}"
    if moe.shared_expert_ffn_hidden_size:
        yield f"--moe-shared-expert-intermediate-size={moe.shared_expert_ffn_hidden_size}"
    dense = setup.model.num_layers - moe.num_moe_layers
    if dense:
        yield f"--moe-layer-freq=([0]*{dense}+[1]*{moe.num_moe_layers})"
    yield f"--expert-model-parallel-size={layout.ep}"
    yield f"--expert-tensor-parallel-size={1 if layout.ep > 1 else layout.tp}"
    yield "--moe-token-dispatcher-type=alltoall"
    yield "--moe-grouped-gemm"


def render(setup: Setup) -> Launch:
    """A file of arguments, one a line, and the command that reads it."""
    lines = (*model_arguments(setup), *parallel_arguments(setup))
    file = File(name="megatron.args", language="text", content="\n".join(lines) + "\n")
    notes = [
        not_written(setup),
        (
            "add data, tokenizer, learning rate and length: --data-path, --tokenizer-type, --lr, "
            "--train-iters; --mock-data --tokenizer-type=NullTokenizer tries the layout alone"
        ),
        "export CUDA_DEVICE_MAX_CONNECTIONS=1 on GPUs before Blackwell with tp or cp above 1",
    ]
    if setup.model.moe is not None and setup.model.num_layers > setup.model.moe.num_moe_layers:
        notes.append("dense layers are written first, as DeepSeek has them; check for yours")
    if setup.layout.precision in NARROW:
        notes.append(
            "gradients are reduced in 16 bits, as the plan counts them; without "
            "--grad-reduce-in-bf16 they take 2 bytes a parameter more"
        )
    command = torchrun(setup, "pretrain_gpt.py", "$(cat megatron.args)")
    return Launch(files=(file,), command=command, notes=tuple(notes))


def overrides(setup: Setup) -> dict[str, Any]:
    """Fields of a Megatron-Bridge configuration."""
    layout, work = setup.layout, setup.workload
    found: dict[str, Any] = {
        "model.tensor_model_parallel_size": layout.tp,
        "model.pipeline_model_parallel_size": layout.pp,
        "model.context_parallel_size": layout.cp,
        "model.sequence_parallel": layout.sequence_parallel,
        "model.seq_length": work.sequence_length,
        "dataset.seq_length": work.sequence_length,
        "train.micro_batch_size": layout.microbatch_size,
        "train.global_batch_size": setup.estimate.global_batch_size,
        "ddp.use_distributed_optimizer": layout.sharding != "none",
        "optimizer.use_distributed_optimizer": layout.sharding != "none",
        "mixed_precision": BRIDGE_PRECISION[layout.precision],
        "model.recompute_granularity": None if layout.recompute == "none" else layout.recompute,
    }
    if layout.recompute == "full":
        found |= {"model.recompute_method": "uniform", "model.recompute_num_layers": 1}
    if layout.recompute == "selective":
        found["model.recompute_modules"] = f"[{','.join(recomputed_modules(setup))}]"
    if layout.vpp > 1:
        found["model.virtual_pipeline_model_parallel_size"] = layout.vpp
    if layout.pp > 1 and layout.stage_layers:
        found["model.pipeline_model_parallel_layout"] = stage_text(setup.stages)
    if setup.model.moe is not None:
        found["model.expert_model_parallel_size"] = layout.ep
        found["model.expert_tensor_parallel_size"] = 1 if layout.ep > 1 else layout.tp
    if layout.sharding == "zero3":
        found |= {
            "ddp.use_megatron_fsdp": True,
            "ddp.data_parallel_sharding_strategy": "optim_grads_params",
        }
    if work.offload == "optimizer":
        found["optimizer.optimizer_cpu_offload"] = True
    return found


def render_bridge(setup: Setup) -> Launch:
    """A file of overrides, one a line."""
    words = {True: "true", False: "false", None: "null"}
    lines = [
        f"{key}={words[value] if isinstance(value, bool) or value is None else value}"
        for key, value in overrides(setup).items()
    ]
    file = File(name="overrides.txt", language="text", content="\n".join(lines) + "\n")
    notes = [
        (
            "train.py is your script on a Megatron-Bridge recipe of the model, which takes "
            "Hydra-style overrides; the model comes from the recipe"
        )
    ]
    if setup.layout.precision in NARROW:
        notes.append(
            "set `mixed_precision.grad_reduce_in_fp32 = False` in train.py, as NVIDIA's fast "
            "recipes do: the plan counts gradients in 16 bits, fp32 takes 2 bytes a parameter more"
        )
    return Launch(
        files=(file,),
        command=torchrun(setup, "train.py", "$(cat overrides.txt)"),
        notes=tuple(notes),
    )
