"""GPU, node counts and network become a `Cluster`; what was not given is assumed and said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.catalog.names import NameIndex, ResolvedGpu
from app.catalog.reading import is_number, shown
from app.catalog.records import Fabric, Instance
from app.planner.hardware import Cluster, Link
from app.planner.intent import FieldError

MIN_BYTES_PER_SECOND: Final = 1e6
MAX_BYTES_PER_SECOND: Final = 1e13
RATE_KEY: Final = "bytes_per_second_per_gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkDefaults:
    """Seconds of one hop over links whose rate the GPU gives, and over a fabric given by rate."""

    nvlink_latency_seconds: float
    pcie_latency_seconds: float
    custom_fabric_latency_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The link that leaves a node, what it is called, and how many GPUs a rack joins before it."""

    link: Link
    fabric: str
    nvlink_domain_size: int = 0
    assumption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """How many nodes of how many GPUs, and their machine type if it is known."""

    nodes: int
    gpus_per_node: int
    instance: Instance | None = None

    @property
    def world_size(self) -> int:
        """GPUs of the whole job."""
        return self.nodes * self.gpus_per_node


def network(
    fabric: str | Mapping[str, Any] | None,
    nodes: Nodes,
    gpu: ResolvedGpu,
    *,
    fabrics: Mapping[str, Fabric],
    names: NameIndex,
    defaults: LinkDefaults,
) -> Network | FieldError:
    """The network of the question: its fabric, else its machine type's, else the GPU's usual one.

    The path of an error is `fabric` or under it.
    """
    if isinstance(fabric, str):
        return _named(fabric, nodes, gpu, fabrics=fabrics, names=names)
    if fabric is not None:
        return _by_rate(fabric, defaults)
    instance = nodes.instance
    if instance is not None:
        return _of_instance(instance, fabrics[instance.fabric])
    usual = fabrics[gpu.entry.default_fabric]
    assumption = f"network {usual.name} assumed, usual for {gpu.entry.gpu.name}"
    return _network(usual, nodes.gpus_per_node, assumption if nodes.nodes > 1 else "")


def _named(
    name: str, nodes: Nodes, gpu: ResolvedGpu, *, fabrics: Mapping[str, Fabric], names: NameIndex
) -> Network | FieldError:
    found = names.find(name)
    if found is None:
        message = f"`fabric` {names.unknown(name).message}; or give {{`{RATE_KEY}`: a number}}"
        return FieldError(path="fabric", value=name, message=message)
    fabric = fabrics[found]
    largest = gpu.entry.gpu.nvlink_domain_size
    if fabric.nvlink_domain_size > largest:
        message = (
            f"`fabric` {found} joins {fabric.nvlink_domain_size} GPUs over NVLink and "
            f"{gpu.entry.gpu.name} joins {largest}; it must be one between its nodes, "
            f"as {gpu.entry.default_fabric}"
        )
        return FieldError(path="fabric", value=name, message=message)
    return _network(fabric, nodes.gpus_per_node, "")


def _network(fabric: Fabric, gpus_per_node: float, assumption: str) -> Network:
    link = Link(
        name=fabric.name,
        bytes_per_second=fabric.bytes_per_second_per_gpu(gpus_per_node),
        latency_seconds=fabric.latency_seconds,
    )
    return Network(
        link=link,
        fabric=fabric.name,
        nvlink_domain_size=fabric.nvlink_domain_size,
        assumption=assumption,
    )


def _of_instance(instance: Instance, fabric: Fabric) -> Network:
    """The machine type's own rate over all its GPUs, used or not; without one the fabric's."""
    gpus = max(1.0, instance.gpus_per_node)
    if not instance.network_bytes_per_second:
        said = f"network {fabric.name} assumed for {instance.name}"
        return _network(fabric, gpus, said)
    rate = instance.network_bytes_per_second / gpus
    link = Link(name=fabric.name, bytes_per_second=rate, latency_seconds=fabric.latency_seconds)
    return Network(link=link, fabric=fabric.name)


def _by_rate(fabric: Any, defaults: LinkDefaults) -> Network | FieldError:
    must = f"`fabric` must be a catalog name or {{`{RATE_KEY}`: a number}}"
    if not isinstance(fabric, Mapping) or set(fabric) != {RATE_KEY}:
        return FieldError(path="fabric", value=fabric, message=f"{must}, not {shown(fabric)}")
    rate = fabric[RATE_KEY]
    if not is_number(rate) or not MIN_BYTES_PER_SECOND <= rate <= MAX_BYTES_PER_SECOND:
        message = (
            f"`{RATE_KEY}` must be from {MIN_BYTES_PER_SECOND:g} to {MAX_BYTES_PER_SECOND:g}, "
            f"not {shown(rate)}"
        )
        return FieldError(path=f"fabric.{RATE_KEY}", value=rate, message=message)
    latency = defaults.custom_fabric_latency_seconds
    name = f"custom-{rate * 8 / 1e9:g}"
    link = Link(name=name, bytes_per_second=float(rate), latency_seconds=latency)
    said = f"fabric latency of {latency * 1e6:g} us assumed"
    return Network(link=link, fabric=name, assumption=said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """How many consecutive GPUs share the fast link, and whether it is NVLink."""

    size: int
    nvlink: bool
    assumption: str = ""


def fast_domain(gpu: ResolvedGpu, nodes: Nodes, outside: Network) -> Domain:
    """The GPUs that share the fast link, by how far the GPU's own links reach.

    `node`: the GPUs of one node, at most the NVLink domain. `rack`: consecutive nodes, whole ones.
    `bridge`: only if the bridge joins all GPUs of a node. Otherwise PCIe joins the node.
    """
    scope, size = gpu.entry.nvlink_scope, gpu.entry.gpu.nvlink_domain_size
    per_node = nodes.gpus_per_node
    if not gpu.exclusive or scope == "none":
        return Domain(size=per_node, nvlink=False)
    if scope == "bridge":
        if per_node > size:
            return Domain(size=per_node, nvlink=False)
        said = f"NVLink bridge between the {per_node} GPUs assumed" if per_node > 1 else ""
        return Domain(size=per_node, nvlink=True, assumption=said)
    if nodes.instance is not None:
        size = nodes.instance.nvlink_domain_size
    if size == 1 and per_node > 1:
        return Domain(size=per_node, nvlink=False)
    if scope == "node":
        return Domain(size=min(size, per_node), nvlink=True)
    size = min(outside.nvlink_domain_size or size, nodes.world_size)
    joined = max(per_node, size - size % per_node) if size >= per_node else size
    said = f"{joined} GPUs of consecutive nodes share one NVLink domain, assumed"
    return Domain(size=joined, nvlink=True, assumption=said if joined > per_node else "")


def build_cluster(
    gpu: ResolvedGpu, nodes: Nodes, outside: Network, defaults: LinkDefaults
) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster, and the sentences about what was assumed."""
    domain = fast_domain(gpu, nodes, outside)
    part, instance = gpu.gpu, nodes.instance
    if domain.nvlink:
        intra = Link(
            name="nvlink",
            bytes_per_second=part.nvlink_bytes_per_second,
            latency_seconds=defaults.nvlink_latency_seconds,
        )
    else:
        intra = Link(
            name="pcie",
            bytes_per_second=part.pcie_bytes_per_second,
            latency_seconds=defaults.pcie_latency_seconds,
        )
    cluster = Cluster(
        gpu=part,
        nodes=nodes.nodes,
        gpus_per_node=nodes.gpus_per_node,
        domain_size=domain.size,
        intra=intra,
        inter=outside.link,
        fabric=outside.fabric,
        instance_type=instance.name if instance is not None else "",
        exclusive=gpu.exclusive,
        host_memory_bytes_per_node=instance.host_memory_bytes if instance is not None else 0,
    )
    said = (outside.assumption, domain.assumption)
    return cluster, tuple(sentence for sentence in said if sentence)
