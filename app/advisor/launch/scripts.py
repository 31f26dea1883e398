"""Plain PyTorch: short scripts that build the mesh a plan names and leave model and data open.

Names: PyTorch 2.6 and later, torch.distributed.device_mesh, torch.distributed.fsdp.fully_shard,
torch.nn.parallel.DistributedDataParallel.
"""

from __future__ import annotations

from typing import Final

from app.advisor.launch.setup import File, Launch, Setup, torchrun
from app.advisor.launch.wrappers import adapters

DTYPES: Final = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32"}

HEAD: Final = '''\
"""{title}

{world} GPUs, {accumulate} microbatches of {microbatch} sequences of {tokens} tokens a step.
Fill in build_model and build_loader; everything else follows the plan.
"""

import os

import torch
import torch.distributed as dist
{imports}

MICROBATCH, ACCUMULATE, TOKENS = {microbatch}, {accumulate}, {tokens}


def build_model():
    raise NotImplementedError("return your module; its transformer blocks in model.layers")


def build_loader(batch_size, rank, world):
    raise NotImplementedError("yield (inputs, targets) of batch_size sequences for this rank")

'''

DDP: Final = """
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
rank, world = dist.get_rank(), dist.get_world_size()
assert world == {world}, f"the plan is for {world} GPUs, not {{world}}"

model = build_model().cuda()
{recompute}# Every GPU holds everything; gradients are averaged while backward still runs.
model = DistributedDataParallel(model, gradient_as_bucket_view=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
{scaler}
batches = iter(build_loader(MICROBATCH, rank, world))
for step in range(1000):
    for index in range(ACCUMULATE):
        inputs, targets = (each.cuda(non_blocking=True) for each in next(batches))
        # Only the last microbatch of a step talks to the other GPUs.
        model.require_backward_grad_sync = index == ACCUMULATE - 1
        with torch.autocast("cuda", dtype={dtype}, enabled={mixed}):
            loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        {backward}
    {update}
    optimizer.zero_grad(set_to_none=True)
"""

FSDP2: Final = """
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
# The last axis varies fastest: neighbours in a node share it.
mesh = init_device_mesh("cuda", {shape}, mesh_dim_names={names})
data = mesh[{data}]
rank, world = {rank}, {dp}

model = build_model()
{tensor}{recompute}policy = MixedPrecisionPolicy(param_dtype={dtype}, reduce_dtype=torch.float32)
options = dict(mesh=data, mp_policy=policy, reshard_after_forward={reshard}{offload})
for block in model.layers:
    fully_shard(block, **options)  # gathered one block at a time
fully_shard(model, **options)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

batches = iter(build_loader(MICROBATCH, rank, world))
for step in range(1000):
    for index in range(ACCUMULATE):
        inputs, targets = (each.cuda(non_blocking=True) for each in next(batches))
        logits = model(inputs)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        (loss / ACCUMULATE).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
"""

RECOMPUTE: Final = """\
# Keeps one tensor a block and computes the rest again in backward.
for index, block in enumerate(model.layers):
    model.layers[index] = checkpoint_wrapper(block)
"""
TENSOR: Final = """\
# Names of a Llama block; adapt them. wq, wk, wv and w1, w3 split by columns, wo and w2 by rows.
for block in model.layers:
    parallelize_module(block, mesh["tp"], {
        "attention.wq": ColwiseParallel(), "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(), "attention.wo": RowwiseParallel(),
        "feed_forward.w1": ColwiseParallel(), "feed_forward.w3": ColwiseParallel(),
        "feed_forward.w2": RowwiseParallel(),
    })
"""
WRAPPER: Final = (
    "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper"
)


def head(setup: Setup, title: str, imports: list[str]) -> str:
    """The part both scripts share."""
    layout = setup.layout
    if layout.recompute == "full":
        imports.append(WRAPPER)
    return HEAD.format(
        title=title,
        imports="\n".join(sorted(imports)),
        world=layout.world_size,
        accumulate=setup.estimate.num_microbatches,
        microbatch=layout.microbatch_size,
        tokens=setup.workload.sequence_length,
    )


def ddp_script(setup: Setup) -> str:
    """The whole of train_ddp.py."""
    precision = setup.layout.precision
    scaled = precision == "fp16"
    loss = "loss / ACCUMULATE"
    return head(
        setup,
        f"Data parallelism of {setup.title} with DistributedDataParallel.",
        ["from torch.nn.parallel import DistributedDataParallel"],
    ) + DDP.format(
        world=setup.layout.world_size,
        recompute=RECOMPUTE if setup.layout.recompute == "full" else "",
        scaler='scaler = torch.amp.GradScaler("cuda")  # fp16 underflows without it\n'
        if scaled
        else "",
        dtype=DTYPES[precision],
        mixed=precision != "fp32",
        backward=f"scaler.scale({loss}).backward()" if scaled else f"({loss}).backward()",
        update="scaler.step(optimizer)\n    scaler.update()" if scaled else "optimizer.step()",
    )


def fsdp2_script(setup: Setup) -> str:
    """The whole of train_fsdp2.py."""
    layout = setup.layout
    axes = {"replicate": setup.replicate_degree, "shard": setup.shard_degree, "tp": layout.tp}
    kept = {name: size for name, size in axes.items() if size > 1 or name == "shard"}
    data = [name for name in kept if name != "tp"]
    shape, names = (tuple(kept.values()), tuple(kept))
    imports = [
        "from torch.distributed.device_mesh import init_device_mesh",
        "from torch.distributed.fsdp import "
        + ("CPUOffloadPolicy, " if setup.workload.offload == "parameters" else "")
        + "MixedPrecisionPolicy, fully_shard",
    ]
    if layout.tp > 1:
        imports.append(
            "from torch.distributed.tensor.parallel import (\n"
            "    ColwiseParallel,\n    RowwiseParallel,\n    parallelize_module,\n)"
        )
    return head(setup, f"{setup.title} with FSDP2 (fully_shard).", imports) + FSDP2.format(
        shape=shape,
        names=names,
        data=", ".join(f'"{name}"' for name in data),
        rank="dist.get_rank()" if layout.tp == 1 else f"dist.get_rank() // {layout.tp}",
        dp=layout.dp,
        tensor=TENSOR if layout.tp > 1 else "",
        recompute=RECOMPUTE if layout.recompute == "full" else "",
        dtype=DTYPES[layout.precision],
        reshard=setup.shards_weights,
        offload=", offload_policy=CPUOffloadPolicy()"
        if setup.workload.offload == "parameters"
        else "",
    )


def refuse(setup: Setup) -> tuple[str, ...]:
    """What the scripts have no lines for."""
    said = []
    if setup.workload.optimizer != "adamw":
        said.append("the script has AdamW; `optimizer` must be adamw")
    if setup.workload.offload == "optimizer":
        said.append(
            "FSDP2 offloads parameters with the optimizer; `offload` must be none or parameters"
        )
    return tuple(said)


def refuse_ddp(setup: Setup) -> tuple[str, ...]:
    """DDP moves nothing to the host."""
    said = refuse(setup)
    if setup.workload.offload == "parameters":
        said += ("DistributedDataParallel offloads nothing; `offload` must be none",)
    return said


def _script(setup: Setup, name: str, content: str) -> Launch:
    return Launch(
        files=(File(name=name, language="python", content=content),),
        command=torchrun(setup, name),
        notes=(
            "compile the blocks (torch.compile) for the speed that the plan counts on",
            *adapters(setup),
        ),
    )


def render_ddp(setup: Setup) -> Launch:
    """A DistributedDataParallel script."""
    return _script(setup, "train_ddp.py", ddp_script(setup))


def render_fsdp2(setup: Setup) -> Launch:
    """A fully_shard script."""
    return _script(setup, "train_fsdp2.py", fsdp2_script(setup))
