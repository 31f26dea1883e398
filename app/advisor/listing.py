"""What the catalog knows, for people: the answers of `GET /v1/models` and `/v1/gpus`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from app.advisor.answers import Json, architecture_body
from app.advisor.errors import Refusal
from app.catalog.loader import Catalog, Unknown
from app.catalog.reading import nearest, quoted, shown
from app.catalog.records import GpuEntry, ModelEntry
from app.planner.intent import FieldError


class Named(Protocol):
    """An entry with further names."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """Its other names."""


def models_body(catalog: Catalog, search: str = "") -> Json | Refusal:
    """The models whose name or alias holds `search`, in the catalog's order."""
    entries = catalog.model_entries
    found = _matching(entries, search)
    if not found:
        return _nothing("model", search, entries)
    models = [_model(name, entries[name]) for name in found]
    return {"models": models, "catalog_version": catalog.version}


def gpus_body(catalog: Catalog, search: str = "") -> Json | Refusal:
    """The GPUs whose name or alias holds `search`; or the one that `search` means as a label."""
    entries = catalog.gpu_entries
    found = _matching(entries, search)
    if not found:
        meant = catalog.gpu(search)
        if isinstance(meant, Unknown):
            return _nothing("gpu", search, entries)
        found = [meant.entry.gpu.name]
    gpus = [_gpu(name, entries[name]) for name in found]
    return {"gpus": gpus, "catalog_version": catalog.version}


def _matching(entries: Mapping[str, Named], search: str) -> list[str]:
    word = _plain(search)
    return [
        name
        for name, entry in entries.items()
        if any(word in _plain(one) for one in (name, *entry.aliases))
    ]


def _plain(name: str) -> str:
    """A name without case and without the signs people leave out."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _nothing(kind: str, search: str, entries: Mapping[str, Named]) -> Refusal:
    spellings = {one: name for name, entry in entries.items() for one in (name, *entry.aliases)}
    near = dict.fromkeys(spellings[one] for one in nearest(search, spellings))
    guess = (
        f"the nearest are {quoted(near)}"
        if near
        else "nothing is near it; leave the word out to see all"
    )
    message = f"no {kind} is called {shown(search)}; {guess}"
    error = FieldError(path="search", value=search, message=message)
    return Refusal(code="not_found", errors=(error,))


def _model(name: str, entry: ModelEntry) -> Json:
    return {
        "name": name,
        "aliases": list(entry.aliases),
        "params": entry.model.params,
        "active_params": entry.model.active_params,
        "sequence_length": entry.sequence_length,
        "architecture": architecture_body(entry.model),
        "note": entry.note,
        "source": entry.source,
    }


def _gpu(name: str, entry: GpuEntry) -> Json:
    gpu = entry.gpu
    facts: dict[str, Any] = {
        "vendor": gpu.vendor,
        "family": gpu.family,
        "compute_capability": gpu.compute_capability or None,
        "memory_bytes": gpu.memory_bytes,
        "hbm_bytes_per_second": gpu.hbm_bytes_per_second,
        "peak_flop_per_second": dict(gpu.peak_flop_per_second),
        "nvlink_bytes_per_second": gpu.nvlink_bytes_per_second,
        "nvlink_domain_size": gpu.nvlink_domain_size,
        "pcie_bytes_per_second": gpu.pcie_bytes_per_second,
        "num_sms": gpu.num_sms,
        "tdp_watts": gpu.tdp_watts or None,
    }
    return {
        "name": name,
        "aliases": list(entry.aliases),
        **facts,
        "default_fabric": entry.default_fabric,
        "derived": dict(entry.derived),
        "assumed": dict(entry.assumed),
        "note": entry.note,
        "source": entry.source,
    }
