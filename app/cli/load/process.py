"""Servers to measure, as processes of their own with development certificates."""

from __future__ import annotations

import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPSConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from app.cli.certificates import AUTHORITY, CERTIFICATE, KEY, host_names, write_pair
from app.cli.load.client import TIMEOUT_SECONDS, Target
from app.cli.refuse import bad_input

HOST: Final = "localhost"
START_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.1
STOP_SECONDS: Final = 30.0
OURS: Final = ("-m", "app", "serve")
BARE: Final = ("-m", "app.cli.load.bare")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that answers; `process` is the number of its process, if it is ours to know."""

    target: Target
    process: int | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"https://{self.target.host}:{self.target.port}"

    def cpu_seconds(self) -> float | None:
        """Processor time it has used, where the system tells."""
        try:
            fields = Path(f"/proc/{self.process}/stat").read_text("ascii").rpartition(")")[2]
        except OSError:
            return None
        user, system = fields.split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def running(url: str, ca: Path | None) -> Server:
    """A server that somebody else runs."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise bad_input("`--url` must be https://HOST:PORT", path="--url")
    try:
        trust = ssl.create_default_context(cafile=ca)
    except ssl.SSLError as problem:
        raise bad_input(f"`--ca` must hold certificates: {problem}", path="--ca") from problem
    return Server(target=Target(host=parts.hostname, port=parts.port or 443, trust=trust))


def planner_form(server: Server) -> str:
    """`compiled` or `pure Python`, as the server says itself; "" from one that doesn't say."""
    target = server.target
    connection = HTTPSConnection(
        target.host, target.port, context=target.trust, timeout=TIMEOUT_SECONDS
    )
    try:
        connection.request("GET", "/metrics")
        said = connection.getresponse().read().decode()
    finally:
        connection.close()
    found = re.search(r'^trainjob_advisor_build_info\{.*planner="([^"]*)"', said, re.MULTILINE)
    return found[1] if found else ""


@contextmanager
def started(
    arguments: Sequence[str] = OURS, settings: Mapping[str, object] | None = None
) -> Iterator[Server]:
    """A server on a free port, ready; stopped afterwards. `settings` are those of `serve`."""
    with tempfile.TemporaryDirectory() as folder:
        names = host_names(service="bench", namespace="bench")
        write_pair(Path(folder), names, now=datetime.now(UTC), days=2)
        port, health_port = free_ports(2)
        given: dict[str, object] = {
            "host": "127.0.0.1",
            "port": port,
            "health_port": health_port,
            "certificate_dir": folder,
            "certificate_file": CERTIFICATE,
            "key_file": KEY,
            "log_format": "json",
            "drain_seconds": 0,
            **(settings or {}),
        }
        named = {f"TRAINJOB_ADVISOR_{name.upper()}": str(each) for name, each in given.items()}
        # Its log is written as in production, and thrown away.
        process = subprocess.Popen(  # noqa: S603 - our own modules
            [sys.executable, *arguments],
            env={**os.environ, **named},
            stdout=subprocess.DEVNULL,
        )
        trust = ssl.create_default_context(cafile=Path(folder) / AUTHORITY)
        target = Target(host=HOST, port=port, trust=trust)
        try:
            wait_until_listening(process, target)
            yield Server(target=target, process=process.pid)
        finally:
            stop(process)


def wait_until_listening(process: subprocess.Popen[bytes], target: Target) -> None:
    """Return once the HTTPS port takes connections."""
    last = time.monotonic() + START_SECONDS
    while time.monotonic() < last and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", target.port)) == 0:
                return
        time.sleep(POLL_SECONDS)
    raise bad_input("the server did not start; `trainjob-advisor serve` says why")


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, and SIGKILL for who does not listen."""
    process.terminate()
    try:
        process.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_ports(number: int) -> list[int]:
    """Ports that nobody uses at this moment."""
    probes = [socket.socket() for _ in range(number)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
