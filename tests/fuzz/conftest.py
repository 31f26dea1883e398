"""Hostile input by the ten thousand. Everything here is marked `fuzz`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.fuzz.doors import TALLY

HERE = Path(__file__).parent
LEAST_INPUTS = 20_000

settings.register_profile(
    "fuzz", deadline=None, print_blob=True, suppress_health_check=list(HealthCheck)
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks everything in this folder `fuzz`."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.fuzz)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Too few inputs is a failure, unless only some of the tests were asked for."""
    config = session.config
    whole = config.getoption("markexpr") == "fuzz" and not config.getoption("keyword")
    named = any("::" in argument for argument in config.args)
    if whole and not named and sum(TALLY.values()) < LEAST_INPUTS and not session.exitstatus:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many inputs there were, of which kind, and how to have them again."""
    if not TALLY:
        return
    for kind, count in sorted(TALLY.items()):
        terminalreporter.write_line(f"{count:>7,}  {kind}")
    terminalreporter.write_line(f"{sum(TALLY.values()):>7,}  inputs, at least {LEAST_INPUTS:,}")
    seed = terminalreporter.config.getoption("hypothesis_seed", None)
    if seed is not None:
        terminalreporter.write_line(f"The same again: make fuzz SEED={seed}")
