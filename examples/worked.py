"""Writes docs/examples.md and the table of docs/cost.md from what the planner answers now.

python examples/worked.py          # after a change of the cost model; `make docs` runs it too
python examples/worked.py --check  # in the tests: exit code 1 and what differs
"""

from __future__ import annotations

import difflib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXAMPLES = (
    ("Llama 3 8B on one node", "plan --model llama-3-8b --gpu H100-SXM5-80GB"),
    ("Llama 3 70B on eight nodes", "plan --model llama-3-70b --gpu H100-SXM5-80GB --nodes 8"),
    (
        "Why not tensor and pipeline parallel",
        "explain --model llama-3-70b --gpu H100-SXM5-80GB --nodes 8 --layout tp=8,pp=4",
    ),
    (
        "The same as Megatron-LM arguments",
        "launch --launcher megatron-lm --model llama-3-70b --gpu H100-SXM5-80GB --nodes 8",
    ),
    (
        "A mixture of experts on 32 nodes",
        "plan --model mixtral-8x22b --gpu H100-SXM5-80GB --nodes 32 --framework megatron",
    ),
    (
        "Long context",
        (
            "plan --model llama-3.1-8b --gpu H100-SXM5-80GB --nodes 4 --sequence-length 131072 "
            "--global-batch-size 32"
        ),
    ),
    ("What 300 billion tokens cost", "cost --model llama-3-8b --tokens 300B --deadline 200"),
)
PRICED = (
    ("T4", "T4 16 GB", 0.35, "1x"),
    ("V100-SXM2-32GB", "V100 32 GB", 2.50, "3x"),
    ("A100-SXM4-40GB", "A100 40 GB", 3.50, "5x"),
    ("A100-SXM4-80GB", "A100 80 GB", 5.00, "5x"),
    ("H100-SXM5-80GB", "H100 80 GB", 8.00, "8x"),
)
EXAMPLES_PAGE = ROOT / "docs/examples.md"
COST_PAGE = ROOT / "docs/cost.md"
HEAD = """\
# Worked examples

Written by `make docs` from what the planner says; a test compares. Search times depend on the
machine, so they are left out here.
"""
DURATION = re.compile(r"(?<=layouts searched in )[\d.,]+ \w+")
BEGIN, END = "<!-- table -->\n", "<!-- /table -->"


def output(command: str) -> str:
    """What a command prints."""
    line = [sys.executable, "-m", "app", *shlex.split(command)]
    done = subprocess.run(line, check=False, capture_output=True, text=True, cwd=ROOT)  # noqa: S603 - our own program
    return done.stdout or done.stderr


def examples() -> str:
    """The whole of docs/examples.md."""
    parts = [HEAD]
    for title, command in EXAMPLES:
        answer = DURATION.sub("...", output(command))
        text = "\n".join(line.rstrip() for line in answer.splitlines())
        parts.append(f"## {title}\n\n```console\n$ trainjob-advisor {command}\n{text}\n```\n")
    return "\n".join(parts)


def priced() -> str:
    """The table of docs/cost.md: an original row beside the cheapest offer for that GPU."""
    lines = [
        "| GPU | quoted USD/h, speed | cheapest list USD/GPU-h | tokens/s per GPU | USD per 1 B |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for gpu, words, price, speed in PRICED:
        command = f"cost --model llama-3.2-1b --tokens 1B --max-gpus 8 --gpu {gpu} --json"
        offers = json.loads(output(command))["offers"]
        if not offers:
            lines.append(f"| {words} | {price:.2f}, {speed} | - | - | - |")
            continue
        best = offers[0]
        rate = best["tokens_per_second"] / best["gpus"]
        each = best["price"]["on_demand_usd_per_node_hour"] * best["nodes"] / best["gpus"]
        lines.append(
            f"| {words} | {price:.2f}, {speed} | {each:.2f} ({best['instance_type']}) "
            f"| {rate:,.0f} | {best['usd_per_billion_tokens']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def written() -> dict[Path, str]:
    """Each page and what it should say."""
    page = COST_PAGE.read_text("utf-8")
    start = page.index(BEGIN) + len(BEGIN)
    return {
        EXAMPLES_PAGE: examples(),
        COST_PAGE: page[:start] + priced() + page[page.index(END) :],
    }


def main() -> int:
    """Write both pages, or compare them; the exit code."""
    stale = False
    for page, wanted in written().items():
        if "--check" not in sys.argv[1:]:
            page.write_text(wanted, "utf-8")
            continue
        said = page.read_text("utf-8")
        stale = stale or said != wanted
        lines = difflib.unified_diff(
            said.splitlines(), wanted.splitlines(), page.name, "answered now", n=0, lineterm=""
        )
        print("\n".join(lines))
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
