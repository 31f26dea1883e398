"""Requests with good defaults, over the built-in catalog."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from app.catalog.loader import Catalog, load_catalog
from app.planner.estimate import complete
from app.planner.hardware import Cluster, Link
from app.planner.layout import Layout
from app.planner.legality import violations
from app.planner.request import PlanRequest, Workload


@cache
def catalog() -> Catalog:
    """The built-in catalog, loaded once."""
    return load_catalog()


def cluster(gpu: str = "H100-SXM5-80GB", *, nodes: int = 1, per_node: int = 8) -> Cluster:
    """Nodes joined by InfiniBand."""
    return Cluster(
        gpu=catalog().gpus[gpu],
        nodes=nodes,
        gpus_per_node=per_node,
        domain_size=per_node,
        intra=Link(name="nvlink", bytes_per_second=4.5e11, latency_seconds=4e-6),
        inter=Link(name="infiniband", bytes_per_second=5e10, latency_seconds=1.5e-5),
        fabric="infiniband-400",
    )


def request(
    model: str = "llama-3-8b",
    *,
    framework: str = "fsdp",
    gpu: str = "H100-SXM5-80GB",
    nodes: int = 1,
    per_node: int = 8,
    seq: int = 8192,
    batch: int = 64,
    **workload: Any,
) -> PlanRequest:
    """One question; `workload` are the other fields of a workload."""
    profile = catalog().frameworks[framework]
    return PlanRequest(
        model=catalog().models[model],
        cluster=cluster(gpu, nodes=nodes, per_node=per_node),
        framework=profile,
        efficiency=catalog().facts.efficiencies[profile.efficiency][gpu],
        workload=Workload(sequence_length=seq, global_batch_size=batch, **workload),
    )


def layout(asked: PlanRequest, **fields: Any) -> Layout:
    """A layout with absent fields at the framework's defaults."""
    made = complete(asked, fields)
    assert isinstance(made, Layout), made
    return made


def broken(asked: PlanRequest, **fields: Any) -> dict[str, str]:
    """Rules a layout breaks, with their messages."""
    return {each.rule: each.message for each in violations(asked, layout(asked, **fields))}


def with_host(asked: PlanRequest, gigabytes: int) -> PlanRequest:
    """The same question on nodes with so much host memory."""
    return replace(
        asked, cluster=replace(asked.cluster, host_memory_bytes_per_node=gigabytes * 10**9)
    )
