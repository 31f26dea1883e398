"""Mutual TLS: the API server shows a certificate, and nobody without one is heard."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cluster.advisor import Advisor
from tests.cluster.api_server import ApiServer, api_server
from tests.cluster.authority import Authority
from tests.cluster.conftest import prepared
from tests.cluster.jobs import NEWEST, vsr_auto_job


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who may call us."""
    return Authority(tmp_path_factory.mktemp("clients"), name="clients")


@pytest.fixture(scope="module")
def guarded(
    programs: Path, clients: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Advisor]:
    """Our service, listening to clients with a certificate only."""
    del programs
    service = Advisor(
        folder=tmp_path_factory.mktemp("guarded"),
        environment={"CLIENT_CA_FILE": str(clients.certificate)},
    )
    service.start()
    try:
        yield service
    finally:
        service.stop()


@pytest.fixture(scope="module")
def known_server(
    programs: Path, guarded: Advisor, clients: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServer]:
    """An API server with a certificate of that authority, calling our service."""
    folder = tmp_path_factory.mktemp("overlay")
    with api_server(programs, webhook_client=clients.client("kube-apiserver")) as server:
        yield prepared(server, guarded, "plain-secret", release=NEWEST, folder=folder)


def test_the_api_server_is_heard(known_server: ApiServer) -> None:
    assert known_server.create("default", vsr_auto_job()).document["spec"]["tpDegree"] >= 1


@pytest.mark.parametrize("stranger", [False, True], ids=["no-certificate", "another-authority"])
def test_others_are_refused(guarded: Advisor, tmp_path: Path, *, stranger: bool) -> None:
    context = ssl.create_default_context(cafile=str(guarded.authority.certificate))
    if stranger:
        pair = Authority(tmp_path).client("kube-apiserver")
        context.load_cert_chain(pair.certificate, pair.key)
    with (
        httpx.Client(base_url=guarded.url, verify=context) as client,
        pytest.raises(httpx.TransportError),
    ):
        client.post("/mutate", json={})
