"""README.md shows what the planner answers today, and names only what exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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
