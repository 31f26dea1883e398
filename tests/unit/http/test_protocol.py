"""What of an answer is written when, without a port."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from app.http.protocol import PatientProtocol

POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"
EXPECT = b"Expect: 100-continue\r\n"
HEAD_ONLY = b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"


class Written(asyncio.Transport):
    """A transport that keeps what is written, write by write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        """Keep it."""
        self.writes.append(bytes(data))

    def close(self) -> None:
        """Be closed."""
        self.closed = True

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self.closed

    def pause_reading(self) -> None:
        """There is nothing to read from."""

    def resume_reading(self) -> None:
        """There is nothing to read from."""


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = await Request(scope, receive).body()
    await Response(body)(scope, receive, send)


async def half(scope: Scope, receive: Receive, send: Send) -> None:
    """Breaks off after the head."""
    await Response(b"lost")(scope, receive, only_start(send))


def only_start(send: Send) -> Send:
    async def passed(message: Any) -> None:
        if message["type"] == "http.response.start":
            await send(message)

    return passed


def answered(*received: bytes, app: Any = echo) -> Written:
    """What is written to a client that sends these pieces, each after the server had its turn."""

    async def serve() -> Written:
        config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None)
        protocol, transport = PatientProtocol(config, ServerState(), {}), Written()
        protocol.connection_made(transport)
        for each in received:
            protocol.data_received(each)
            await asyncio.sleep(0.01)
        protocol.connection_lost(None)
        return transport

    return asyncio.run(serve())


def test_an_answer_is_one_write() -> None:
    """With its head; two on a kept connection are two."""
    writes = answered(POST + b"\r\nok", POST + b"\r\nOK").writes
    assert [each[-6:] for each in writes] == [b"\r\n\r\nok", b"\r\n\r\nOK"]
    assert all(each.startswith(b"HTTP/1.1 200 OK\r\n") for each in writes)


def test_an_answer_without_a_body_is_written_too() -> None:
    (written,) = answered(HEAD_ONLY).writes
    assert written.startswith(b"HTTP/1.1 200 OK\r\n")
    assert written.endswith(b"\r\n\r\n")


def test_whoever_waits_to_be_told_so_is_told_at_once() -> None:
    told, answer = answered(POST + EXPECT + b"\r\n", b"ok").writes
    assert told == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert answer.endswith(b"ok")


def test_half_an_answer_is_written_before_the_connection_is_cut() -> None:
    cut = answered(POST + b"\r\nok", app=half)
    assert cut.writes[0].startswith(b"HTTP/1.1 200 OK\r\n")
    assert cut.closed


PIECE = b"a" * 16_384
PIECES = 2 * PatientProtocol.header_limit_bytes // len(PIECE)


@pytest.mark.parametrize(
    "start",
    [
        b"POST / HTTP/1.1\r\nX: ",
        CHUNKED + b"0\r\nX: ",
        CHUNKED + b"5;",
        POST + b"\r\nok" + POST + b"X: ",
    ],
    ids=["header", "field behind the body", "chunk", "header of the second"],
)
def test_what_is_no_body_is_bounded_wherever_it_comes(start: bytes) -> None:
    """The parser keeps a field until it ends."""
    written = answered(start, *[PIECE] * PIECES)
    assert written.writes[-1].startswith(b"HTTP/1.1 431 ")
    assert written.closed


def test_a_body_in_many_pieces_is_no_header() -> None:
    chunk = b"%x\r\n" % len(PIECE) + PIECE + b"\r\n"
    for pieces in (
        [chunk] * PIECES,
        [part for _ in range(PIECES) for part in (b"4000\r\n", PIECE, b"\r\n")],
    ):
        (answer,) = answered(CHUNKED, *pieces, b"0\r\n\r\n").writes
        assert answer.endswith(b"ok" + PIECE * PIECES)


def test_fields_behind_the_body_are_no_headers() -> None:
    async def named(scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()
        names = b" ".join(name for name, _ in scope["headers"])
        await Response(names)(scope, receive, send)

    (answer,) = answered(CHUNKED + b"0\r\nContent-Type: x\r\n\r\n", app=named).writes
    assert answer.endswith(b"\r\n\r\nhost transfer-encoding")


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"


@pytest.mark.parametrize(
    "pieces",
    [
        (b"Content-Length: 5\r\n\r\nhello",),
        (b"Content-Length: 5\r\n\r\n", b"he", b"llo"),
        (b"Content-Length: 5\r\n\r\nhello" + HEAD_ONLY,),
        (b"Content-Length: 5\r\n\r\nhello", HEAD_ONLY),
        (b"Content-Length: 5\r\n\r\nhello" + POST + b"\r\nok",),
        (b"Content-Length: 5\r\n\r\n", b"hello" + POST + b"\r\nok"),
        (b"Content-Length: 5\r\n\r\nhello\x16\x03no request\r\n",),
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + CHUNKED,),
        (b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nl", b"lo\r\n0\r\n\r\n"),
    ],
    ids=[
        "at-once",
        "in-pieces",
        "and-another",
        "another-later",
        "and-a-body",
        "a-body-later",
        "and-rubbish",
        "chunks-and-chunks",
        "chunked",
    ],
)
def test_a_wish_to_upgrade_is_ignored(pieces: tuple[bytes, ...]) -> None:
    """The request is answered with its own body, and nothing behind it is read."""
    head = b"POST / HTTP/1.1\r\nHost: x\r\n" + UPGRADE
    written = answered(head + pieces[0], *pieces[1:])
    (answer,) = written.writes
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nhello")
    assert written.closed


def test_no_body_is_taken_from_behind_a_wish_to_upgrade() -> None:
    """One without a body is answered as such, and not with that of the request behind it."""
    bare = b"POST / HTTP/1.1\r\nHost: x\r\n" + UPGRADE + b"\r\n"
    (answer,) = answered(bare + POST + b"\r\nok").writes
    assert b"content-length: 0\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


def test_what_is_no_body_after_a_wish_to_upgrade_is_refused() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" + UPGRADE
    written = answered(head + b"\r\n", b"no chunk\r\n")
    assert written.writes[0].startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert written.closed


def test_a_connection_nobody_upgrades_ends_with_its_answer() -> None:
    """The parser would read no request behind it: its client would wait for ever."""
    upgrade = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    written = answered(upgrade, POST + b"\r\nok")
    assert b"connection: close\r\n" in written.writes[0]
    assert (len(written.writes), written.closed) == (1, True)
