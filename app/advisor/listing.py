"""What the catalog knows, for people: the answers of `GET /v1/models` and `/v1/gpus`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Protocol

from app.advisor.answers import Json, architecture_body
from app.advisor.errors import Refusal
from app.catalog.loader import Catalog
from app.catalog.records import GpuEntry, ModelEntry
from app.planner.hardware import Gpu
from app.planner.intent import FieldError

NEAREST_NAMES = 3
LEAST_LIKENESS = 0.45


class Named(Protocol):
    """An entry with further names."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """Its other names."""


def models_body(catalog: Catalog, search: str = "") -> Json | Refusal:
    """The models whose name or alias holds `search`, in the catalog's order."""
    found = _matching(catalog.models, search)
    if not found:
        return _nothing("model", search, catalog.models)
    models = [_model(name, catalog.models[name]) for name in found]
    return {"models": models, "catalog_version": catalog.version}


def gpus_body(catalog: Catalog, search: str = "") -> Json | Refusal:
    """The GPUs whose name or alias holds `search`; or the one that `search` means as a label."""
    found = _matching(catalog.gpus, search)
    if not found:
        resolved = catalog.gpu(search)
        gpu = getattr(resolved, "gpu", None)
        found = [gpu.name] if isinstance(gpu, Gpu) else []
    if not found:
        return _nothing("gpu", search, catalog.gpus)
    gpus = [_gpu(name, catalog.gpus[name]) for name in found]
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
    known = {one.casefold(): name for name, entry in entries.items() for one in _names(name, entry)}
    near = get_close_matches(search[:80].casefold(), known, n=NEAREST_NAMES, cutoff=LEAST_LIKENESS)
    names = ", ".join(f"`{name}`" for name in dict.fromkeys(known[one] for one in near))
    guess = f"the nearest are {names}" if names else f"`/v1/{kind}s` lists all"
    message = f'no {kind} is called "{search[:80]}"; {guess}'
    error = FieldError(path="search", value=search, message=message)
    return Refusal(code="not_found", errors=(error,))


def _names(name: str, entry: Named) -> Iterable[str]:
    return (name, *entry.aliases)


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
