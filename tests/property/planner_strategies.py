"""Random models, clusters and jobs for the planner's properties, over the real catalog profiles."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from app.catalog.loader import Catalog, load_catalog
from app.planner.architecture import LatentAttention, MixtureOfExperts, ModelArchitecture
from app.planner.hardware import Cluster, Link
from app.planner.request import Pins, PlanRequest, Workload


@cache
def catalog() -> Catalog:
    """The built-in catalog, loaded once."""
    return load_catalog()


@st.composite
def models(draw: st.DrawFn) -> ModelArchitecture:
    """Dense, GQA, MLA and MoE transformers, odd layer counts included."""
    head_dim = draw(st.sampled_from([64, 128]))
    kv_heads = draw(st.sampled_from([1, 2, 4, 6, 8]))
    heads = kv_heads * draw(st.sampled_from([1, 2, 4]))
    layers = draw(st.integers(1, 12))
    moe = None
    if draw(st.booleans()):
        moe = MixtureOfExperts(
            num_experts=draw(st.sampled_from([4, 6, 8])),
            top_k=draw(st.integers(1, 3)),
            expert_ffn_hidden_size=draw(st.sampled_from([512, 1408])),
            shared_expert_ffn_hidden_size=draw(st.sampled_from([0, 512])),
            num_moe_layers=draw(st.integers(1, layers)),
        )
    latent = None
    if draw(st.booleans()):
        latent = LatentAttention(
            q_lora_rank=draw(st.sampled_from([0, 256])),
            kv_lora_rank=128,
            qk_nope_head_dim=64,
            qk_rope_head_dim=32,
            v_head_dim=64,
        )
    return ModelArchitecture(
        name="random",
        hidden_size=heads * head_dim,
        ffn_hidden_size=draw(st.sampled_from([1000, 4096, 14336])),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=draw(st.sampled_from([0, 1000, 50257, 128256])),
        gated_mlp=draw(st.booleans()),
        tied_embeddings=draw(st.booleans()),
        attention="mla" if latent else "gqa",
        latent=latent,
        moe=moe,
        params_override=draw(st.sampled_from([0, 0, 0, 3_000_000_000])),
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Small clusters of catalog GPUs, some with little memory left."""
    names = ["H100-SXM5-80GB", "A100-SXM4-40GB", "L40S", "GB200-186GB", "T4"]
    gpu = catalog().gpus[draw(st.sampled_from(names))]
    per_node = draw(st.sampled_from([1, 2, 4, 8]))
    nodes = draw(st.sampled_from([1, 2, 3, 4]))
    domain = per_node * draw(st.sampled_from([1, nodes]))
    return Cluster(
        gpu=gpu,
        nodes=nodes,
        gpus_per_node=per_node,
        domain_size=domain,
        intra=Link(name="intra", bytes_per_second=4e11, latency_seconds=4e-6),
        inter=Link(
            name="inter", bytes_per_second=draw(st.sampled_from([1e9, 5e10])), latency_seconds=2e-5
        ),
        fabric="random",
        exclusive=draw(st.sampled_from([True, True, True, False])),
        host_memory_bytes_per_node=draw(st.sampled_from([0, 8 * 2**30, 2**40])),
    )


@st.composite
def requests(draw: st.DrawFn) -> PlanRequest:
    """Whole questions, pins and tasks included."""
    cluster = draw(clusters())
    framework = draw(st.sampled_from(list(catalog().frameworks.values())))
    workload = Workload(
        sequence_length=draw(st.sampled_from([512, 4096, 8192, 32768])),
        global_batch_size=draw(st.sampled_from([4, 12, 48, 64])),
        task=draw(st.sampled_from(["pretrain", "pretrain", "sft", "lora", "qlora"])),
        optimizer=draw(st.sampled_from(["adamw", "adamw_bf16", "sgd"])),
        offload=draw(st.sampled_from(["none", "none", *framework.offloads])),
    )
    pins = Pins(
        tp=draw(st.sampled_from([None, None, None, 1, 2])),
        pp=draw(st.sampled_from([None, None, None, 2, 3])),
        recompute=draw(st.sampled_from([None, None, "full"])),
        precision=draw(st.sampled_from([None, None, "fp32"])),
        microbatch_size=draw(st.sampled_from([None, None, 1, 2])),
        vpp=draw(st.sampled_from([None, None, None, 2])),
    )
    return PlanRequest(
        model=draw(models()),
        cluster=cluster,
        framework=framework,
        efficiency=catalog().facts.efficiencies[framework.efficiency][cluster.gpu.name],
        workload=workload,
        pins=pins,
        allowed_precisions=draw(st.sampled_from([("bf16", "fp16"), ("bf16", "fp16", "fp8")])),
    )
