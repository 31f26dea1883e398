"""Load the catalog once: data files, an operator's overlay, checks, and the indexes over them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from app.catalog.architectures import ArchitectureDefaults
from app.catalog.clusters import LinkDefaults
from app.catalog.names import GpuIndex, NameIndex, ResolvedGpu, Unknown
from app.catalog.profiles import read_efficiencies, read_frameworks
from app.catalog.records import (
    Fabric,
    GpuEntry,
    Instance,
    Label,
    ModelEntry,
    fabric,
    gpu_entry,
    instance,
    label,
    model_entry,
)
from app.catalog.resolution import DEFAULT_FRAMEWORK, Facts, resolve
from app.catalog.tables import (
    CSV_KINDS,
    CatalogError,
    Row,
    Tables,
    add_overlay,
    csv_rows,
    toml_rows,
)
from app.catalog.workloads import BatchStep, WorkloadDefaults
from app.planner.architecture import ModelArchitecture
from app.planner.framework import FrameworkProfile
from app.planner.hardware import Gpu, Precision
from app.planner.intent import TrainIntent, Unresolved
from app.planner.request import PlanRequest

DATA: Final = Path(__file__).parent / "data"
T = TypeVar("T")

__all__ = ["Catalog", "CatalogError", "ResolvedGpu", "Unknown", "load_catalog"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """Everything known by name. `*_entries` hold the same things with sources and aliases.

    `version` is a short hash of every file that was read, the overlay included.
    `gpu_labels` is the node label, key and value, that a GPU is best known by, where it has one.
    `collective_rules` are the rows of `data/collectives`, for whoever understands them.
    """

    version: str
    models: Mapping[str, ModelArchitecture]
    gpus: Mapping[str, Gpu]
    fabrics: Mapping[str, Fabric]
    instances: Mapping[str, Instance]
    frameworks: Mapping[str, FrameworkProfile]
    model_entries: Mapping[str, ModelEntry]
    gpu_entries: Mapping[str, GpuEntry]
    gpu_labels: Mapping[str, tuple[str, str]]
    collective_rules: tuple[Mapping[str, str], ...]
    facts: Facts

    def gpu(self, name: str) -> ResolvedGpu | Unknown:
        """The GPU of a catalog name, an alias, or the value of any node label."""
        return self.facts.gpu_index.find(name)

    def gpu_in(self, labels: Mapping[str, str]) -> ResolvedGpu | Unknown | None:
        """The GPU that node labels name together, `None` if none of them is about a GPU."""
        return self.facts.gpu_index.of_labels(labels)

    def gpu_of_labels(self, labels: Mapping[str, str]) -> Gpu | None:
        """The GPU type that node labels name, `None` unless that is certain."""
        found = self.gpu_in(labels)
        return found.gpu if isinstance(found, ResolvedGpu) else None

    def label_of(self, spelling: str | None, gpu: str) -> tuple[str, str] | None:
        """The node label that finds the GPU `gpu`: `spelling` where it is one, else the best known.

        `None` where no label is known.
        """
        typed = self.facts.gpu_index.label_of(spelling) if spelling else None
        return typed or self.gpu_labels.get(gpu)

    def resolve(
        self, intent: TrainIntent, *, allowed_precisions: tuple[Precision, ...] = ("bf16", "fp16")
    ) -> PlanRequest | Unresolved:
        """The planner's question that `intent` asks, or every reason why there is none."""
        return resolve(self.facts, intent, allowed_precisions=allowed_precisions)


def load_catalog(overlay: Path | None = None) -> Catalog:
    """The built-in catalog, with the entries of the directory `overlay` laid over it.

    Raises `CatalogError` for the first thing wrong in a file.
    """
    tables = Tables()
    for kind in CSV_KINDS:
        text = tables.read(DATA / f"{kind}.csv", name=f"{kind}.csv")
        for row in csv_rows(text, file=f"{kind}.csv", kind=kind):
            tables.add(kind, row)
    for kind, row in toml_rows(
        tables.toml(DATA / "models.toml", name="models.toml"), file="models.toml"
    ):
        tables.add(kind, row)
    if overlay is not None:
        add_overlay(tables, overlay)
    return _catalog(tables)


def _catalog(tables: Tables) -> Catalog:
    fabrics = _entries(tables, "fabrics", fabric)
    gpus = _entries(tables, "gpus", lambda row: gpu_entry(row, fabrics=fabrics))
    instances = _entries(tables, "instances", lambda row: instance(row, gpus=gpus, fabrics=fabrics))
    labels = [label(row, gpus=gpus) for row in tables.rows["labels"].values()]
    models = _entries(tables, "models", model_entry)
    families = {name: entry.gpu.family for name, entry in gpus.items()}
    frameworks = read_frameworks(tables, DATA / "frameworks")
    efficiencies = read_efficiencies(tables, DATA / "calibration", families=families)
    _calibrated(frameworks, efficiencies)
    links, workload, architecture = _defaults(tables)
    rules = _collective_rules(tables)
    facts = Facts(
        version=tables.version,
        models=models,
        gpus=gpus,
        fabrics=fabrics,
        instances=instances,
        frameworks=frameworks,
        efficiencies=efficiencies,
        model_names=NameIndex({name: one.aliases for name, one in models.items()}, kind="models"),
        fabric_names=NameIndex(
            {name: one.aliases for name, one in fabrics.items()}, kind="fabrics"
        ),
        instance_names=NameIndex(dict.fromkeys(instances, ()), kind="instance_types"),
        framework_names=NameIndex(dict.fromkeys(frameworks, ()), kind="frameworks"),
        gpu_index=GpuIndex(gpus, labels, instances),
        links=links,
        workload=workload,
        architecture=architecture,
    )
    return Catalog(
        version=facts.version,
        models=MappingProxyType({name: entry.model for name, entry in models.items()}),
        gpus=MappingProxyType({name: entry.gpu for name, entry in gpus.items()}),
        fabrics=MappingProxyType(fabrics),
        instances=MappingProxyType(instances),
        frameworks=MappingProxyType(frameworks),
        model_entries=MappingProxyType(models),
        gpu_entries=MappingProxyType(gpus),
        gpu_labels=MappingProxyType(_gpu_labels(labels)),
        collective_rules=rules,
        facts=facts,
    )


def _entries(tables: Tables, kind: str, make: Callable[[Row], T]) -> dict[str, T]:
    return {name: make(row) for name, row in tables.rows[kind].items()}


def _gpu_labels(labels: Iterable[Label]) -> dict[str, tuple[str, str]]:
    """The first label of the file that means each GPU: the vendor's own discovery comes first."""
    found: dict[str, tuple[str, str]] = {}
    for one in labels:
        if one.reads == "gpu" and one.key:
            found.setdefault(one.gpu, (one.key, one.value))
    return found


def _calibrated(
    frameworks: Mapping[str, FrameworkProfile], efficiencies: Mapping[str, Any]
) -> None:
    for name, profile in frameworks.items():
        if profile.efficiency not in efficiencies:
            known = ", ".join(efficiencies)
            message = f"must name a file of calibration/: {known}"
            raise CatalogError(f"frameworks/{name}.toml", "efficiency", message)
    if DEFAULT_FRAMEWORK not in frameworks:
        raise CatalogError(f"frameworks/{DEFAULT_FRAMEWORK}.toml", "", "must be there")


def _defaults(tables: Tables) -> tuple[LinkDefaults, WorkloadDefaults, ArchitectureDefaults]:
    """What `defaults.toml` assumes where a question is silent."""
    file = "defaults.toml"
    table = tables.toml(DATA / file, name=file)
    rows = {name: Row(file=file, name=name, values=table[name]) for name in table}
    for row in rows.values():
        row.text("source")
    inner, custom = rows["intra_link"], rows["custom_fabric"]
    links = LinkDefaults(
        nvlink_latency_seconds=inner.number("nvlink_latency_seconds", low=1e-7, high=1e-3),
        pcie_latency_seconds=inner.number("pcie_latency_seconds", low=1e-7, high=1e-3),
        custom_fabric_latency_seconds=custom.number("latency_seconds", low=1e-7, high=1e-1),
    )
    work, shape = rows["workload"], rows["architecture"]
    steps = (
        Row(file=file, name=f"workload.batch[{index}]", values=values)
        for index, values in enumerate(table["workload"]["batch"])
    )
    workload = WorkloadDefaults(
        sequence_length=work.whole("sequence_length", low=1, high=2**20),
        finetune_batch_tokens=work.whole("finetune_batch_tokens", low=1, high=2**30),
        batch=tuple(sorted(map(_batch_step, steps), key=lambda step: step.min_params)),
    )
    architecture = ArchitectureDefaults(
        vocab_size=shape.whole("vocab_size", low=1, high=2**24),
        ffn_multiple=shape.whole("ffn_multiple", low=1, high=2**16),
        tied_embeddings_share=shape.number("tied_embeddings_share", low=0, high=1),
    )
    return links, workload, architecture


def _batch_step(row: Row) -> BatchStep:
    row.text("source")
    return BatchStep(
        min_params=row.whole("min_params", low=0, high=10**15),
        tokens=row.whole("tokens", low=1, high=2**30),
    )


def _collective_rules(tables: Tables) -> tuple[Mapping[str, str], ...]:
    """The rows of every file of `collectives`, in the order of the files' names.

    `file` and `line` say where a row stands, so that whoever refuses it can.
    """
    rows: list[Mapping[str, str]] = []
    for path in sorted((DATA / "collectives").glob("*.csv")):
        file = f"collectives/{path.name}"
        reader = csv.DictReader(io.StringIO(tables.read(path, name=file)), strict=True)
        rows += [{**row, "file": file, "line": str(reader.line_num)} for row in reader]
    return tuple(rows)
