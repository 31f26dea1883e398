"""Writes `docs/collective-environment.md` from the rules; with `--check` only compares.

python benchmarks/collective_environment_page.py [--check]
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from app.trainjobs.adapter import CollectiveContext
from app.trainjobs.collectives import Rules
from app.trainjobs.collectives.rows import SetRule, Tables

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "app/catalog/data/collectives"
PAGE = ROOT / "docs/collective-environment.md"
REFERENCE = Path(__file__).with_name("collective_environment_reference.csv")
GPU_OF_BRANCH = {
    "H100 or H200": "NVIDIA-H100-80GB-HBM3",
    "A100": "NVIDIA-A100-SXM4-80GB",
    "L40 or L4": "NVIDIA-L40S",
    "any other": "NVIDIA-B200",
}
CLUSTERS: Mapping[str, Mapping[str, object]] = {
    "one node": {"nodes": 1},
    "InfiniBand": {"resources": {"rdma/ib": "8"}},
    "AWS EFA": {"resources": {"vpc.amazonaws.com/efa": "32"}},
    "GKE gIB": {"claims": ("mrdma.google.com",)},
    "GKE TCPX": {"sidecars": ("tcpx-daemon",)},
    "OCI H100 shape": {"instance_type": "BM.GPU.H100.8"},
    "CoreWeave": {
        "resources": {"rdma/ib": "1"},
        "node_labels": {"node.coreweave.cloud/type": "gd-8xh100ib-i128"},
    },
    "TCP": {},
}

HEAD = """\
# The collective environment

Which NCCL, RCCL and process variables a job gets, when, and on whose word. This page is written
from the rules in `app/catalog/data/collectives/`; `python
benchmarks/collective_environment_page.py` writes it again, and a test holds it current. Values
come from the named public sources; none was measured here.

What holds always:

- A variable the job sets itself, under any of its names, is left alone.
- No variable that NCCL's user guide calls debugging is set by default. Where one is set, the
  `basis` column says who wants it: the `provider` of the fabric, the `plan`, the `operator`, or a
  fault of the `hardware`.
- On one node nothing about a network is set.
- No value is empty, and no reserved name is touched.
- What would help but is not ours to set is a warning, and so is a value of the job that does
  harm.

## How the network is recognised

Claims first, then extended resources, then annotations and sidecars, then instance types and node
labels, then the operator's default profile, else plain TCP. The first sign decides; weaker signs
may only say the same more precisely. Signs that contradict each other give the generic set.
Traits of the nodes come on top of any fabric. A GPU's name is never a sign of a fabric.
"""
OPERATOR = """\
Values in `<...>` are the operator's: the rule holds only where the setting
`TRAINJOB_ADVISOR_COLLECTIVE_VALUES` (JSON) has that key. `TRAINJOB_ADVISOR_COLLECTIVE_PROFILE`
names the default profile. Keys without a value of their own: `nccl-conf` (pods mount an
`/etc/nccl.conf`; the fabric then sets nothing, because a variable would beat the file), `imex`
(pods get an IMEX channel that the job does not show), `mnnvl=degraded`, `p2p=broken`,
`nccl-version`.

A job says more about itself in the annotation `training.vsr.dev/features`, separated by commas:
`tight-memory`, `cuda-graphs`, `moe-overlap`, `deterministic`, `nccl-ub`, `in-process-restart`,
`hybridep`, `torch-fsdp2`, `megatron-fsdp`, `megatron-bridge`, `ucx`.
"""


def rule_rows(directory: Path) -> Iterator[dict[str, str]]:
    """The rows of all rule tables, each with its file and line."""
    for path in sorted(directory.glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as lines:
            reader = csv.DictReader(lines, strict=True)
            for row in reader:
                yield {**row, "file": path.name, "line": str(reader.line_num)}


def page(rules: Rules, reference: Iterable[Mapping[str, str]]) -> str:
    """The page as Markdown."""
    tables = rules.tables
    return "\n".join(
        [
            HEAD,
            *_signs(tables),
            "## What is set\n",
            OPERATOR,
            *_settings(tables),
            *_never(tables),
            *_warnings(tables),
            *_reserved(tables),
            *_reference(rules, reference),
        ]
    )


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table with a blank line after it."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _signs(tables: Tables) -> Iterator[str]:
    rows = []
    for profile in tables.profiles.values():
        signs = [sign for sign in tables.signs if sign.profile == profile.name]
        shown = "<br>".join(f"{sign.tier}: {_code(sign.when)}" for sign in signs)
        default = "operator's default" if profile.may_be_default and not signs else ""
        refines = profile.parents[0] if profile.parents else ""
        row = (_code(profile.name), profile.role, shown or default, refines, profile.description)
        rows.append((*row, profile.source))
    yield table(("profile", "role", "signs", "refines", "what it is", "source"), rows)


def _settings(tables: Tables) -> Iterator[str]:
    sections = ("common", "plan", *tables.profiles)
    titles = {"common": "Every job of two GPUs or more", "plan": "By the layout and the framework"}
    head = ("variable", "value", "when", "basis", "class, since", "why", "source", "confidence")
    for section in sections:
        rules = [rule for rule in tables.sets if rule.profile == section]
        if rules:
            yield f"### {titles.get(section, f'`{section}`')}\n"
            yield table(head, map(_setting, rules))


def _setting(rule: SetRule) -> tuple[str, ...]:
    variable, setting = rule.variable, rule.setting
    since = f"{variable.kind}, {variable.since}" if variable.since else variable.kind
    return (
        _code(setting.name),
        _code(setting.value),
        _code(rule.when),
        rule.basis,
        since,
        setting.reason,
        setting.source,
        rule.confidence,
    )


def _never(tables: Tables) -> Iterator[str]:
    yield "## What is left alone\n"
    yield "Variables that are tempting, and why a profile's rules do not set them.\n"
    rows = [(_code(r.profile), _code(r.variable), r.reason, r.source) for r in tables.nevers]
    yield table(("profile", "variable", "why", "source"), rows)


def _warnings(tables: Tables) -> Iterator[str]:
    yield "## Warnings\n"
    yield "`asked` ones appear only in `trainjob-advisor env` and `POST /v1/environment`.\n"
    rows = [
        (_code(r.variable), r.profile, _code(r.when), r.spoken, r.message, r.source)
        for r in tables.warns
    ]
    head = ("variable of the job", "profile", "when", "spoken", "sentence", "source")
    yield table(head, rows)


def _reserved(tables: Tables) -> Iterator[str]:
    yield "## Reserved names\n"
    rows = [(_code(owner.pattern), owner.reason, owner.source) for owner in tables.reserved]
    yield table(("name", "owner", "source"), rows)


def _reference(rules: Rules, reference: Iterable[Mapping[str, str]]) -> Iterator[str]:
    yield "## Beside the reference's static sets\n"
    yield (
        "`rootfs/k8s-trainjob-operator` (`internal/webhook/trainjob_mutator.go` @0a69d45)\n"
        "chooses by the name of the GPU alone. Its value, and ours for a job on each kind of\n"
        "network; `-` is not set.\n"
    )
    ours = {branch: _ours(rules, gpu) for branch, gpu in GPU_OF_BRANCH.items()}
    rows = []
    for row in reference:
        values = [_short(sets.get(row["variable"])) for sets in ours[row["gpu"]].values()]
        row_head = (row["gpu"], _code(row["variable"]), _code(row["reference_value"]))
        rows.append((*row_head, *values, row["verdict"]))
    yield table(("GPU", "variable", "reference", *CLUSTERS, "about the reference's value"), rows)
    yield "What the reference does not set and we do, by the same networks:\n"
    extra = []
    known = {"NCCL_DEBUG"}
    for cluster, sets in ours["H100 or H200"].items():
        names = [f"`{name}`" for name in sets if name not in known]
        extra.append((cluster, ", ".join(names) or "nothing"))
    yield table(("H100 on", "set by us"), extra)


def _ours(rules: Rules, gpu: str) -> dict[str, dict[str, str]]:
    sets = {}
    for cluster, shown in CLUSTERS.items():
        facts = {"nodes": 4, "gpus_per_node": 8, "gpu": gpu, **shown}
        environment = rules.environment(CollectiveContext(**facts), None)  # type: ignore[arg-type]
        sets[cluster] = {one.name: one.value for one in environment.settings}
    return sets


def _short(value: str | None) -> str:
    if value is None:
        return "-"
    return _code(value if "," not in value else f"{value.split(',')[0]},...")


def main() -> int:
    """Write the page, or say whether it is current."""
    rules = Rules.from_rows(rule_rows(RULES))
    with REFERENCE.open(newline="", encoding="utf-8") as lines:
        text = page(rules, list(csv.DictReader(lines)))
    if "--check" in sys.argv[1:]:
        current = PAGE.read_text(encoding="utf-8") == text
        print(f"{PAGE.name} is {'current' if current else 'stale: run this without --check'}")
        return 0 if current else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
