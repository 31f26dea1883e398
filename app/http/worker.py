"""One worker process: the plain port at once, the HTTPS port as soon as there is a good pair."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from app.http.protocol import protocol_with
from app.http.settings import Settings
from app.http.state import Health
from app.http.tls import LiveCertificate
from app.observability.logs import logger

TICK_SECONDS = 0.05
PROBE_GRACE_SECONDS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sockets:
    """Bound, not yet listening: clients are refused until someone serves them."""

    https: socket.socket
    probes: socket.socket

    @property
    def ports(self) -> tuple[int, int]:
        """The HTTPS and the plain port, as the system gave them."""
        return self.https.getsockname()[1], self.probes.getsockname()[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Apps:
    """What is served on the two ports."""

    https: ASGIApp
    probes: ASGIApp


class Server(uvicorn.Server):
    """A uvicorn server that leaves the signals of the process to us."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: two servers share this process."""
        yield


class Worker:
    """Serves both ports until SIGTERM or SIGINT, then drains."""

    def __init__(
        self, settings: Settings, apps: Apps, health: Health, certificate: LiveCertificate
    ) -> None:
        self._settings = settings
        self._health = health
        self._certificate = certificate
        self._probes = Server(self._config(apps.probes, grace_seconds=PROBE_GRACE_SECONDS))
        self._https = Server(
            self._config(apps.https, grace_seconds=settings.grace_seconds, secure=True)
        )
        self._stop = asyncio.Event()
        self._hurry = False

    async def serve(self, sockets: Sockets) -> None:
        """Serve until told to stop. Raises what a server raises."""
        self._listen_to_signals()
        probes = asyncio.create_task(self._probes.serve([sockets.probes]))
        https = asyncio.create_task(self._https_when_ready(sockets))
        tasks = [
            probes,
            https,
            asyncio.create_task(self._certificate.follow(self._settings.certificate_poll_seconds)),
            *self._watch_of_the_supervisor(),
            asyncio.create_task(self._stopped()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await self._drain(https)
            for task in done:
                task.result()
        finally:
            self._probes.should_exit = True
            await asyncio.wait([probes])
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            logger().info("stopped", process=os.getpid())

    async def _https_when_ready(self, sockets: Sockets) -> None:
        await _until(lambda: self._certificate.served.pair is not None)
        serving = asyncio.create_task(self._https.serve([sockets.https]))
        await _until(lambda: self._https.started or serving.done())
        _settle()
        self._health.listening = self._https.started
        port, _ = sockets.ports
        logger().info("listening", port=port, process=os.getpid())
        await serving

    async def _drain(self, https: asyncio.Task[None]) -> None:
        """Answer what arrives with `Connection: close` until nobody is left, then finish.

        The port stays open meanwhile: endpoints lag behind, and a refused connection is a failed
        review, while one that is answered and closed is not.
        """
        self._health.draining = True
        logger().info("draining", connections=len(self._https.server_state.connections))
        loop = asyncio.get_running_loop()
        last = loop.time() + (0 if self._hurry else self._settings.drain_seconds)
        await _until(lambda: not self._https.server_state.connections or loop.time() >= last)
        self._https.should_exit = True
        if self._https.started:
            await asyncio.wait([https])

    async def _stopped(self) -> None:
        await self._stop.wait()

    def _watch_of_the_supervisor(self) -> list[asyncio.Task[None]]:
        supervised = self._settings.workers > 1
        return [asyncio.create_task(self._stop_with_parent())] if supervised else []

    async def _stop_with_parent(self) -> None:
        # A worker whose supervisor was killed would go on for ever, holding the port.
        parent = os.getppid()
        await _until(lambda: os.getppid() != parent, every_seconds=1)

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        loop.add_signal_handler(signal.SIGINT, self._stop_now)

    def _stop_now(self) -> None:
        self._hurry = True
        self._stop.set()

    def _config(self, app: ASGIApp, *, grace_seconds: int, secure: bool = False) -> uvicorn.Config:
        return uvicorn.Config(
            app,
            http=protocol_with(self._settings.body_seconds),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=self._settings.keep_alive_seconds,
            timeout_graceful_shutdown=grace_seconds,
            ssl_context_factory=(lambda *_: self._certificate.context) if secure else None,
        )


def _settle() -> None:
    """Take what was made at the start, which stays, out of what the garbage collector looks at.

    A large review makes so many objects that it would look at all of them several times.
    """
    gc.collect()
    gc.freeze()


async def _until(true: Callable[[], bool], *, every_seconds: float = TICK_SECONDS) -> None:
    while not true():  # noqa: ASYNC110 - conditions of other objects, which tell nobody
        await asyncio.sleep(every_seconds)


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to an address; port 0 takes a free one. Raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as problem:
        bound.close()
        raise OSError(problem.errno, f"port {port}: {problem.strerror}") from problem
    bound.set_inheritable(True)
    return bound
