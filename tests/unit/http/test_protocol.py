"""What of an answer is written when, without a port."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from app.http.protocol import PatientProtocol

POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
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
