"""Our service as a process beside the API server, and our manifests pointed at it."""

from __future__ import annotations

import base64
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.cluster.api_server import ApiServer
from tests.cluster.authority import Authority
from tests.cluster.jobs import vsr_auto_job
from tests.cluster.processes import free_port, running

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
ACTIVE_SECONDS = 30.0
CERT_MANAGER_KINDS = (("Certificate", "certificates"), ("Issuer", "issuers"))


@dataclass(kw_only=True)
class Advisor:
    """The service: it can be stopped and started again on the same ports."""

    folder: Path
    authority: Authority = field(init=False)
    port: int = field(default_factory=free_port)
    health_port: int = field(default_factory=free_port)
    environment: Mapping[str, str] = field(default_factory=dict)
    _life: ExitStack = field(default_factory=ExitStack, init=False, repr=False)

    def __post_init__(self) -> None:
        self.authority = Authority(self.folder, name="advisor")
        self.authority.server("tls")

    @property
    def url(self) -> str:
        """Where the API server finds it."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def bundle(self) -> str:
        """Its authority, as a webhook configuration holds it."""
        return base64.b64encode(self.authority.certificate.read_bytes()).decode()

    @property
    def log(self) -> Path:
        """What the process printed, over all its lives."""
        return self.folder / "advisor.log"

    def start(self) -> None:
        """Starts the process and returns once it says it is ready."""
        settings = {
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            "HEALTH_PORT": str(self.health_port),
            "CERTIFICATE_DIR": str(self.folder),
            "LOG_FORMAT": "json",
            "DRAIN_SECONDS": "0",
            **self.environment,
        }
        self._life.enter_context(
            running(
                [sys.executable, "-m", "app", "serve"],
                log=self.log,
                answers=self._is_ready,
                timeout_seconds=START_SECONDS,
                environment={f"TRAINJOB_ADVISOR_{name}": text for name, text in settings.items()},
                folder=ROOT,
            )
        )

    def stop(self) -> None:
        """Ends the process; nothing listens on its ports afterwards."""
        self._life.close()

    @contextmanager
    def down(self) -> Iterator[None]:
        """The service is not there for one block."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def _is_ready(self) -> bool:
        try:
            answer = httpx.get(f"http://127.0.0.1:{self.health_port}/readyz", timeout=5)
        except httpx.TransportError:
            return False
        return answer.status_code == httpx.codes.OK


def install(server: ApiServer, overlay: Path, advisor: Advisor, *, folder: Path) -> None:
    """Applies a kustomization as shipped; only where the webhooks are called is ours."""
    if "cert-manager" in overlay.name:
        for kind, plural in CERT_MANAGER_KINDS:
            server.kubectl("apply", "-f", "-", stdin=_open_definition(kind, plural))
            server.kubectl("wait", "--for=condition=Established", f"crd/{plural}.cert-manager.io")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "resources": [os.path.relpath(overlay.resolve(), folder.resolve())],
                "patches": redirections(server, overlay, advisor, bundle=advisor.bundle),
            }
        )
    )
    server.kubectl("apply", "-k", folder)


def redirections(
    server: ApiServer, overlay: Path, advisor: Advisor, *, bundle: str = ""
) -> list[dict[str, Any]]:
    """Kustomize patches: the same paths of the same service, reached on loopback.

    As in the manifests there is no `caBundle` unless one is given.
    """
    trust = {"caBundle": bundle} if bundle else {}
    return [
        {
            "target": {"kind": item["kind"], "name": item["metadata"]["name"]},
            "patch": yaml.safe_dump(
                [
                    {
                        "op": "replace",
                        "path": f"/webhooks/{index}/clientConfig",
                        "value": {"url": advisor.url + client["service"]["path"], **trust},
                    }
                    for index, client in enumerate(
                        hook["clientConfig"] for hook in item["webhooks"]
                    )
                ]
            ),
        }
        for item in yaml.safe_load_all(server.kubectl("kustomize", overlay).stdout)
        if item["kind"].endswith("WebhookConfiguration")
    ]


def wait_until_active(server: ApiServer) -> None:
    """Returns once the API server calls our webhooks: it learns of them a moment later."""
    deadline = time.monotonic() + ACTIVE_SECONDS
    job = vsr_auto_job(name="are-you-there")
    answer = None
    while time.monotonic() < deadline:
        answer = server.kubectl(
            "create", "--dry-run=server", "-o", "json", "-f", "-", stdin=job, check=False
        )
        if answer.code == 0 and answer.document["spec"].get("tpDegree"):
            return
        time.sleep(0.2)
    raise AssertionError(f"no plan within {ACTIVE_SECONDS:.0f} s: {answer}")


def _open_definition(kind: str, plural: str) -> dict[str, Any]:
    """A definition of a cert-manager kind that takes any object: its controllers are not here."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.cert-manager.io"},
        "spec": {
            "group": "cert-manager.io",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": anything},
                }
            ],
        },
    }
