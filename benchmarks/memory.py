"""How far our memory is from what published runs measured.

`measurements.csv` and `models.csv` in `benchmarks/data` hold the runs and their architectures, each
row with its source; `app.advisor.published` says how a row is read. What a memory reading covers
follows from its kind: an allocator's `allocated` peak has neither NCCL nor the CUDA context nor
fragments in it, a `reserved` one has the fragments, nvidia-smi all.

Run `python -m benchmarks.memory` for the table of docs/memory.md.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from app.advisor import published
from app.advisor.published import (
    OUT_OF_MEMORY,
    RATES,
    Excluded,
    Row,
    Run,
    as_run,
    count,
    microbatch,
    missing,
    not_a_run,
    profile,
    recompute_kind,
    workload,
)
from app.catalog.loader import Catalog, load_catalog
from app.planner.framework import FrameworkProfile
from app.planner.layout import Layout
from app.planner.memory import memory
from app.planner.request import MemoryBytes

__all__ = [
    "OUT_OF_MEMORY",
    "RATES",
    "Excluded",
    "Run",
    "as_run",
    "completions",
    "count",
    "errors",
    "microbatch",
    "missing",
    "not_a_run",
    "profile",
    "read",
    "recompute_kind",
    "runs",
    "workload",
]

DATA = Path(__file__).parent / "data"
GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """Our bytes against the published ones."""

    run: Run
    predicted: float
    measured: float

    @property
    def relative(self) -> float:
        """Signed relative error."""
        return self.predicted / self.measured - 1


def read(name: str) -> list[dict[str, str]]:
    """The rows of one data file."""
    with (DATA / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def runs(catalog: Catalog) -> list[Run | Excluded]:
    """Every row of the measurements."""
    models = {row["model"]: row for row in read("models")}
    return published.runs(read("measurements"), models, catalog)


def completions(run: Run) -> Iterator[Layout]:
    """The layouts a row may mean: each cell it leaves empty takes any value its software has."""
    framework, layout = run.request.framework, run.layout
    kinds = tuple(framework.kept)
    recomputes = kinds if "recompute" in run.assumed else (layout.recompute,)
    usable = framework.pipeline_shardings if layout.pp > 1 else tuple(framework.states)
    shardings = usable if "sharding" in run.assumed else (layout.sharding,)
    may_split = "sequence_parallel" in run.assumed and layout.tp > 1 and framework.sequence_parallel
    splits = (True, False) if may_split else (layout.sequence_parallel,)
    for recompute, sharding, split in product(recomputes, shardings, splits):
        yield replace(
            layout,
            recompute=recompute,  # type: ignore[arg-type]
            sharding=sharding,  # type: ignore[arg-type]
            sequence_parallel=split,
        )


def measured_bytes(row: Row) -> float:
    """The published peak. torchao's and torchtitan's tables print GiB under the name GB."""
    kind, value = row["memory_kind"], float(row["peak_memory_gb"])
    binary = any(mark in kind for mark in ("GiB", "1024", "smi")) or row["id"].startswith("ao-")
    return value * (GIB if binary else 1e9)


def covered(row: Row, held: MemoryBytes, framework: FrameworkProfile) -> float:
    """Our bytes that a reading of this kind would show."""
    kind = row["memory_kind"]
    if "alloc" in kind or row["id"].startswith(("skill-", "tune-")):
        return held.total - held.communicators - held.reserve
    if "reserved" in kind or row["id"].startswith("ao-"):
        return held.total - held.communicators - framework.context_bytes
    return held.total


def known(run: Run) -> bool:
    """Whether the profile has the sharding and the recomputation the row states."""
    framework = run.request.framework
    return run.layout.sharding in framework.states and run.layout.recompute in framework.kept


def errors(catalog: Catalog, groups: tuple[str, ...]) -> list[Error]:
    """Our error on every row of the groups that states its memory and enough to be computed."""
    found = []
    for each in runs(catalog):
        if isinstance(each, Excluded) or each.group not in groups or not known(each):
            continue
        if each.row["peak_memory_gb"]:
            held = memory(each.request, each.layout)
            found.append(
                Error(
                    run=each,
                    predicted=covered(each.row, held, each.request.framework),
                    measured=measured_bytes(each.row),
                )
            )
    return found


def mean_error(found: list[Error]) -> float:
    """Mean absolute relative error."""
    return sum(abs(each.relative) for each in found) / len(found)


def bias(found: list[Error]) -> float:
    """Mean signed relative error."""
    return sum(each.relative for each in found) / len(found)


GOALS: Mapping[str, tuple[str, ...]] = {
    "torchtitan": ("tt",),
    "torchao": ("ao",),
    "Megatron-Bridge skills": ("skill",),
    "BigScience 176B": ("bs",),
    "torchtune": ("tune",),
}


def main() -> None:
    """Print the table, or with a group's name its rows."""
    catalog = load_catalog()
    wanted = sys.argv[1:]
    if wanted:
        for each in errors(catalog, tuple(wanted)):
            layout = each.run.layout
            print(
                f"{each.run.row['id']:12} {each.run.row['model']:24} tp{layout.tp} pp{layout.pp} "
                f"cp{layout.cp} ep{layout.ep} dp{layout.dp} mb{layout.microbatch_size} "
                f"{layout.precision} {layout.recompute}: {each.predicted / GIB:.1f} of "
                f"{each.measured / GIB:.1f} GiB, {each.relative:+.1%}"
            )
        return
    print("| set | rows | mean error | bias |\n|---|---|---|---|")
    for name, groups in GOALS.items():
        found = errors(catalog, groups)
        print(f"| {name} | {len(found)} | {mean_error(found):.1%} | {bias(found):+.1%} |")


if __name__ == "__main__":
    main()
