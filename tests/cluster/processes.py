"""Servers as child processes: start, wait until they answer, stop, and show why they did not."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

GRACE_SECONDS = 10.0
LOG_LINES_SHOWN = 30


class NotReadyError(RuntimeError):
    """A server ended or stayed silent; the message holds the end of its log."""


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(
    command: Sequence[str | Path],
    *,
    log: Path,
    answers: Callable[[], bool],
    timeout_seconds: float,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs `command` until the block ends, entering it only when `answers()` is true.

    The process is stopped by SIGTERM, then SIGKILL.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*_tied_to_parent(), *(str(part) for part in command)],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=None if environment is None else {**os.environ, **environment},
            cwd=folder,
            start_new_session=True,
        )
    try:
        _wait(process, log, answers, timeout_seconds)
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a process: SIGTERM, and SIGKILL for its whole group after the grace period."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(
    process: subprocess.Popen[bytes],
    log: Path,
    answers: Callable[[], bool],
    timeout_seconds: float,
) -> None:
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise NotReadyError(_report(log, f"ended with code {process.returncode}"))
        if answers():
            return
        time.sleep(0.1)
    raise NotReadyError(_report(log, f"did not answer within {timeout_seconds:.0f} s"))


def _report(log: Path, what: str) -> str:
    lines = log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
    return "\n".join([f"{log.stem} {what}; {log} ends with", *lines])


def _tied_to_parent() -> list[str]:
    """A prefix that lets Linux kill the server when the test process dies, however it dies."""
    return ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
