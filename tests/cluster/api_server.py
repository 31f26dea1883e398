"""etcd and kube-apiserver on loopback, and two ways to talk to them: kubectl and plain HTTPS."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.cluster.authority import Authority, KeyPair
from tests.cluster.processes import free_port, running

START_SECONDS = 120.0
PROGRAMS = ("etcd", "kube-apiserver", "kubectl")

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Request",
            "verbs": ["create", "update", "patch", "delete"],
            "resources": [
                {"group": "training.vsr.dev", "resources": ["*"]},
                {"group": "trainer.kubeflow.org", "resources": ["*"]},
            ],
        },
        {"level": "None"},
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one kubectl call left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """The object that `-o json` printed."""
        return json.loads(self.stdout)

    @property
    def warnings(self) -> list[str]:
        """The texts kubectl printed as warnings."""
        return [
            line.removeprefix("Warning: ")
            for line in self.stderr.splitlines()
            if line.startswith("Warning: ")
        ]


@dataclass(frozen=True, kw_only=True)
class ApiServer:
    """A running API server and its administrator's credentials."""

    url: str
    authority: Authority
    admin: KeyPair
    kubeconfig: Path
    programs: Path
    log: Path
    audit_log: Path
    home: Path = field(repr=False)

    def kubectl(
        self, *arguments: str | Path, stdin: Any = None, check: bool = True, user: str = ""
    ) -> Outcome:
        """Runs kubectl as the administrator, or as `user` with the administrator's rights.

        `stdin` may be an object or a list of objects; it is passed on as YAML.
        """
        command = [self.programs / "kubectl", *arguments]
        if user:
            command += ["--as", user, "--as-group", "system:masters"]
        done = subprocess.run(
            [str(part) for part in command],
            input=None if stdin is None else _documents(stdin),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.home)},
        )
        outcome = Outcome(code=done.returncode, stdout=done.stdout, stderr=done.stderr)
        if check and outcome.code:
            raise AssertionError(f"kubectl {arguments} failed:\n{outcome.stderr}")
        return outcome

    @cached_property
    def http(self) -> httpx.Client:
        """The API server without kubectl between: for PUT, PATCH, headers and timing."""
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        context.load_cert_chain(self.admin.certificate, self.admin.key)
        return httpx.Client(base_url=self.url, verify=context, timeout=60)

    def audit(self, name: str) -> list[Any]:
        """The audit events of the object `name`, oldest first. Its annotations tell the patches."""
        events = map(json.loads, self.audit_log.read_text().splitlines())
        return [event for event in events if event["objectRef"].get("name") == name]

    def metrics(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        """The samples of one counter, by labels."""
        from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415

        return {
            frozenset(sample.labels.items()): sample.value
            for family in text_string_to_metric_families(self.http.get("/metrics").text)
            for sample in family.samples
            if sample.name == name
        }


def missing_programs(folder: Path) -> list[str]:
    """The programs of `PROGRAMS` that are not in `folder`."""
    return [name for name in PROGRAMS if not os.access(folder / name, os.X_OK)]


@contextmanager
def api_server(programs: Path) -> Iterator[ApiServer]:
    """An API server with an empty store; both are gone after the block."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="api-server-")))
        authority = Authority(folder / "pki")
        store = stack.enter_context(_etcd(programs, folder))
        server = _server(programs, folder, authority)
        command = _api_server_command(server, folder, store)
        stack.enter_context(
            running(
                command,
                log=server.log,
                answers=lambda: _ready(server),
                timeout_seconds=START_SECONDS,
            )
        )
        stack.callback(server.http.close)
        yield server


def _server(programs: Path, folder: Path, authority: Authority) -> ApiServer:
    admin = authority.client("admin", groups=("system:masters",))
    url = f"https://127.0.0.1:{free_port()}"
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(_kubeconfig(url, authority, admin)))
    kubeconfig.chmod(0o600)
    return ApiServer(
        url=url,
        authority=authority,
        admin=admin,
        kubeconfig=kubeconfig,
        programs=programs,
        log=folder / "kube-apiserver.log",
        audit_log=folder / "audit.log",
        home=folder,
    )


def _kubeconfig(url: str, authority: Authority, admin: KeyPair) -> Mapping[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
        "clusters": [
            {
                "name": "tests",
                "cluster": {"server": url, "certificate-authority": str(authority.certificate)},
            }
        ],
        "users": [
            {
                "name": "admin",
                "user": {
                    "client-certificate": str(admin.certificate),
                    "client-key": str(admin.key),
                },
            }
        ],
    }


@contextmanager
def _etcd(programs: Path, folder: Path) -> Iterator[str]:
    clients, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    command = {
        "--name": "tests",
        "--data-dir": folder / "etcd",
        "--listen-client-urls": clients,
        "--advertise-client-urls": clients,
        "--listen-peer-urls": peers,
        "--initial-advertise-peer-urls": peers,
        "--initial-cluster": f"tests={peers}",
        "--log-level": "warn",
    }
    with running(
        [programs / "etcd", "--unsafe-no-fsync", *_flags(command)],
        log=folder / "etcd.log",
        answers=lambda: _status(f"{clients}/health") == httpx.codes.OK,
        timeout_seconds=START_SECONDS,
    ):
        yield clients


def _api_server_command(server: ApiServer, folder: Path, store: str) -> list[str | Path]:
    pki = server.authority
    serving = pki.server("kube-apiserver", dns_names=("localhost", "kubernetes.default.svc"))
    tokens = pki.signing_key("service-accounts")
    audit_policy = folder / "audit-policy.yaml"
    audit_policy.write_text(yaml.safe_dump(AUDIT_POLICY))
    flags = {
        "--etcd-servers": store,
        "--bind-address": "127.0.0.1",
        "--advertise-address": "127.0.0.1",
        "--secure-port": server.url.rpartition(":")[2],
        "--cert-dir": folder / "pki",
        "--tls-cert-file": serving.certificate,
        "--tls-private-key-file": serving.key,
        "--client-ca-file": pki.certificate,
        "--authorization-mode": "RBAC",
        "--service-cluster-ip-range": "10.0.0.0/24",
        "--service-account-issuer": "https://kubernetes.default.svc",
        "--service-account-key-file": tokens.certificate,
        "--service-account-signing-key-file": tokens.key,
        "--audit-policy-file": audit_policy,
        "--audit-log-path": server.audit_log,
        # Nobody issues tokens here, and pods are never run.
        "--disable-admission-plugins": "ServiceAccount",
        "--endpoint-reconciler-type": "none",
        "--profiling": "false",
    }
    return [server.programs / "kube-apiserver", *_flags(flags)]


def _flags(values: Mapping[str, object]) -> list[str]:
    return [f"{flag}={value}" for flag, value in values.items()]


def _ready(server: ApiServer) -> bool:
    try:
        return server.http.get("/readyz").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _status(url: str) -> int:
    try:
        return httpx.get(url, timeout=5).status_code
    except httpx.TransportError:
        return 0


def _documents(objects: Any) -> str:
    many = objects if isinstance(objects, list) else [objects]
    return yaml.safe_dump_all(many, sort_keys=False)
