"""A real API server for the tests of this folder, our service beside it, our manifests applied.

The binaries come from the folder in `KUBEBUILDER_ASSETS` (the convention of envtest); `make assets`
builds one. Without it every test here is skipped and says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.advisor import Advisor, install, wait_until_active
from tests.cluster.api_server import ApiServer, api_server, missing_programs
from tests.cluster.jobs import NEWEST, fresh_name

HERE = Path(__file__).parent
DATA = HERE.parent / "data"
OVERLAYS = HERE.parents[1] / "k8s/overlays"


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


@pytest.fixture(scope="session")
def advisor(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Advisor]:
    """Our service, one process for the whole run."""
    del programs  # without an API server there is nothing to start it for
    service = Advisor(folder=tmp_path_factory.mktemp("advisor"))
    service.start()
    try:
        yield service
    finally:
        service.stop()


@pytest.fixture(scope="session")
def cluster(
    server: ApiServer, advisor: Advisor, tmp_path_factory: pytest.TempPathFactory
) -> ApiServer:
    """The API server with both TrainJob APIs and the cert-manager overlay, calling our service."""
    return prepared(
        server, advisor, "cert-manager", release=NEWEST, folder=tmp_path_factory.mktemp("overlay")
    )


def prepared(
    server: ApiServer, advisor: Advisor, overlay: str, *, release: str, folder: Path
) -> ApiServer:
    """`server` with the TrainJob APIs, an overlay of ours, and webhooks that are called."""
    server.kubectl("apply", "-f", DATA / f"kubeflow/crds/{release}.yaml")
    install(server, OVERLAYS / overlay, advisor, folder=folder)
    for group in ("training.vsr.dev", "trainer.kubeflow.org"):
        server.kubectl("wait", "--for=condition=Established", f"crd/trainjobs.{group}")
    wait_until_active(server)
    return server


@pytest.fixture
def namespace(cluster: ApiServer) -> str:
    """A namespace of the test's own."""
    name = fresh_name("team")
    cluster.kubectl("create", "namespace", name)
    return name
