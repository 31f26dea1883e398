"""Names become entries: GPUs by any spelling or node label, models and fabrics by name or alias.

A name either matches one entry whole or none; no name is found inside another (`L4` in `L40`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from app.catalog.reading import nearest, quoted, shown
from app.catalog.records import GpuEntry, Instance, Label
from app.planner.hardware import Gpu

INSTANCE_TYPE_KEY: Final = "node.kubernetes.io/instance-type"
SAME_KEYS: Final[Mapping[str, str]] = {
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE_KEY,
    "nvidia.com/gpu.machine": INSTANCE_TYPE_KEY,
}
"""Keys whose values are those of another key."""
KEY_WITH_VALUE: Final = re.compile(r"((?:beta\.)?amd\.com/gpu\.product-name)\.(.+)")
"""AMD's device plugin may put the product into the key itself and count in the value."""
MEMORY_KEYS: Final = ("nvidia.com/gpu.memory", "karpenter.k8s.aws/instance-gpu-memory")
"""Labels that hold the MiB of one GPU."""
MEMORY_TOLERANCE: Final = 0.04
"""Drivers and clouds differ by up to this share on one part: 143771 and 144384 MiB for H200."""
SHARED_STRATEGIES: Final = frozenset({"time-slicing", "mps"})
MAX_NAME_CHARACTERS: Final = 253
"""No name of anything is longer; longer text is not matched at all."""
MIB: Final = 2**20
GIGA: Final = 1e9

_SUFFIXES: Final = re.compile(
    r"(?P<base>.+?)(?:-MIG-(?P<mig>.+?))?(?P<shared>-SHARED)?", re.IGNORECASE
)
_PROFILE: Final = re.compile(
    r"(?:\d{1,2}c\.)?(?P<slices>\d{1,2})g\.(?P<gb>\d{1,4})gb(?:[.+-].*)?", re.IGNORECASE
)
_VENDOR_PREFIXES: Final = ("nvidia-", "tesla-", "amd-")

LISTED: Final = {
    "models": "`trainjob-advisor models` and GET /v1/models list what is",
    "gpus": "`trainjob-advisor gpus` and GET /v1/gpus list what is",
    "fabrics": "GET /v1/choices lists what is",
    "instance_types": "GET /v1/choices lists what is",
    "frameworks": "GET /v1/choices lists what is",
}
"""Where the known names of each kind are to be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedGpu:
    """A GPU as one container sees it. `entry` is the whole part, also when `gpu` is a slice.

    `exclusive` is false for slices and shared GPUs, which never span ranks; `note` says why.
    """

    gpu: Gpu
    entry: GpuEntry
    exclusive: bool = True
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A name that is not one entry: the known names most like it.

    `ambiguous`: `nearest` are all the entries it may mean. `listed` is where to see what is known.
    """

    name: str
    nearest: tuple[str, ...] = ()
    reason: str = ""
    ambiguous: bool = False
    listed: str = LISTED["gpus"]

    @property
    def message(self) -> str:
        """One sentence for whoever wrote the name."""
        why = self.reason or "is not in the catalog"
        words = "it may be" if self.ambiguous else "the nearest are"
        near = f"; {words} {quoted(self.nearest)}" if self.nearest else ""
        lead = "" if near else f"; {self.listed}"
        return f"{shown(self.name)} {why}{near}{lead}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meaning:
    """What a spelling means: one GPU, one of several (`candidates`), or none we have facts for."""

    gpu: str = ""
    candidates: tuple[str, ...] = ()
    reason: str = ""


def plain(name: str) -> str:
    """A name without its case and its kind of separator."""
    return name.strip().lower().replace("_", "-").replace(" ", "-")


def squeezed(name: str) -> str:
    """A name's letters, digits and points alone."""
    return "".join(char for char in name.lower() if char.isalnum() or char == ".")


class NameIndex:
    """Names and aliases of one kind of entry. Punctuation and case don't matter.

    `kind` is the key of the kind in `LISTED`.
    """

    def __init__(self, aliases: Mapping[str, Iterable[str]], *, kind: str) -> None:
        self._listed = LISTED[kind]
        self._names: dict[str, str] = {}
        for name, others in aliases.items():
            for other in others:
                self._names.setdefault(squeezed(other), name)
                self._names.setdefault(squeezed(other.rpartition("/")[2]), name)
        # An entry's own name wins over any alias.
        self._names.update({squeezed(name): name for name in aliases})
        self._exact = {name: name for name in aliases}

    def find(self, name: str) -> str | None:
        """The entry's name, `None` if there is none."""
        if name in self._exact:
            return name
        return self._names.get(squeezed(name)) if len(name) <= MAX_NAME_CHARACTERS else None

    def unknown(self, name: str, *, reason: str = "") -> Unknown:
        """The answer for a name that `find` does not know."""
        near = nearest(name, self._exact)
        return Unknown(name=name, nearest=near, reason=reason, listed=self._listed)


class GpuIndex:
    """Every spelling of every GPU, by node label key where keys differ."""

    def __init__(
        self,
        entries: Mapping[str, GpuEntry],
        labels: Iterable[Label],
        instances: Mapping[str, Instance],
    ) -> None:
        self._entries = entries
        self._catalog_names = frozenset(map(plain, entries))
        self._whole = {
            name: ResolvedGpu(gpu=entry.gpu, entry=entry) for name, entry in entries.items()
        }
        self._keyed: dict[tuple[str, str], _Meaning] = {}
        self._labels: dict[str, tuple[str, str]] = {}
        for label in labels:
            if label.reads in {"gpu", "ambiguous", "unsupported"}:
                self._keyed[label.key, plain(label.value)] = _meaning(label)
            if label.reads == "gpu" and label.key:
                self._labels.setdefault(plain(label.value), (label.key, label.value))
        for instance in instances.values():
            self._keyed[INSTANCE_TYPE_KEY, plain(instance.name)] = _Meaning(gpu=instance.gpu)
        self._anywhere = self._spellings()
        self._keys = frozenset(key for key, _ in self._keyed if key)

    def _spellings(self) -> dict[str, _Meaning]:
        """What a value means without its key: what all keys agree on, else all they say."""
        found: dict[str, _Meaning] = {}
        for (key, value), meaning in self._keyed.items():
            if key:
                before = found.get(value, meaning)
                found[value] = meaning if before == meaning else _either(before, meaning)
        found |= {value: meaning for (key, value), meaning in self._keyed.items() if not key}
        for name, entry in self._entries.items():
            for spelling in (*entry.aliases, name):
                found[plain(spelling)] = _Meaning(gpu=name)
        return found

    def find(self, name: str, *, key: str = "") -> ResolvedGpu | Unknown:
        """The GPU that `name` means, as the value of the node label `key` if there is one.

        A product with the suffix `-MIG-<profile>` is that slice; `-SHARED` is shared.
        """
        match = _SUFFIXES.fullmatch(name.strip()) if len(name) <= MAX_NAME_CHARACTERS else None
        if match is None:
            return Unknown(name=name, nearest=self.near(name[:MAX_NAME_CHARACTERS]))
        found = self._product(match["base"], key=key)
        if isinstance(found, Unknown):
            return replace(found, name=name)
        if match["mig"]:
            found = _slice_of(found, match["mig"], name=name)
        if match["shared"] and isinstance(found, ResolvedGpu):
            note = f"{found.note}, shared" if found.note else "a shared GPU"
            found = replace(found, exclusive=False, note=note)
        return found

    def _product(self, name: str, *, key: str) -> ResolvedGpu | Unknown:
        value = plain(name)
        meaning = self._keyed.get((key, value)) if key else None
        meaning = meaning or self._anywhere.get(value)
        for prefix in _VENDOR_PREFIXES:
            if meaning is None and value.startswith(prefix):
                meaning = self._anywhere.get(value.removeprefix(prefix))
        if meaning is None:
            return Unknown(name=name, nearest=self.near(name))
        if meaning.gpu:
            return self._whole[meaning.gpu]
        several = bool(meaning.candidates)
        return Unknown(
            name=name, nearest=meaning.candidates, reason=meaning.reason, ambiguous=several
        )

    def label_of(self, name: str) -> tuple[str, str] | None:
        """The node label, key and value, whose value `name` is; `None` for a name of the catalog.

        The suffix of a slice or a shared GPU stays.
        """
        match = _SUFFIXES.fullmatch(name.strip()) if len(name) <= MAX_NAME_CHARACTERS else None
        if match is None or plain(match["base"]) in self._catalog_names:
            return None
        label = self._labels.get(plain(match["base"]))
        return label and (label[0], label[1] + name.strip()[match.end("base") :])

    def near(self, name: str) -> tuple[str, ...]:
        """The catalog's GPUs most like `name`, by any spelling."""
        spellings = nearest(plain(name), self._anywhere, count=5)
        names = [gpu for one in spellings for gpu in self._means(self._anywhere[one])]
        return tuple(dict.fromkeys(names))[:3]

    @staticmethod
    def _means(meaning: _Meaning) -> tuple[str, ...]:
        return (meaning.gpu,) if meaning.gpu else meaning.candidates

    def of_labels(self, labels: Mapping[str, str]) -> ResolvedGpu | Unknown | None:
        """The GPU that node labels name together; `None` if none of them is about a GPU.

        Labels that leave a choice are settled by the others, or by a memory label.
        """
        said = [self.find(value, key=key) for key, value in self._naming(labels)]
        if not said:
            return None
        found = self.agreed(said, memory_mib=_memory_mib(labels))
        if isinstance(found, ResolvedGpu) and found.exclusive and _is_shared(labels):
            return replace(found, exclusive=False, note="a shared GPU")
        return found

    def _naming(self, labels: Mapping[str, str]) -> list[tuple[str, str]]:
        """The labels that name a GPU or a machine type, keys in their canonical form."""
        found = []
        for key, value in labels.items():
            inside = KEY_WITH_VALUE.fullmatch(key)
            name, text = (inside[1], inside[2]) if inside else (SAME_KEYS.get(key, key), value)
            if name in self._keys and isinstance(text, str) and text.strip():
                found.append((name, text))
        return found

    def agreed(
        self, said: Iterable[ResolvedGpu | Unknown], *, memory_mib: int = 0
    ) -> ResolvedGpu | Unknown:
        """What several statements about one GPU come to; at least one statement."""
        statements = list(said)
        certain = [one for one in statements if isinstance(one, ResolvedGpu)]
        if certain:
            return _one_of(certain)
        unsure = [one for one in statements if isinstance(one, Unknown)]
        open_sets = [set(one.nearest) for one in unsure if one.ambiguous]
        if open_sets:
            common = set.intersection(*open_sets)
            left = [n for n in self._entries if n in common and self._holds(n, memory_mib)]
            if len(left) == 1:
                return self._whole[left[0]]
        return next((one for one in unsure if one.reason), unsure[0])

    def _holds(self, name: str, memory_mib: int) -> bool:
        if not memory_mib:
            return True
        own = self._entries[name].gpu.memory_bytes / MIB
        return abs(own - memory_mib) <= MEMORY_TOLERANCE * own


def _one_of(certain: list[ResolvedGpu]) -> ResolvedGpu | Unknown:
    """The one part that all statements name; a slice says more than the whole part."""
    names = tuple(dict.fromkeys(one.entry.gpu.name for one in certain))
    if len(names) > 1:
        reason = "contradicts another label of the same nodes"
        return Unknown(name=names[0], nearest=names, reason=reason)
    return next((one for one in certain if not one.exclusive), certain[0])


def _meaning(label: Label) -> _Meaning:
    if label.reads == "gpu":
        return _Meaning(gpu=label.gpu)
    if label.reads == "ambiguous":
        return _Meaning(candidates=label.candidates, reason="is the name of several parts")
    return _Meaning(reason="is a part whose rates the catalog does not have")


def _either(one: _Meaning, other: _Meaning) -> _Meaning:
    names = (one.gpu, other.gpu, *one.candidates, *other.candidates)
    candidates = tuple(dict.fromkeys(name for name in names if name))
    if not candidates:
        return one
    return _Meaning(candidates=candidates, reason="is the name of several parts")


def _memory_mib(labels: Mapping[str, str]) -> int:
    for key in MEMORY_KEYS:
        text = str(labels.get(key, ""))
        if text.isascii() and text.isdigit() and len(text) <= len("99999999"):
            return int(text)
    return 0


def _is_shared(labels: Mapping[str, str]) -> bool:
    if labels.get("nvidia.com/gpu.sharing-strategy") in SHARED_STRATEGIES:
        return True
    replicas = str(labels.get("nvidia.com/gpu.replicas", ""))
    return replicas.isascii() and replicas.isdigit() and replicas.strip("0") not in ("", "1")


def _slice_of(whole: ResolvedGpu, profile: str, *, name: str) -> ResolvedGpu | Unknown:
    """The MIG slice `profile` (as `1g.10gb`, feature words after it ignored) of a part.

    Memory is the profile's figure in bytes of 1e9; multiprocessors are its share of the parts MIG
    counts in. Source: NVIDIA MIG user guide, "Supported MIG Profiles".
    """
    entry, match = whole.entry, _PROFILE.fullmatch(profile)
    if match is None or not entry.mig_parts:
        reason = "has no MIG" if not entry.mig_parts else "has a MIG profile that cannot be read"
        return Unknown(name=name, nearest=(entry.gpu.name,), reason=reason)
    slices, memory_bytes = int(match["slices"]), int(match["gb"]) * int(GIGA)
    if not 1 <= slices <= entry.mig_parts or not 0 < memory_bytes <= 1.1 * entry.gpu.memory_bytes:
        reason = "has a MIG profile larger than the part"
        return Unknown(name=name, nearest=(entry.gpu.name,), reason=reason)
    part = share_of(
        entry.gpu,
        name=f"{entry.gpu.name}-MIG-{slices}g.{match['gb']}gb",
        compute=slices / entry.mig_parts,
        memory_bytes=min(memory_bytes, entry.gpu.memory_bytes),
    )
    return ResolvedGpu(gpu=part, entry=entry, exclusive=False, note="a MIG slice")


def share_of(gpu: Gpu, *, name: str, compute: float, memory_bytes: int) -> Gpu:
    """A part of a GPU: a share of its compute, memory with its bandwidth, and no links."""
    memory = memory_bytes / gpu.memory_bytes
    return replace(
        gpu,
        name=name,
        memory_bytes=memory_bytes,
        hbm_bytes_per_second=gpu.hbm_bytes_per_second * memory,
        peak_flop_per_second={
            precision: peak * compute for precision, peak in gpu.peak_flop_per_second.items()
        },
        nvlink_bytes_per_second=0.0,
        nvlink_domain_size=1,
        num_sms=max(1, int(gpu.num_sms * compute)),
        provenance=f"{gpu.provenance}; derived: the share of the slice",
    )
