"""The plain-Secret overlay's own script, against a real API server: install, then renew."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from tests.cluster.advisor import ROOT
from tests.cluster.api_server import REGISTRATIONS, ApiServer, api_server
from tests.cluster.controllers import rolling_out

SCRIPT = ROOT / "k8s/overlays/plain-secret/install.sh"


@pytest.fixture(scope="module")
def empty(programs: Path) -> Iterator[ApiServer]:
    """An API server that has never heard of us."""
    with api_server(programs) as server:
        yield server


def install(server: ApiServer) -> None:
    """Runs the script as an administrator does."""
    path = os.pathsep.join(
        [str(server.programs), str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(server.kubeconfig)}
    with rolling_out(server):
        done = subprocess.run(
            [SCRIPT], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode == 0, done.stderr


def bundles(server: ApiServer) -> list[bytes]:
    """The authorities that each of our webhooks is believed by."""
    return [
        base64.b64decode(webhook["clientConfig"]["caBundle"])
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
        for webhook in server.http.get(f"{REGISTRATIONS}/{kind}/trainjob-advisor").json()[
            "webhooks"
        ]
    ]


def served(server: ApiServer) -> x509.Certificate:
    """The certificate in the Secret that pods mount."""
    secret = server.http.get("/api/v1/namespaces/trainjob-advisor/secrets/trainjob-advisor-tls")
    return x509.load_pem_x509_certificate(base64.b64decode(secret.json()["data"]["tls.crt"]))


def test_install_then_renew(empty: ApiServer) -> None:
    """After a renewal the API server believes the old pods as well as the new ones."""
    install(empty)
    first = served(empty)
    trusted = [x509.load_pem_x509_certificates(bundle) for bundle in bundles(empty)]
    assert len(trusted) == 3
    for (authority,) in trusted:
        first.verify_directly_issued_by(authority)
    names = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "trainjob-advisor.trainjob-advisor.svc" in names.get_values_for_type(x509.DNSName)

    install(empty)
    second = served(empty)
    assert second.serial_number != first.serial_number
    for bundle in bundles(empty):
        new, old = x509.load_pem_x509_certificates(bundle)
        second.verify_directly_issued_by(new)
        first.verify_directly_issued_by(old)
