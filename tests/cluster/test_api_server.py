"""The API server itself: what the other tests of this folder stand on."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cluster.api_server import ApiServer

DATA = Path(__file__).parents[1] / "data"
RELEASES = ("2.0", "2.1", "2.2", "2.3")


def test_the_server_says_which_release_it_is(server: ApiServer) -> None:
    assert server.http.get("/version").json()["gitVersion"].startswith("v1.3")


def test_kubectl_reaches_it(server: ApiServer) -> None:
    assert server.kubectl("get", "namespace", "default", "-o", "name").stdout == (
        "namespace/default\n"
    )


@pytest.mark.parametrize(
    "path",
    [DATA / "vsr/crds/v1alpha1.yaml", *(DATA / f"kubeflow/crds/{r}.yaml" for r in RELEASES)],
    ids=lambda path: f"{path.parts[-3]}-{path.stem}",
)
def test_our_trainjob_schemas_are_schemas(server: ApiServer, path: Path) -> None:
    """A structural schema with valid CEL, or the server would refuse it."""
    definition = yaml.safe_load(path.read_text())
    answer = server.kubectl("create", "--dry-run=server", "-f", "-", stdin=definition, check=False)
    assert not answer.warnings
    assert answer.code == 0 or "already exists" in answer.stderr
