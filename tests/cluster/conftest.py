"""A real API server for the tests of this folder, our service beside it, our manifests applied.

The binaries come from the folder in `KUBEBUILDER_ASSETS` (the convention of envtest); `make assets`
builds one. Without it every test here is skipped and says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.api_server import ApiServer, api_server, missing_programs

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks everything in this folder `cluster`."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of kube-apiserver, etcd and kubectl."""
    named = os.environ.get("KUBEBUILDER_ASSETS", "")
    if not named:
        pytest.skip("KUBEBUILDER_ASSETS is not set: `make assets` builds a real API server")
    folder = Path(named).expanduser()
    if missing := missing_programs(folder):
        pytest.skip(f"KUBEBUILDER_ASSETS={folder} lacks {', '.join(missing)}: run `make assets`")
    return folder


@pytest.fixture(scope="session")
def server(programs: Path) -> Iterator[ApiServer]:
    """One API server for the whole run."""
    with api_server(programs) as running_server:
        yield running_server
