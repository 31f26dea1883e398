"""A TLS context that always serves the newest good certificate, without a restart.

One outer context is given to the server once. At each handshake it hands over to an inner context
that holds the pair of the moment, so a renewal changes nothing but a reference: connections that
stand keep their session, and an RSA pair may be followed by an ECDSA one (a context that loads both
would go on serving the first to some clients).
"""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from app.http.certificates import (
    BadPairError,
    Pair,
    PairBytes,
    PairFiles,
    judge,
    read_bytes,
    utc_now,
)
from app.observability.logs import logger
from app.observability.metrics import Metrics

LAST_HOUR = timedelta(hours=1)
OVERDUE_AFTER = 3
"""A renewal is due when a third of the lifetime is left (the default of cert-manager)."""


@dataclass(slots=True)
class Served:
    """The pair being served, and what is wrong with the files on disk, if anything is."""

    pair: Pair | None = None
    complaint: str = "the certificate files have not been read yet"

    def expired(self, now: datetime) -> bool:
        """Whether there is no pair that clients would accept at `now`."""
        return self.pair is None or now >= self.pair.not_after

    def overdue(self, now: datetime) -> bool:
        """Whether the served pair ends within the hour and should long have been renewed."""
        if self.pair is None:
            return False
        left = self.pair.left(now)
        return left < LAST_HOUR and self.pair.lifetime > OVERDUE_AFTER * LAST_HOUR


def server_context(*, client_certificates: bool) -> ssl.SSLContext:
    """A context as clients of our time expect it; without a certificate of its own yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # Every handshake shows the certificate of the moment: no session outlives a rotation.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.verify_mode = ssl.CERT_REQUIRED if client_certificates else ssl.CERT_NONE
    return context


def loaded_context(content: PairBytes) -> ssl.SSLContext:
    """A context that serves `content`; raises `BadPairError` when TLS cannot use it."""
    authorities = content.client_authorities
    context = server_context(client_certificates=authorities is not None)
    try:
        with _as_file(content.certificate + b"\n" + content.key) as path:
            context.load_cert_chain(path)
        if authorities is not None:
            context.load_verify_locations(cadata=authorities.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError) as problem:
        raise BadPairError(f"TLS cannot use the files: {problem}") from problem
    return context


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """The path of a file that holds `content`: the standard library loads a pair from paths only.

    It lies in memory where the system can do that, so that a key never reaches a disk.
    """
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("pair")
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{number}"
        return
    with tempfile.NamedTemporaryFile() as named:  # pragma: no cover - not on Linux
        named.write(content)
        named.flush()
        yield named.name


class LiveCertificate:
    """Follows the files of one pair. `context` is for the server; `look` reads the files again."""

    def __init__(
        self,
        files: PairFiles,
        metrics: Metrics,
        *,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._files = files
        self._metrics = metrics
        self._clock = clock
        self._seen: bytes | str = ""
        self._inner: ssl.SSLContext | None = None
        self.served = Served()
        wants_clients = files.client_authorities is not None
        self.context = server_context(client_certificates=wants_clients)
        self.context.sni_callback = self._hand_over

    def look(self) -> None:
        """Take the pair on disk if it changed and is good; keep the old one otherwise.

        A pair that was good is judged again once it has ended, so that the log says so.
        """
        now = self._clock()
        try:
            content = read_bytes(self._files)
            is_known = content.digest == self._seen
            if is_known and not self.served.complaint and not self.served.expired(now):
                return
            pair = judge(content, server_name=self._files.server_name, now=now)
            inner = loaded_context(content)
        except BadPairError as problem:
            self._reject(str(problem))
            return
        self._take(pair, inner)

    async def follow(self, poll_seconds: float) -> None:
        """Look for ever."""
        while True:
            self.look()
            await asyncio.sleep(poll_seconds)

    def _take(self, pair: Pair, inner: ssl.SSLContext) -> None:
        is_new = self._seen != pair.content.digest
        self._inner = inner
        self._seen = pair.content.digest
        self.served = Served(pair=pair, complaint="")
        self._metrics.certificate_not_after.set(pair.not_after.timestamp())
        self._metrics.certificate_rejected.set(0)
        if is_new:
            self._metrics.certificate_reloads.labels("loaded").inc()
            logger().info(
                "certificate_loaded",
                serial_number=f"{pair.serial_number:x}",
                names=list(pair.names),
                not_after=pair.not_after.isoformat(),
            )

    def _reject(self, complaint: str) -> None:
        if complaint == self.served.complaint:
            return
        self.served.complaint = complaint
        self._metrics.certificate_rejected.set(1)
        self._metrics.certificate_reloads.labels("rejected").inc()
        logger().warning(
            "certificate_rejected", reason=complaint, still_serving=self.served.pair is not None
        )

    def _hand_over(self, connection: Any, name: str | None, outer: ssl.SSLContext) -> int | None:
        del name, outer
        if self._inner is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._inner
        return None
