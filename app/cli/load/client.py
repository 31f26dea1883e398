"""Reviews sent over kept TLS connections at their intended times, by one plain loop.

There is no event loop and no HTTP library in it, for two reasons. Client and server share two
cores, and what the client spends on a request is lost to the server. And the timers of an event
loop over `epoll` are whole milliseconds, which is all of the latency budget; `select` waits in
microseconds.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from app.cli.load.reviews import Arrival, Shot

Outcome = Literal["allowed", "denied", "error"]

TIMEOUT_SECONDS: Final = 10.0
"""An answer later than this is an error, as it is for the API server."""
NAP_SECONDS: Final = 0.25
READ_BYTES: Final = 256 * 1024
END_OF_HEAD: Final = b"\r\n\r\n"
LENGTH: Final = b"content-length:"
OK_LINE: Final = b"HTTP/1.1 200 "


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the reviews go, and whom to trust there."""

    host: str
    port: int
    trust: ssl.SSLContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One review: `seconds` from when it was due to the last byte of its answer."""

    kind: str
    due: float
    seconds: float
    outcome: Outcome


class Connection:
    """A kept connection with at most one request on it."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.arrival: Arrival | None = None
        self.unsent = memoryview(b"")
        self._got = bytearray()
        self._socket = self._open()

    def fileno(self) -> int:
        """The descriptor that `select` waits for."""
        return self._socket.fileno()

    def start(self, arrival: Arrival) -> None:
        """Send a request, as much of it as goes at once."""
        self.arrival = arrival
        self.unsent = memoryview(arrival.shot.request)
        self._got.clear()
        self.write()

    def write(self) -> None:
        """Send on. Raises `OSError`."""
        try:
            while self.unsent:
                self.unsent = self.unsent[self._socket.send(self.unsent) :]
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return

    def read(self) -> bytes | None:
        """The whole answer once it is there. Raises `OSError`."""
        try:
            while True:
                part = self._socket.recv(READ_BYTES)
                if not part:
                    raise ConnectionResetError("the server closed the connection")
                self._got += part
                if is_whole(self._got):
                    return bytes(self._got)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def renew(self) -> None:
        """Open the connection anew. Raises `OSError`."""
        self.close()
        self._socket = self._open()

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def _open(self) -> ssl.SSLSocket:
        address = (self._target.host, self._target.port)
        plain = socket.create_connection(address, timeout=TIMEOUT_SECONDS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        secure = self._target.trust.wrap_socket(plain, server_hostname=self._target.host)
        secure.setblocking(False)  # noqa: FBT003 - the standard library's signature
        return secure


def is_whole(answer: bytearray) -> bool:
    """Whether the answer has all the bytes that it announces. Our server always announces them."""
    end = answer.find(END_OF_HEAD)
    if end < 0:
        return False
    at = answer[:end].lower().find(LENGTH)
    if at < 0:
        raise ConnectionAbortedError("the answer does not say how long it is")
    length = answer[at + len(LENGTH) : end].partition(b"\r\n")[0]
    return len(answer) >= end + len(END_OF_HEAD) + int(length)


def outcome_of(answer: bytes) -> Outcome:
    """What an answer says; anything but an AdmissionReview with HTTP 200 is an error."""
    if not answer.startswith(OK_LINE):
        return "error"
    if b'"allowed":true' in answer:
        return "allowed"
    return "denied" if b'"allowed":false' in answer else "error"


class Load:
    """Connections that carry reviews. Raises `OSError` when the server is not there."""

    def __init__(self, target: Target, *, connections: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._idle = [Connection(target) for _ in range(connections)]
        self._busy: list[Connection] = []

    def run(
        self, arrivals: Iterator[Arrival], tick: Callable[[float], None] = lambda _: None
    ) -> list[Sample]:
        """Send every arrival when it is due, or as soon after as a connection is free.

        `tick` is told the time now and then.
        """
        samples: list[Sample] = []
        start = self._clock()
        coming = next(arrivals, None)
        while coming is not None or self._busy:
            now = self._clock() - start
            while coming is not None and coming.due <= now and self._idle:
                self._send(coming, samples, now)
                coming = next(arrivals, None)
                now = self._clock() - start
            tick(now)
            waits = coming is not None and self._idle
            nap = max(0.0, coming.due - now) if coming is not None and waits else NAP_SECONDS
            self._exchange(min(nap, NAP_SECONDS), samples, start)
        return samples

    def close(self) -> None:
        """Close every connection."""
        for each in (*self._idle, *self._busy):
            each.close()

    def _send(self, arrival: Arrival, samples: list[Sample], now: float) -> None:
        if now - arrival.due > TIMEOUT_SECONDS:  # nobody waits for it any more
            samples.append(sample(arrival, now, "error"))
            return
        one = self._idle.pop()
        try:
            one.start(arrival)
        except OSError:
            self._lost(one, samples, now)
            return
        self._busy.append(one)

    def _exchange(self, nap: float, samples: list[Sample], start: float) -> None:
        writers = [each for each in self._busy if each.unsent]
        readable, writable, _ = select.select(self._busy, writers, (), nap)
        for one in writable:
            try:
                one.write()
            except OSError:
                self._fail(one, samples, self._clock() - start)
        for one in readable:
            if one.arrival is None:
                continue
            try:
                answer = one.read()
            except OSError:
                self._fail(one, samples, self._clock() - start)
                continue
            if answer is not None:
                now = self._clock() - start
                samples.append(sample(one.arrival, now, outcome_of(answer)))
                self._free(one)
        if not readable and not writable:
            self._give_up(samples, self._clock() - start)

    def _give_up(self, samples: list[Sample], now: float) -> None:
        for one in list(self._busy):
            if one.arrival is not None and now - one.arrival.due > 2 * TIMEOUT_SECONDS:
                self._fail(one, samples, now)

    def _fail(self, one: Connection, samples: list[Sample], now: float) -> None:
        self._busy.remove(one)
        self._lost(one, samples, now)

    def _lost(self, one: Connection, samples: list[Sample], now: float) -> None:
        """Count the request as an error, and go on with a fresh connection."""
        if one.arrival is not None:
            samples.append(sample(one.arrival, now, "error"))
        one.arrival = None
        one.unsent = memoryview(b"")
        one.renew()
        self._idle.append(one)

    def _free(self, one: Connection) -> None:
        self._busy.remove(one)
        one.arrival = None
        self._idle.append(one)


def sample(arrival: Arrival, now: float, outcome: Outcome) -> Sample:
    """The sample of an arrival that ended now."""
    return Sample(
        kind=arrival.shot.kind, due=arrival.due, seconds=now - arrival.due, outcome=outcome
    )


def at_once(shots: list[Shot], *, number: int) -> Iterator[Arrival]:
    """That many requests, in turn, all due now: as many at a time as there are connections."""
    for index in range(number):
        yield Arrival(due=0.0, shot=shots[index % len(shots)])


def without_pause(
    shots: list[Shot], *, seconds: float, clock: Callable[[], float]
) -> Iterator[Arrival]:
    """Requests in turn for so long, each due as soon as a connection is free."""
    start = clock()
    index = 0
    while (now := clock() - start) < seconds:
        yield Arrival(due=now, shot=shots[index % len(shots)])
        index += 1
