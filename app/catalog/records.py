"""Rows become frozen facts: units turned to SI, ranges checked, no number without a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from app.catalog.architectures import read_architecture
from app.catalog.huggingface import architecture_from_config
from app.catalog.reading import MAX_PARAMS, MAX_TOKENS
from app.catalog.tables import Row
from app.planner.architecture import ModelArchitecture
from app.planner.hardware import PRECISIONS, Gpu

MIB: Final = 2**20
GIB: Final = 2**30
GIGA: Final = 1e9
TERA: Final = 1e12
MICRO: Final = 1e-6
BITS_PER_BYTE: Final = 8

FAMILIES: Final = (
    "volta",
    "turing",
    "ampere",
    "ada",
    "hopper",
    "blackwell",
    "blackwell-ultra",
    "cdna2",
    "cdna3",
    "cdna4",
    "gaudi2",
    "gaudi3",
)
NVLINK_SCOPES: Final = ("none", "bridge", "node", "rack")
"""How far the GPU's own links reach: nowhere, a pair or four on a bridge, the node, the rack."""
LABEL_READINGS: Final = ("gpu", "ambiguous", "unsupported", "pattern", "information")
MIG_PARTS: Final = (0, 4, 8)

# The least compute capability, and the first that is too new, at which training in it works.
# Source: NVIDIA/TransformerEngine transformer_engine/pytorch/quantization.py (fp8 from 8.9, MXFP8
# and NVFP4 recipes on 10.x); bf16 tensor cores from 8.0.
CAPABILITY: Final[Mapping[str, tuple[float, float]]] = {
    "bf16": (8.0, inf),
    "fp8": (8.9, inf),
    "mxfp8": (10.0, 11.0),
    "nvfp4": (10.0, 11.0),
}

GPU_COLUMNS: Final = (
    "vendor",
    "family",
    "compute_capability",
    "memory_mib",
    "hbm_gb_per_second",
    *(f"{precision}_tflop_per_second" for precision in PRECISIONS),
    "nvlink_gb_per_second_both_ways",
    "nvlink_domain_size",
    "nvlink_scope",
    "pcie_gb_per_second",
    "num_sms",
    "tdp_watts",
    "mig_parts",
    "default_fabric",
    "derived",
    "assumed",
    "note",
    "source",
    "aliases",
)
FABRIC_COLUMNS: Final = (
    "aliases",
    "kind",
    "gbit_per_second",
    "per",
    "latency_us",
    "latency_kind",
    "nvlink_domain_size",
    "note",
    "source",
)
INSTANCE_COLUMNS: Final = (
    "provider",
    "gpu",
    "gpus_per_node",
    "vcpus",
    "host_memory_gib",
    "fabric",
    "network_gbit_per_second",
    "nics",
    "nvlink_domain_size",
    "on_demand_usd_per_hour",
    "usd_per_gpu_hour",
    "spot_usd_per_hour",
    "price_region",
    "price_date",
    "assumed",
    "note",
    "source",
)
LABEL_COLUMNS: Final = (
    "key",
    "value",
    "reads",
    "gpu",
    "candidates",
    "note",
    "source",
    "confidence",
)
MODEL_COLUMNS: Final = (
    "aliases",
    "sequence_length",
    "params",
    "source",
    "note",
    "config",
    "architecture",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEntry:
    """A GPU, what only the catalog needs of it, and where its numbers come from.

    `derived` and `assumed` name the columns that are not from a datasheet, and why.
    `mig_parts` is how many parts a MIG profile counts in, 0 without MIG.
    """

    gpu: Gpu
    aliases: tuple[str, ...]
    nvlink_scope: str
    mig_parts: int
    default_fabric: str
    derived: Mapping[str, str]
    assumed: Mapping[str, str]
    note: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """A network between nodes. The rate is one-way, for each GPU or shared by the node's GPUs.

    `nvlink_domain_size` above 0 says how many GPUs a rack joins before this network is used.
    """

    name: str
    aliases: tuple[str, ...]
    kind: str
    bytes_per_second: float
    per: str
    latency_seconds: float
    nvlink_domain_size: int
    note: str
    source: str

    def bytes_per_second_per_gpu(self, gpus_per_node: float) -> float:
        """One-way rate one GPU gets when all GPUs of its node send."""
        return self.bytes_per_second if self.per == "gpu" else self.bytes_per_second / gpus_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A machine type. `gpus_per_node` below 1 is a share of one GPU; 0 and "" are not known.

    `network_bytes_per_second` is what the node's GPUs may use together, one way.
    """

    name: str
    provider: str
    gpu: str
    gpus_per_node: float
    vcpus: int
    host_memory_bytes: int
    fabric: str
    network_bytes_per_second: float
    nics: int
    nvlink_domain_size: int
    on_demand_usd_per_hour: float
    usd_per_gpu_hour: float
    spot_usd_per_hour: float
    price_region: str
    price_date: str
    assumed: Mapping[str, str]
    note: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What one node label value says about the GPU. `key` "" is a spelling under any key."""

    key: str
    value: str
    reads: str
    gpu: str
    candidates: tuple[str, ...]
    note: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A model, its usual sequence length and its parameter count, which `model` meets."""

    model: ModelArchitecture
    aliases: tuple[str, ...]
    sequence_length: int
    params: int
    note: str
    source: str


def gpu_entry(row: Row, *, fabrics: Mapping[str, Any]) -> GpuEntry:
    """The GPU of a row of `gpus`."""
    row.only(GPU_COLUMNS)
    source = row.text("source")
    derived, assumed = row.reasons("derived"), row.reasons("assumed")
    scope = row.one_of("nvlink_scope", NVLINK_SCOPES)
    domain = row.whole("nvlink_domain_size", low=1, high=1152)
    nvlink = row.number("nvlink_gb_per_second_both_ways", low=0, high=20_000)
    if (scope == "none") != (nvlink == 0) or (scope == "none" and domain > 1):
        message = "must be `none` exactly when nvlink_gb_per_second_both_ways is 0 and the domain 1"
        raise row.wrong("nvlink_scope", message)
    parts = row.whole("mig_parts", low=0, high=8, default=0)
    if parts not in MIG_PARTS:
        raise row.wrong("mig_parts", "must be 0, 4 or 8")
    capability = row.number("compute_capability", low=0, high=99, default=0)
    gpu = Gpu(
        name=row.name,
        vendor=row.text("vendor"),
        family=row.one_of("family", FAMILIES),
        compute_capability=capability,
        memory_bytes=row.whole("memory_mib", low=1024, high=2**24) * MIB,
        hbm_bytes_per_second=row.number("hbm_gb_per_second", low=50, high=100_000) * GIGA,
        peak_flop_per_second=_peaks(row, capability),
        nvlink_bytes_per_second=nvlink * GIGA / 2,
        nvlink_domain_size=domain,
        pcie_bytes_per_second=row.number("pcie_gb_per_second", low=1, high=1000) * GIGA,
        num_sms=row.whole("num_sms", low=1, high=10_000),
        tdp_watts=row.number("tdp_watts", low=0, high=10_000, default=0),
        provenance=_provenance(derived, assumed),
    )
    return GpuEntry(
        gpu=gpu,
        aliases=row.texts("aliases"),
        nvlink_scope=scope,
        mig_parts=parts,
        default_fabric=row.one_of("default_fabric", fabrics),
        derived=derived,
        assumed=assumed,
        note=row.text("note", default=""),
        source=source,
    )


def _peaks(row: Row, capability: float) -> dict[str, float]:
    """Peak rates of the precisions the part trains in; a blank cell is one it cannot."""
    peaks: dict[str, float] = {}
    for precision in PRECISIONS:
        column = f"{precision}_tflop_per_second"
        if precision != "fp32" and not row.has(column):
            continue
        low, high = CAPABILITY.get(precision, (0.0, inf))
        if capability and not low <= capability < high:
            below = f" and below {high:g}" if high < inf else ""
            message = f"must be blank: {precision} training needs compute capability {low:g}{below}"
            raise row.wrong(column, message)
        peaks[precision] = row.number(column, low=1, high=1_000_000) * TERA
    return peaks


def _provenance(derived: Mapping[str, str], assumed: Mapping[str, str]) -> str:
    parts = ["datasheet"]
    parts += [f"derived: {', '.join(derived)}"] if derived else []
    parts += [f"assumed: {', '.join(assumed)}"] if assumed else []
    return "; ".join(parts)


def fabric(row: Row) -> Fabric:
    """The fabric of a row of `fabrics`."""
    row.only(FABRIC_COLUMNS)
    gbit = row.number("gbit_per_second", low=0.1, high=100_000)
    return Fabric(
        name=row.name,
        aliases=row.texts("aliases"),
        kind=row.text("kind"),
        bytes_per_second=gbit * GIGA / BITS_PER_BYTE,
        per=row.one_of("per", ("gpu", "node")),
        latency_seconds=row.number("latency_us", low=0.1, high=100_000) * MICRO,
        nvlink_domain_size=row.whole("nvlink_domain_size", low=2, high=1152, default=0),
        note=row.text("note", default=""),
        source=row.text("source"),
    )


def instance(row: Row, *, gpus: Mapping[str, Any], fabrics: Mapping[str, Any]) -> Instance:
    """The machine type of a row of `instances`. A price needs its region and its date."""
    row.only(INSTANCE_COLUMNS)
    prices = {
        column: row.number(column, low=0.01, high=10_000, default=0)
        for column in ("on_demand_usd_per_hour", "usd_per_gpu_hour", "spot_usd_per_hour")
    }
    if any(prices.values()):
        row.text("price_region")
        row.text("price_date")
    network = row.number("network_gbit_per_second", low=0.1, high=1_000_000, default=0)
    return Instance(
        name=row.name,
        provider=row.text("provider"),
        gpu=row.one_of("gpu", gpus),
        gpus_per_node=row.number("gpus_per_node", low=0.01, high=1024),
        vcpus=row.whole("vcpus", low=1, high=100_000, default=0),
        host_memory_bytes=int(row.number("host_memory_gib", low=1, high=10**6, default=0) * GIB),
        fabric=row.one_of("fabric", fabrics),
        network_bytes_per_second=network * GIGA / BITS_PER_BYTE,
        nics=row.whole("nics", low=1, high=1024, default=0),
        nvlink_domain_size=row.whole("nvlink_domain_size", low=1, high=1152, default=1),
        on_demand_usd_per_hour=prices["on_demand_usd_per_hour"],
        usd_per_gpu_hour=prices["usd_per_gpu_hour"],
        spot_usd_per_hour=prices["spot_usd_per_hour"],
        price_region=row.text("price_region", default=""),
        price_date=row.text("price_date", default=""),
        assumed=row.reasons("assumed"),
        note=row.text("note", default=""),
        source=row.text("source"),
    )


def label(row: Row, *, gpus: Mapping[str, Any]) -> Label:
    """The label of a row of `labels`."""
    row.only(LABEL_COLUMNS)
    reads = row.one_of("reads", LABEL_READINGS, default="gpu")
    candidates = row.texts("candidates")
    for candidate in candidates:
        if candidate not in gpus:
            raise row.wrong("candidates", f"must be GPUs of the catalog, not `{candidate}`")
    if reads == "ambiguous" and not candidates:
        raise row.wrong("candidates", "must name the GPUs an ambiguous label may mean")
    return Label(
        key=row.text("key", default=""),
        value=row.text("value"),
        reads=reads,
        gpu=row.one_of("gpu", gpus) if reads == "gpu" else "",
        candidates=candidates,
        note=row.text("note", default=""),
        source=row.text("source"),
    )


def model_entry(row: Row) -> ModelEntry:
    """The model of a table of `models`; `params`, if given, must be what its sizes count to."""
    row.only(MODEL_COLUMNS)
    model = _model(row)
    params = row.whole("params", low=1, high=MAX_PARAMS, default=model.params)
    if params != model.params:
        message = f"must be {model.params}, which is what the sizes count to, not {params}"
        raise row.wrong("params", message)
    return ModelEntry(
        model=model,
        aliases=row.texts("aliases"),
        sequence_length=row.whole("sequence_length", low=1, high=MAX_TOKENS),
        params=params,
        note=row.text("note", default=""),
        source=row.text("source"),
    )


def _model(row: Row) -> ModelArchitecture:
    config, shape = row.values.get("config"), row.values.get("architecture")
    if (config is None) == (shape is None):
        raise row.wrong("", "must have exactly one of `config` and `architecture`")
    if config is None:
        return _stated_model(row, shape)
    read = architecture_from_config(config, row.name, path="config")
    if isinstance(read, ModelArchitecture):
        return read
    raise row.wrong(read[0].path, read[0].message)


def _stated_model(row: Row, shape: Any) -> ModelArchitecture:
    read = read_architecture(shape, name=row.name)
    if not isinstance(read, ModelArchitecture):
        raise row.wrong(read[0].path, read[0].message)
    return read
