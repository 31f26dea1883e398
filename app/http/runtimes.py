"""Reading training runtimes from the API server: optional, and never allowed to hurt a review.

A runtime that cannot be had in time is simply not known, and the review is decided as if this room
did not exist. Reads are cached, one request per runtime is under way at a time, and a runtime that
failed is left alone for a while, so an API server in trouble costs each review nothing.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import orjson
from cachetools import TTLCache

from app.admission.review import Review
from app.trainjobs.kubeflow import (
    GROUP,
    RuntimeFacts,
    RuntimeReference,
    runtime_facts,
    wanted_runtime,
)

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MAX_CONNECTIONS: Final = 32
MAX_RUNTIMES: Final = 1024

Prepare = Callable[[Review, float], Awaitable[None]]
"""What `/mutate` and `/validate` await before they decide, and the seconds it may take."""


class NotInCluster(RuntimeError):  # noqa: N818 - it says where we are
    """The API server of this pod cannot be found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """How a pod reaches its API server. The token file is read anew each time: tokens rotate."""

    url: str
    token_file: Path
    ca_file: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderLimits:
    """How long things may take or stay, in seconds.

    `budget` is what one review waits, `request` what the API server may take for later ones to
    profit, `fresh` how long a runtime is believed, `pause` how long a failed one is left alone.
    """

    budget: float = 0.3
    request: float = 2.0
    fresh: float = 30.0
    pause: float = 5.0


DEFAULT_LIMITS: Final = ReaderLimits()


def cluster_access(
    environment: Mapping[str, str], directory: Path = SERVICE_ACCOUNT
) -> ClusterAccess:
    """The access Kubernetes gives a pod. Raises `NotInCluster`.

    Source: kubernetes.io, "Accessing the Kubernetes API from a Pod".
    """
    host, port = (environment.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    token_file = directory / "token"
    if not host or not port or not token_file.is_file():
        raise NotInCluster(
            "reading runtimes needs KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT and a "
            f"service account token at {token_file}"
        )
    authority = f"[{host}]" if ":" in host else host
    return ClusterAccess(
        url=f"https://{authority}:{port}", token_file=token_file, ca_file=directory / "ca.crt"
    )


def api_client(access: ClusterAccess, limits: ReaderLimits = DEFAULT_LIMITS) -> httpx.AsyncClient:
    """A client of the API server, without proxies and without redirects."""
    verify = ssl.create_default_context(cafile=access.ca_file) if access.ca_file else True
    return httpx.AsyncClient(
        base_url=access.url,
        verify=verify,
        timeout=limits.request,
        trust_env=False,
        limits=httpx.Limits(max_connections=MAX_CONNECTIONS),
    )


class RuntimeReader:
    """Runtimes by reference: `prefetch` may wait, `known` only looks. For one event loop."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        token_file: Path,
        *,
        clock: Callable[[], float],
        limits: ReaderLimits = DEFAULT_LIMITS,
    ) -> None:
        self._client = client
        self._token_file = token_file
        self._limits = limits
        self._known: TTLCache[RuntimeReference, RuntimeFacts] = TTLCache(
            MAX_RUNTIMES, limits.fresh, timer=clock
        )
        self._paused: TTLCache[RuntimeReference, bool] = TTLCache(
            MAX_RUNTIMES, limits.pause, timer=clock
        )
        self._under_way: dict[RuntimeReference, asyncio.Task[None]] = {}

    def known(self, reference: RuntimeReference) -> RuntimeFacts | None:
        """The runtime's facts if they were read lately."""
        return self._known.get(reference)

    async def prefetch(self, reference: RuntimeReference, seconds: float) -> None:
        """Try to make `reference` known within `seconds` and the budget. Never raises."""
        if reference in self._known or reference in self._paused:
            return
        task = self._under_way.get(reference)
        if task is None:
            task = asyncio.create_task(self._read(reference))
            self._under_way[reference] = task
        done, _ = await asyncio.wait({task}, timeout=min(seconds, self._limits.budget))
        if not done:
            self._paused[reference] = True

    async def aclose(self) -> None:
        """Let go of the connections."""
        for task in tuple(self._under_way.values()):
            task.cancel()
        await self._client.aclose()

    async def _read(self, reference: RuntimeReference) -> None:
        try:
            self._known[reference] = await self._get(reference)
            self._paused.pop(reference, None)
        except (httpx.HTTPError, OSError, ValueError):
            # Any of them means the same to a review: decide without the runtime.
            self._paused[reference] = True
        finally:
            self._under_way.pop(reference, None)

    async def _get(self, reference: RuntimeReference) -> RuntimeFacts:
        token = self._token_file.read_text().strip()
        answer = await self._client.get(
            reference.path, headers={"Authorization": f"Bearer {token}"}
        )
        answer.raise_for_status()
        document = orjson.loads(answer.content)
        if not isinstance(document, dict):
            raise ValueError("a runtime must be an object")  # noqa: TRY004 - a bad answer, not a bug
        return runtime_facts(document)


def prepare_with(reader: RuntimeReader) -> Prepare:
    """The step before deciding that makes a review's runtime known, if it has one of interest."""

    async def prepare(review: Review, seconds: float) -> None:
        ours = review.group == GROUP
        reference = wanted_runtime(review.for_adapter) if ours else None
        if reference is not None:
            await reader.prefetch(reference, seconds / 2)

    return prepare


def open_reader(
    environment: Mapping[str, str],
    *,
    clock: Callable[[], float],
    limits: ReaderLimits = DEFAULT_LIMITS,
    directory: Path = SERVICE_ACCOUNT,
) -> RuntimeReader:
    """A reader of the API server of the pod we run in. Raises `NotInCluster`."""
    access = cluster_access(environment, directory)
    return RuntimeReader(api_client(access, limits), access.token_file, clock=clock, limits=limits)
