"""README.md shows what the planner answers today, and names only what exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_example_is_current() -> None:
    """`python examples/readme.py` would change nothing."""
    command = [sys.executable, str(ROOT / "examples/readme.py"), "--check"]
    assert subprocess.run(command, check=False, cwd=ROOT).returncode == 0


def test_every_link_leads_somewhere() -> None:
    """Relative links name files of the repository."""
    for target in re.findall(r"\]\(((?!http)[^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_make_target_exists() -> None:
    """Every `make TARGET` the README names is in the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"(?:`|\$ )make ([a-z-]+)", README)
    assert named
    assert set(named) <= targets


def test_the_accuracy_is_that_of_the_page() -> None:
    """Every set of the README has the runs and errors of docs/accuracy.md, in some row of it."""
    page = (ROOT / "docs/accuracy.md").read_text()
    sets = re.findall(r"^\| .* \| ([\d,]+) \| ([\d.]+) % \| ([\d.]+) % \|$", README, re.MULTILINE)
    assert len(sets) == 6
    for runs, error, left_out in sets:
        row = rf"\| {runs.replace(',', '')} \| [\d.]+% \| {error}% \| {left_out}% \|"
        assert re.search(row, page), (runs, error, left_out)


def test_what_the_accuracy_leaves_out_is_that_of_the_page() -> None:
    """The sets without a goal, and how far errors go when a whole source is left out."""
    page = (ROOT / "docs/accuracy.md").read_text()
    row = r"^\| ([^|]+) \| (\d+) \| (-|[\d.]+%) \| ([\d.]+)% \| \S+ \| (-|[\d.]+%) \|"
    rows = re.findall(row, page, re.MULTILINE)
    others = {name: (int(runs), float(error)) for name, runs, goal, error, _ in rows if goal == "-"}
    runs = sum(each for each, _ in others.values())
    mean = sum(each * error for each, error in others.values()) / runs
    titan = others["other: tt"][1]
    said = " ".join(README.split())
    left_out = f"{runs} runs of smaller sets without a goal ({mean:.1f} %; torchtitan {titan} %)"
    assert f"leaves out {left_out}" in said
    unseen = [float(each.rstrip("%")) for *_, goal, _, each in rows if goal != "-" != each]
    assert f"from {min(unseen)} % to {max(unseen)} % by set" in said


def test_the_example_applies_as_it_stands() -> None:
    """The "before" is a whole TrainJob, with all that the definition requires."""
    block = README.split("```yaml\n")[1].split("```")[0]
    job = yaml.safe_load(block)
    definition = yaml.safe_load((ROOT / "k8s/base/crd/trainjobs.training.vsr.dev.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert set(schema["required"]) <= set(job["spec"]) <= set(schema["properties"])
    assert job["apiVersion"] == "training.vsr.dev/v1alpha1"
    assert "namespace" not in job["metadata"]
