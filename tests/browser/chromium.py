"""Where Chromium is. `python -m tests.browser.chromium` prints it, or exits 1."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = "no Chromium: run `make chromium`, or set CHROMIUM to its path"


def chromium(environment: Mapping[str, str] = os.environ) -> str | None:
    """The program named by `CHROMIUM`, one on the path, or the one Playwright downloaded."""
    named = environment.get("CHROMIUM")
    if named:
        return shutil.which(named)
    path = environment.get("PATH", "")
    on_path = next((found for name in NAMES if (found := shutil.which(name, path=path))), None)
    return on_path or _downloaded()


def _downloaded() -> str | None:
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def must_run(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a missing browser is a failure: in CI nothing is skipped for want of a tool."""
    return environment.get("CI", "").casefold() not in ("", "0", "false")


if __name__ == "__main__":
    place = chromium()
    if place is None:
        sys.exit(1)
    print(place)  # noqa: T201 - the answer
