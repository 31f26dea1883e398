"""Which browser is taken, and that CI never skips for want of one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.browser.chromium import chromium, must_run


def test_the_named_program_counts() -> None:
    """`CHROMIUM` wins over the path, and a wrong one is not replaced silently."""
    assert chromium({"CHROMIUM": sys.executable, "PATH": "/usr/bin"}) == sys.executable
    assert chromium({"CHROMIUM": "/nowhere/chromium", "PATH": "/usr/bin"}) is None


def test_the_path_is_searched(tmp_path: Path) -> None:
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert chromium({"PATH": str(tmp_path)}) == str(program)


@pytest.mark.parametrize(
    ("value", "fails"), [(None, False), ("", False), ("false", False), ("true", True), ("1", True)]
)
def test_only_outside_ci_a_missing_browser_is_skipped(value: str | None, fails: bool) -> None:
    assert must_run({} if value is None else {"CI": value}) is fails
