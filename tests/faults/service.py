"""Our service as a process, with the settings and the certificate a test gives it."""

from __future__ import annotations

import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from cryptography import x509

from tests.faults.pairs import TestAuthority

ROOT = Path(__file__).parents[2]
START_SECONDS = 30.0
QUICK: Mapping[str, object] = {"certificate_poll_seconds": 0.2, "drain_seconds": 2}


def free_ports(count: int) -> list[int]:
    """Ports in a row that nobody uses, below those the system gives to clients."""
    for _ in range(100):
        first = random.randrange(10_000, 32_000)  # noqa: S311 - any will do
        if all(_is_free(first + step) for step in range(count)):
            return [first + step for step in range(count)]
    raise AssertionError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A running service."""

    process: subprocess.Popen[bytes]
    port: int
    health_port: int
    authority: TestAuthority
    log: Path

    @property
    def url(self) -> str:
        """Where clients send reviews."""
        return f"https://localhost:{self.port}"

    @property
    def trust(self) -> ssl.SSLContext:
        """What a client needs to believe the service."""
        return ssl.create_default_context(cadata=self.authority.certificate.decode())

    def probe(self, path: str, *, worker: int = 0) -> httpx.Response:
        """The answer of the plain port."""
        return httpx.get(f"http://127.0.0.1:{self.health_port + worker}{path}", timeout=5)

    def metric(self, name: str, *, worker: int = 0) -> float:
        """One sample, its name as the exposition writes it."""
        for line in self.probe("/metrics", worker=worker).text.splitlines():
            if line.startswith(f"trainjob_advisor_{name} "):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"no sample {name}")

    def is_ready(self) -> bool:
        """Whether the first worker says so."""
        try:
            return self.probe("/readyz").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def is_open(self) -> bool:
        """Whether anything listens on the HTTPS port."""
        return _is_open(self.port)

    def serial_number(self) -> int:
        """The certificate a new client sees."""
        with (
            socket.create_connection(("localhost", self.port), timeout=5) as plain,
            self.trust.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            shown = secure.getpeercert(binary_form=True)
        assert shown is not None
        return x509.load_der_x509_certificate(shown).serial_number

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


@contextmanager
def serving(
    certificates: Path, authority: TestAuthority, *, ready: bool = True, **settings: object
) -> Iterator[Service]:
    """A service that reads `certificates`; `settings` are those of docs/operations.md."""
    workers = int(str(settings.get("workers", 1)))
    port, *health_ports = free_ports(1 + workers)
    log = certificates.with_name(f"{certificates.name}.log")
    given: dict[str, object] = {
        "host": "127.0.0.1",
        "port": port,
        "health_port": health_ports[0],
        "certificate_dir": certificates,
        "log_format": "json",
        **QUICK,
        **settings,
    }
    variables = {f"TRAINJOB_ADVISOR_{name.upper()}": str(value) for name, value in given.items()}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "app", "serve"],
            cwd=ROOT,
            env={**os.environ, **variables},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    service = Service(
        process=process, port=port, health_port=health_ports[0], authority=authority, log=log
    )
    try:
        wait_for(lambda: _answers(service), START_SECONDS, "no answer", log)
        if ready:
            wait_for(service.is_ready, START_SECONDS, "never ready", log)
        yield service
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(service: Service) -> bool:
    assert service.process.poll() is None, service.log.read_text()
    try:
        service.probe("/healthz")
    except httpx.TransportError:
        return False
    return True


def wait_for(
    true: Callable[[], bool], seconds: float, complaint: str, log: Path | None = None
) -> float:
    """How long it took until `true`; fails with `complaint` after `seconds`."""
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        if true():
            return time.monotonic() - started
        time.sleep(0.05)
    raise AssertionError(f"{complaint} within {seconds} s\n{log.read_text() if log else ''}")


def review(**spec: Any) -> dict[str, Any]:
    """A creation of a TrainJob that asks for a plan."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "5b5f7a5e-2b1d-4b5c-9d36-0d6f2f7f5f11",
            "kind": {"group": "training.vsr.dev", "version": "v1alpha1", "kind": "TrainJob"},
            "resource": {
                "group": "training.vsr.dev",
                "version": "v1alpha1",
                "resource": "trainjobs",
            },
            "namespace": "team-a",
            "operation": "CREATE",
            "dryRun": False,
            "userInfo": {"username": "tester"},
            "object": {
                "apiVersion": "training.vsr.dev/v1alpha1",
                "kind": "TrainJob",
                "metadata": {"name": "pretrain", "namespace": "team-a"},
                "spec": {
                    "model": "llama-3-8b",
                    "image": "registry.example/train:1",
                    "numNodes": 8,
                    "gpusPerNode": 8,
                    "autoParallelism": True,
                    "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
                    "checkpoint": {"enabled": True, "storagePath": "/checkpoints"},
                    **spec,
                },
            },
            "oldObject": None,
        },
    }
