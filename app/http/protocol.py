"""HTTP/1.1 as uvicorn speaks it, with a limit on how long headers may take and our error shape."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, ClassVar

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.http.errors import error_body


def protocol_with(header_seconds: float) -> type[asyncio.Protocol]:
    """The protocol class for a server whose clients have so long for their headers."""

    class Protocol(PatientProtocol):
        header_limit_seconds: ClassVar[float] = header_seconds

    return Protocol


CONTINUE = b"HTTP/1.1 100 "
FRAMING = (b"content-length", b"transfer-encoding")


class OneWrite(asyncio.Transport):
    """The transport of one answer: keeps the head back until what follows, and writes both at once.

    Over TLS each write is a record, a system call and a wake-up of the client.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:  # type: ignore[override] # an answer is made of bytes
        """Write `data`, unless it is the head: the first that is not `100 Continue`."""
        if self._head is not None:
            data, self._head = self._head + data, b""
        elif not data.startswith(CONTINUE):
            self._head = data
            return
        self._transport.write(data)

    def close(self) -> None:
        """Write what was kept back, and close."""
        if self._head:
            self._transport.write(self._head)
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self._transport.is_closing()


class Body:
    """Reads one body, and nothing behind it, where the parser of its head will not.

    A parser stops behind a head with `Upgrade`, as if what follows were of that protocol. That of
    the body is told that the connection ends, so that it takes nothing behind it for a request.
    """

    def __init__(self, headers: Iterable[tuple[bytes, bytes]], protocol: HttpToolsProtocol) -> None:
        framing = [b"%b: %b\r\n" % pair for pair in headers if pair[0] in FRAMING]
        self._head = b"".join([b"POST / HTTP/1.1\r\nconnection: close\r\n", *framing, b"\r\n"])
        self._protocol = protocol
        self._ended = False
        self._parser = httptools.HttpRequestParser(self)

    def on_body(self, body: bytes) -> None:
        """A piece of it."""
        self._protocol.on_body(body)

    def on_message_complete(self) -> None:
        """It is whole."""
        self._ended = True
        self._protocol.on_message_complete()

    def should_upgrade(self) -> bool:
        """Never."""
        return False

    def feed_data(self, data: bytes) -> None:
        """Take what came next. Raises `HttpParserError` for what cannot be the body."""
        for each in (self._head, data):
            if not self._ended:
                self._feed(each)
        self._head = b""

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if not self._ended:  # else it is what comes behind the body
                raise


class PatientProtocol(HttpToolsProtocol):
    """Waits for a first request as long as for a next one, and for headers `header_limit_seconds`.

    Without this a client that opens connections and says nothing keeps them for ever. What comes
    between bodies is bounded: headers, and the fields behind a chunked body, which are no headers.
    An answer is written at once, with its head.
    """

    header_limit_seconds: ClassVar[float] = 10.0
    header_limit_bytes: ClassVar[int] = 65_536
    _header_timer: asyncio.TimerHandle | None = None
    _idle_bytes: int = 0
    _in_headers: bool = False
    _advanced: bool = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as upstream
        """Start waiting for the first request."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._stop_header_timer()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what ends no headers and brings no body, so that it cannot fill the memory."""
        if self.transport.is_closing():
            return
        self._advanced = False
        self._unset_keepalive_if_required()
        self._feed(data)
        self._idle_bytes = 0 if self._advanced else self._idle_bytes + len(data)
        if self._idle_bytes > self.header_limit_bytes and not self.transport.is_closing():
            message = f"the headers must take at most {self.header_limit_bytes} bytes"
            self._refuse(
                b"431 Request Header Fields Too Large", error_body("headers_too_large", message)
            )
        # Headers nearly always come whole; only for those that don't is there a timer.
        if self._in_headers and self._header_timer is None and not self.transport.is_closing():
            self._header_timer = self.loop.call_later(self.header_limit_seconds, self._give_up)

    def on_message_begin(self) -> None:
        """The first byte of a request is here: its headers must follow."""
        self._in_headers = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The headers are here."""
        self._in_headers = False
        self._advanced = True
        self._stop_header_timer()
        super().on_headers_complete()
        self.headers = []  # for fields behind the body, which are none (RFC 9110, 6.5.1)
        if self.parser.should_upgrade():  # nobody does, and only the body is read
            self.cycle.keep_alive = False
        if self.scope["method"] != "HEAD":  # whose answer is a head alone
            self.cycle.transport = OneWrite(self.transport)

    def on_body(self, body: bytes) -> None:
        """A piece of the body is here."""
        self._advanced = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole, unless its body is still to be read."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self._stop_header_timer()
        self._refuse(b"400 Bad Request", error_body("invalid_http", msg))

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as stopped:
            # A server may ignore the wish (RFC 9110, 7.8); the request is one like any other.
            self.parser = Body(self.scope["headers"], self)  # type: ignore[assignment] # all that is asked of it
            self._feed(data[stopped.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            message = f"the headers must arrive within {self.header_limit_seconds:g} seconds"
            self._refuse(b"408 Request Timeout", error_body("request_timeout", message))

    def _refuse(self, status: bytes, body: dict[str, Any]) -> None:
        content = orjson.dumps(body)
        head = (
            b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n" % (status, len(content))
        )
        self.transport.write(head + content)
        self.transport.close()

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
