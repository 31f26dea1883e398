"""etcd and kube-apiserver on loopback, and two ways to talk to them: kubectl and plain HTTPS."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
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
REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One call of a mutating webhook as the audit log tells it."""

    verb: str
    round: int
    webhook: str
    mutated: bool


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

    def create(self, namespace: str, job: Any, *arguments: str, check: bool = True) -> Outcome:
        """`kubectl create` of one object, answered as JSON."""
        return self.kubectl(
            *("create", "-n", namespace, "-o", "json", *arguments, "-f", "-"),
            stdin=job,
            check=check,
        )

    def get(self, namespace: str, job: Any) -> Any:
        """The object as it is stored now."""
        return self.http.get(self.path(namespace, job)).raise_for_status().json()

    def path(self, namespace: str, job: Any) -> str:
        """The URL path of a TrainJob of either API."""
        name = job["metadata"].get("name", "")
        return f"/apis/{job['apiVersion']}/namespaces/{namespace}/trainjobs/{name}".rstrip("/")

    def mutations(self, name: str) -> list[Mutation]:
        """What each mutating webhook did in each request that touched the object `name`."""
        return [
            Mutation(
                verb=event["verb"],
                round=int(key.split("_")[1]),
                webhook=json.loads(value)["webhook"],
                mutated=json.loads(value)["mutated"],
            )
            for event in self.audit(name)
            for key, value in sorted(event.get("annotations", {}).items())
            if key.startswith("mutation.webhook.admission.k8s.io/")
        ]

    def our_webhooks(self) -> list[Any]:
        """Every webhook that our manifests register."""
        kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
        return [
            webhook
            for kind in kinds
            for item in self.http.get(f"{REGISTRATIONS}/{kind}").json()["items"]
            for webhook in item.get("webhooks", [])
            if "neighbour" not in webhook["name"]
        ]

    def webhook_calls(self) -> float:
        """How many times the server has called one of our webhooks."""
        names = {webhook["name"] for webhook in self.our_webhooks()}
        samples = self.metrics("apiserver_admission_webhook_request_total")
        return sum(count for labels, count in samples.items() if dict(labels)["name"] in names)

    def create_until(self, namespace: str, job: Any, accepted: Callable[[Any], bool]) -> Any:
        """Creates the job under new names until what is stored is `accepted`.

        A webhook that was just registered is called a moment later.
        """
        for attempt in range(50):
            name = f"{job['metadata']['name']}-{attempt}"
            stored = self.create(
                namespace, {**job, "metadata": {**job["metadata"], "name": name}}
            ).document
            if accepted(stored):
                return stored
            time.sleep(0.1)
        raise AssertionError(f"never accepted: {stored}")

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
def api_server(programs: Path, *, webhook_client: KeyPair | None = None) -> Iterator[ApiServer]:
    """An API server with an empty store; both are gone after the block.

    It shows the certificate of `webhook_client` to every webhook it calls.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="api-server-")))
        authority = Authority(folder / "pki")
        store = stack.enter_context(_etcd(programs, folder))
        server = _server(programs, folder, authority)
        command = _api_server_command(server, folder, store)
        if webhook_client is not None:
            command += _flags(
                {"--admission-control-config-file": _webhook_identity(folder, webhook_client)}
            )
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


def _webhook_identity(folder: Path, client: KeyPair) -> Path:
    """Writes the AdmissionConfiguration that gives webhook calls a client certificate."""
    credentials = folder / "webhook-kubeconfig"
    user = {"client-certificate": str(client.certificate), "client-key": str(client.key)}
    credentials.write_text(
        yaml.safe_dump(
            {"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]}
        )
    )
    plugin = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(credentials),
    }
    configuration = folder / "admission.yaml"
    configuration.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "AdmissionConfiguration",
                "plugins": [
                    {"name": f"{kind}AdmissionWebhook", "configuration": plugin}
                    for kind in ("Mutating", "Validating")
                ],
            }
        )
    )
    return configuration


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
