"""docs/examples.md and docs/cost.md show what the planner answers today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_worked_examples_are_current() -> None:
    """`make docs` would change nothing."""
    command = [sys.executable, str(ROOT / "examples/worked.py"), "--check"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"run `make docs`:\n{done.stdout}{done.stderr}"
