"""Servers that are started to be broken. Everything here is marked `faults`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.pairs import TestAuthority

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks everything in this folder `faults`."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.faults)


@pytest.fixture(scope="session")
def authority() -> TestAuthority:
    """Who signs the certificates of this run."""
    return TestAuthority()
