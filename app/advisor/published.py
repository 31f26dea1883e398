"""Published training runs: one row of a table becomes one question and one layout.

An empty cell was not stated; what is assumed then is said here, once, for all rows of a kind:

- software that a row names is the profile that `PROFILES` gives it; Megatron-Core of 2025 and
  before (NeMo, dgxc-benchmarking, Megatron-Bridge containers before 26.06) is a profile of its own;
- recomputation not stated is `selective` for torchtitan and MaxText (the remat policies of
  dgxc-benchmarking keep every product but gate and up), else `none`. Megatron-Bridge rows took it
  from the recipes of 2026: containers of 2025 count as not stated;
- a local batch under a torchtitan pipeline is cut into `pp` microbatches;
- sharding not stated is the profile's own, except vTrain's runs (plain data parallelism); sequence
  parallelism not stated is used where the profile has it and tp is above 1;
- ms-swift and Megatron-Bridge rows say "zero1 assumed": with one pipeline stage it may be another;
- torchtune's recipes are pure bf16 (`dtype: bf16`), with CPU offload or QLoRA where their notes say
  so; "AC per default recipe" is full recomputation; the loss is chunked except in the rows of its
  table of flags that come before that flag;
- a block-wise `selective` (every other layer, or a share of them that is not stated) lies between
  the op-wise one and `full`;
- NVIDIA's fine-tuning benchmarks pack SQuAD: attention sees the samples, not the sequence;
- MoE layers run from CUDA graphs where the profile says so, and where a row names HybridEP or drops
  tokens (static shapes both); a fallback to the all-to-all dispatcher is that of 2025;
- heads that don't divide the hidden size are a slip of the log: heads of 128 then;
- the network is the one a row names, else the GPU's usual one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from app.catalog.loader import Catalog
from app.planner.architecture import LatentAttention, MixtureOfExperts, ModelArchitecture
from app.planner.framework import FrameworkProfile
from app.planner.hardware import Cluster, Gpu, Link
from app.planner.layout import Layout
from app.planner.request import PlanRequest, Workload

Row = Mapping[str, str]

PROFILES: tuple[tuple[str, str], ...] = (
    (r"^(torchtitan|torchtune|litgpt|PyTorch FSDP|NeMo AutoModel)", "fsdp"),
    (r"^MaxText", "maxtext"),
    (r"^Composer", "composer"),
    (r"^Megatron-DeepSpeed|^Megatron \+ Deepspeed", "megatron-deepspeed"),
    (r"^Megatron-LM", "megatron-lm-2022"),
    (r"^Megatron-SWIFT|^Megatron-|^NeMo|^Primus|^Skywork|^HAI-LLM", "megatron"),
    (r"[Dd]eep[Ss]peed|^InternEvo|^Colossal", "deepspeed"),
)
"""Software by the start of its name, the first match counts. InternEvo and Colossal-AI shard like
ZeRO."""

GPUS: Mapping[str, str] = {
    "A100": "A100-SXM4-80GB",
    "A100-40GB": "A100-SXM4-40GB",
    "A100-80GB": "A100-SXM4-80GB",
    "A100 (DGX-A100, 2020: 40GB)": "A100-SXM4-40GB",
    "A800-80GB": "A800-SXM4-80GB",
    "B200": "B200-SXM-180GB",
    "B200-class (SM100, 184 GiB)": "B200-SXM-180GB",
    "B300": "B300-SXM-288GB",
    "GB200": "GB200-186GB",
    "GB300": "GB300-288GB",
    "H100": "H100-SXM5-80GB",
    "H100-80GB": "H100-SXM5-80GB",
    "H100-96GB": "H100-SXM5-80GB",
    "H20-96GB": "H20-96GB",
    "H200": "H200-SXM-141GB",
    "H800-80GB": "H800-SXM5-80GB",
    "MI300X": "MI300X",
    "RTX4090": "RTX-4090",
    "V100-16GB": "V100-SXM2-16GB",
    "V100-32GB": "V100-SXM2-32GB",
    "V100-32GB (DGX-2)": "V100-SXM2-32GB",
    "V100-32GB (DGX-2H)": "V100-SXM2-32GB",
}
MEMORY_MIB: Mapping[str, int] = {"H100-96GB": 97_280, "B200-class (SM100, 184 GiB)": 188_416}
"""Cards the catalog has only with another memory: 95 GiB by the fractions torchtitan prints."""

BS_VOCABULARY = 250_880
MOONLIGHT = ModelArchitecture(
    name="Moonlight-16B-A3B",
    hidden_size=2048,
    ffn_hidden_size=11_264,
    num_layers=27,
    num_heads=16,
    num_kv_heads=16,
    head_dim=128,
    vocab_size=163_840,
    attention="mla",
    latent=LatentAttention(
        q_lora_rank=0, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128
    ),
    moe=MixtureOfExperts(
        num_experts=64,
        top_k=6,
        expert_ffn_hidden_size=1408,
        shared_expert_ffn_hidden_size=2816,
        num_moe_layers=26,
    ),
)
"""Source: https://huggingface.co/moonshotai/Moonlight-16B-A3B config.json."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One published run: what was asked, how it was laid out, and which cells were assumed."""

    row: Row
    request: PlanRequest
    layout: Layout
    assumed: tuple[str, ...]

    @property
    def group(self) -> str:
        """The source group, the prefix of the row's id."""
        return self.row["id"].partition("-")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """A row that cannot be computed, and why."""

    row: Row
    reason: str


def count(row: Row, key: str, default: int = 1) -> int:
    """A whole number of a cell, `default` when it is empty."""
    return int(float(row[key])) if row[key] else default


def bigscience(row: Row) -> ModelArchitecture | None:
    """A GPT of the BigScience log: hidden size and layers stand in its name, heads in the notes.

    Where the name has no layers they follow from its billions of parameters: 12 h^2 a layer beside
    the vocabulary.
    """
    hidden = re.search(r"\(h(\d+)", row["model"])
    if hidden is None:
        return None
    h = int(hidden.group(1))
    named = re.search(r"L(\d+)\)", row["model"])
    billions = re.search(r"GPT-(\d+)B", row["model"])
    assert billions is not None  # noqa: S101 - every model of the log has its size in the name
    estimated = round((int(billions.group(1)) * 1e9 - BS_VOCABULARY * h) / (12 * h * h))
    layers = int(named.group(1)) if named else estimated
    stated = re.search(r"heads (\d+)", row["notes"])
    heads = int(stated.group(1)) if stated else 96
    if h % heads:
        heads = h // 128
    return ModelArchitecture(
        name=row["model"],
        hidden_size=h,
        ffn_hidden_size=4 * h,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=h // heads,
        vocab_size=BS_VOCABULARY,
        gated_mlp=False,
        tied_embeddings=True,
        vector_params_per_layer=13 * h,
        extra_params=(2048 + 2) * h,
    )


def latent(model: Row) -> LatentAttention | None:
    """The latent sizes of an MLA model."""
    if model["attention"] != "mla" or not model["kv_lora_rank"]:
        return None
    return LatentAttention(
        q_lora_rank=count(model, "q_lora_rank", 0),
        kv_lora_rank=count(model, "kv_lora_rank", 0),
        qk_nope_head_dim=count(model, "qk_nope_head_dim", 0),
        qk_rope_head_dim=count(model, "qk_rope_head_dim", 0),
        v_head_dim=count(model, "v_head_dim", 0),
    )


def architecture(row: Row, model: Row, catalog: Catalog) -> ModelArchitecture | None:
    """The model of a row, `None` when its sizes are not known or it is no plain transformer."""
    name = row["model"]
    if name == MOONLIGHT.name:
        return MOONLIGHT
    if name.startswith("BS-GPT-"):
        return bigscience(row)
    if model["family"] == "nemotron-h" or not model["hidden"] or not model["layers"]:
        return catalog.models.get(name.lower())
    hidden, heads = count(model, "hidden"), count(model, "heads", 0)
    if not heads:
        heads = hidden // 128
    moe = None
    if model["moe_experts"]:
        moe = MixtureOfExperts(
            num_experts=count(model, "moe_experts"),
            top_k=count(model, "moe_topk"),
            expert_ffn_hidden_size=count(model, "moe_ffn_hidden"),
            shared_expert_ffn_hidden_size=count(model, "moe_shared_ffn", 0),
            num_moe_layers=count(model, "moe_layers"),
        )
    parts = latent(model)
    return ModelArchitecture(
        name=name,
        hidden_size=hidden,
        ffn_hidden_size=count(model, "ffn_hidden", 0),
        num_layers=count(model, "layers"),
        num_heads=heads,
        num_kv_heads=count(model, "kv_heads", heads),
        head_dim=count(model, "head_dim", hidden // heads),
        vocab_size=count(model, "vocab", 50_304),
        gated_mlp=model["gated_mlp"] == "1",
        tied_embeddings=model["tied_embeddings"] == "1",
        attention="mla" if parts else "gqa",
        latent=parts,
        moe=moe,
    )


LAST_OF_2025 = "26.04"
"""The last Megatron-Bridge container whose MoE layers ran as in 2025: 26.06 brought their speed-up
(MoE rows of one model and layout gain 40 to 55 % from 26.04 to 26.06, dense ones 0 to 3 %)."""


def container(row: Row) -> str:
    """Year and month of the container a row's source names, "" if none."""
    found = re.search(r"\[(\d\d\.\d\d)", row["source"])
    return found.group(1) if found else ""


def is_megatron_2025(row: Row) -> bool:
    """Whether a Megatron-Core row ran the software of 2025 or before.

    Cards, skills and ms-swift are of 2026; NeMo, dgxc-benchmarking and the rest are older. The
    all-to-all dispatcher with unfused permutation that some of 2026 fall back to is that of 2025.
    """
    release = container(row)
    if "alltoall" in row["notes"]:
        return True
    if release:
        return release <= LAST_OF_2025
    return not row["id"].startswith(("card-", "skill-", "swift-"))


def profile(row: Row, catalog: Catalog) -> FrameworkProfile | None:
    """The software of a row.

    torchtitan's runs on H100-96GB are those of December 2024; until "+Compile" in torchtune's table
    of flags the loss is outside torch.compile too.
    """
    for pattern, name in PROFILES:
        if re.search(pattern, row["framework"]):
            early = row["framework"] == "torchtitan" and row["gpu"] == "H100-96GB"
            if early or row["notes"].startswith("+Packed"):
                return catalog.frameworks["fsdp-2024"]
            if name == "megatron" and is_megatron_2025(row):
                return catalog.frameworks["megatron-2025"]
            return catalog.frameworks[name]
    return None


PACKED = ("NeMo (Megatron-Core)", "Megatron-Bridge")
"""Software whose fine-tuning benchmarks pack samples of SQuAD into sequences, by its start."""

SAMPLE_ATTENDED = 100
"""Mean tokens a query sees in a packed sample of SQuAD: half of some 200 (a context of 120 words, a
question and an answer)."""


def as_trained(row: Row, model: ModelArchitecture) -> ModelArchitecture:
    """The architecture with the attention of the samples that a run packs into a sequence."""
    if row["task"] in ("sft", "lora") and row["framework"].startswith(PACKED):
        return replace(model, sliding_window=SAMPLE_ATTENDED, num_sliding_layers=model.num_layers)
    return model


def as_run(row: Row, framework: FrameworkProfile) -> FrameworkProfile:
    """The profile with what a row says of its software, or the recipes of its source set."""
    return _as_recipe(row, _as_noted(row, framework))


def _as_noted(row: Row, framework: FrameworkProfile) -> FrameworkProfile:
    """HybridEP and token dropping give static shapes, which CUDA graphs need."""
    if "HybridEP" in row["notes"] or "tokendrop" in row["notes"]:
        return replace(framework, captures_routed="always")
    return framework


def _as_recipe(row: Row, framework: FrameworkProfile) -> FrameworkProfile:
    """The profile with what the recipes of a source set otherwise.

    Megatron-Bridge's recipes reduce gradients in 16 bits, as the profile's 8-bit variants do.
    torchtitan's NVFP4 page is of 2026, whose configurations have the chunked loss (eight chunks),
    as torchtune's recipes have (`CEWithChunkedOutputLoss`).
    """
    if row["framework"].startswith("Megatron-Bridge"):
        narrow = {kind: framework.variants[f"{kind}@fp8"] for kind in ("none", "zero1")}
        return replace(framework, states={**framework.states, **narrow})
    chunked = row["framework"] == "torchtune" and not row["notes"].startswith(BEFORE_CHUNKS)
    if chunked or "nvfp4.md" in row["source"]:
        return replace(framework, logits_bytes=framework.logits_bytes / 8)
    return framework


BEFORE_CHUNKS = ("Baseline", "+Packed", "+Compile")
"""Rows of torchtune's cumulative table of flags that precede its chunked cross-entropy."""


def workload(row: Row, model: ModelArchitecture, *, batch: int) -> Workload:
    """What a row trains: the optimizer of the recipe it names, offload and QLoRA by its notes.

    Moonlight's recipe has the precision-aware optimizer; NeMo AutoModel trains with bf16 states
    (NVIDIA-NeMo/Automodel#2673).
    """
    task, optimizer, offload = row["task"] or "pretrain", "adamw", "none"
    if model.name == MOONLIGHT.name or row["framework"].startswith("NeMo AutoModel"):
        optimizer = "adamw_bf16"
    if "QLoRA" in row["notes"]:
        task = "qlora"
    if row["framework"] == "torchtune":
        optimizer = "adamw_bf16"
        if "CPU offload" in row["notes"]:
            offload = "parameters"
    return Workload(
        sequence_length=count(row, "seq_len"),
        global_batch_size=batch,
        task=task,  # type: ignore[arg-type]
        optimizer=optimizer,  # type: ignore[arg-type]
        offload=offload,  # type: ignore[arg-type]
    )


def card(row: Row, catalog: Catalog) -> Gpu | None:
    """The GPU of a row."""
    name = GPUS.get(row["gpu"])
    if name is None:
        return None
    gpu = catalog.gpus[name]
    mib = MEMORY_MIB.get(row["gpu"])
    return replace(gpu, memory_bytes=mib * 1024**2) if mib else gpu


NETWORKS: tuple[tuple[str, float], ...] = (
    (r"1600 Gbps", 25e9),
    (r"800 Gbps", 12.5e9),
    (r"Jean Zay V100", 12.5e9),
    (r"Jean Zay", 6.25e9),
    (r"4 x 100 Gb", 6.25e9),
    (r"^400 Gbps$", 6.25e9),
)
"""Bytes per second of one GPU's share of the network, by what a row calls it. Jean Zay: four 100
Gbit/s Omni-Path ports for eight A100 or four V100; the others are rates of a node of eight."""


def network(row: Row, gpu: Gpu, catalog: Catalog) -> Link:
    """The link between nodes: the stated rate, or that of the GPU's usual fabric."""
    usual = catalog.fabrics[catalog.gpu_entries[gpu.name].default_fabric]
    rate = usual.bytes_per_second_per_gpu(8)
    for pattern, stated in NETWORKS:
        if re.search(pattern, row["interconnect"]):
            rate = stated
            break
    return Link(name="network", bytes_per_second=rate, latency_seconds=usual.latency_seconds)


def cluster(row: Row, gpu: Gpu, catalog: Catalog) -> Cluster:
    """As many GPUs as the row has, eight to a node unless it says otherwise."""
    gpus = count(row, "num_gpus")
    per_node = min(count(row, "gpus_per_node", 8), gpus)
    if gpus % per_node:
        per_node = gpus
    links = catalog.facts.links
    nvlink = gpu.nvlink_bytes_per_second > 0
    reach = gpu.nvlink_domain_size if nvlink else per_node
    domain = min(reach, gpus) if reach > per_node else min(reach, per_node)
    return Cluster(
        gpu=gpu,
        nodes=gpus // per_node,
        gpus_per_node=per_node,
        domain_size=domain if domain < per_node else domain - domain % per_node,
        intra=Link(
            name="nvlink" if nvlink else "pcie",
            bytes_per_second=gpu.nvlink_bytes_per_second or gpu.pcie_bytes_per_second,
            latency_seconds=links.nvlink_latency_seconds if nvlink else links.pcie_latency_seconds,
        ),
        inter=network(row, gpu, catalog),
        fabric="as published",
    )


def microbatch(row: Row, dp: int) -> int:
    """Sequences of one microbatch, 0 when the row does not say."""
    if row["micro_batch"]:
        return count(row, "micro_batch")
    if row["framework"] == "torchtitan" and row["global_batch"]:
        return max(1, count(row, "global_batch") // dp // count(row, "pp"))
    return 0


def usual_precision(framework: FrameworkProfile, gpu: Gpu) -> str:
    """fp16 before flash attention came, else what the GPU has."""
    return gpu.default_precision if framework.flash_attention else "fp16"


def recompute_kind(row: Row) -> str:
    """`none`, `selective` or `full`, "" when the row does not say."""
    if container(row) and container(row) < "26":
        return ""
    if "AC per default recipe" in row["notes"]:
        return "full"
    stated = re.match(r"none|selective|full", row["recompute"])
    if stated:
        return stated.group(0)
    return "selective" if row["framework"].startswith("MaxText") else ""


IN_BACKWARD = "an optimizer inside the backward pass: in no profile"
"""torchtune on one GPU: gradients are used as they come and none is held."""

NOT_RUNS: Mapping[str, str] = {
    r"shape formula does not apply": "not a plain transformer",
    r"CHECK: printed": "the source contradicts itself",
    r"rows above 80 GB are what would be needed": "a calculation, not a run",
    r"^unpacked|; unpacked|^Baseline": "tokens of a step not stated: unpacked sequences",
    r"^full finetune;|^\+(Optimizer in backward|Activation offloading|8-bit AdamW)": IN_BACKWARD,
}
"""Notes, of a row or its model, that say it is no measurement of a full step, and what it is."""


OUT_OF_MEMORY = "ran out of memory"
RATES = ("tokens_per_s_per_gpu", "model_tflops_per_gpu", "step_time_s")


def not_a_run(row: Row, model: Row) -> str:
    """Why a row is no measurement, "" if it is one. One that ran out of memory has no rate."""
    if "OOM" in row["notes"] and not any(row[key] for key in RATES):
        return OUT_OF_MEMORY
    for pattern, reason in NOT_RUNS.items():
        if re.search(pattern, row["notes"]) or re.search(pattern, model["notes"]):
            return reason
    return ""


def missing(row: Row) -> str:
    """What a row must state and does not, or states that no layout has; "" if nothing."""
    needed = ("num_gpus", "tp", "pp", "seq_len")
    absent = [key for key in needed if not row[key]]
    if absent:
        return f"{', '.join(absent)} not stated"
    if count(row, "ep") > 1 and count(row, "etp") > 1:
        return "expert tensor parallelism: in no layout"
    return ""


def run_of(row: Row, models: Mapping[str, Row], catalog: Catalog) -> Run | Excluded:
    """One row as a request and a layout, or why it cannot be one."""
    known = models.get(row["model"])
    if known is None:
        return Excluded(row=row, reason="architecture not in the table of models")
    why_not = missing(row) or not_a_run(row, known)
    if why_not:
        return Excluded(row=row, reason=why_not)
    model = architecture(row, known, catalog)
    if model is None:
        return Excluded(row=row, reason="architecture not stated, or not a plain transformer")
    gpu, framework = card(row, catalog), profile(row, catalog)
    if gpu is None or framework is None:
        return Excluded(row=row, reason="GPU or software not named")
    tp, pp, cp = count(row, "tp"), count(row, "pp"), count(row, "cp")
    dp = count(row, "num_gpus") // (tp * pp * cp)
    if dp < 1:
        return Excluded(row=row, reason="more ranks than GPUs")
    size = microbatch(row, dp)
    if not size:
        return Excluded(row=row, reason="microbatch not stated")
    nodes, software = cluster(row, gpu, catalog), as_run(row, framework)
    return _built(row, model, nodes, software, catalog, dp=dp, size=size)


def _built(
    row: Row,
    model: ModelArchitecture,
    nodes: Cluster,
    framework: FrameworkProfile,
    catalog: Catalog,
    *,
    dp: int,
    size: int,
) -> Run:
    tp, gpu = count(row, "tp"), nodes.gpu
    recompute = recompute_kind(row)
    usual = "selective" if row["framework"] == "torchtitan" else "none"
    plain = row["sharding"] == "ddp" or row["id"].startswith("vt-")
    sharding = "none" if plain else row["sharding"]
    parallel = framework.sequence_parallel and tp > 1
    keys = ("sharding", "recompute", "precision", "sequence_parallel")
    assumed = [key for key in keys if not row[key]]
    if re.search(r"zero1\)|assumed = zero1", row["notes"]) or dp == 1:
        assumed.append("sharding")
    if re.search(r"selective\(every|^selective$", row["recompute"]) and framework.name == "fsdp":
        assumed.append("recompute")
    layout = Layout(
        tp=tp,
        pp=count(row, "pp"),
        vpp=count(row, "vpp", 2 if "Interleaved" in row["notes"] else 1),
        cp=count(row, "cp"),
        ep=count(row, "ep"),
        dp=dp,
        dp_shard=_shard_group(nodes, tp=tp, cp=count(row, "cp"), dp=dp, kind=sharding),
        sharding=sharding or framework.default_sharding,  # type: ignore[arg-type]
        sequence_parallel=row["sequence_parallel"] == "1" if row["sequence_parallel"] else parallel,
        microbatch_size=size,
        recompute=recompute or usual,  # type: ignore[arg-type]
        precision=row["precision"] or usual_precision(framework, gpu),  # type: ignore[arg-type]
    )
    return Run(
        row=row,
        request=PlanRequest(
            model=as_trained(row, model),
            cluster=nodes,
            framework=framework,
            efficiency=catalog.facts.efficiencies[framework.efficiency][gpu.name],
            workload=workload(row, model, batch=count(row, "global_batch", size * dp)),
        ),
        layout=layout,
        assumed=tuple(assumed),
    )


def _shard_group(nodes: Cluster, *, tp: int, cp: int, dp: int, kind: str) -> int:
    """Ranks that share one copy of the states: with HSDP those of one node."""
    group = max(1, nodes.gpus_per_node // (tp * cp))
    return group if kind == "hsdp" and dp % group == 0 else dp


def runs(rows: Iterable[Row], models: Mapping[str, Row], catalog: Catalog) -> list[Run | Excluded]:
    """Every row of a table of published runs. `models` are the architectures by name."""
    return [run_of(row, models, catalog) for row in rows]
