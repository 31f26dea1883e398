"""Reading a request body: bounded in bytes, in time, and in what all bodies hold together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from starlette.types import Receive, Scope

from app.http.errors import RequestError

SMALL_BYTES = 64 * 1024
"""A body's first bytes are always taken: large bodies never crowd out small ones."""
DISCARD_BYTES = 64 * 1024 * 1024
"""A refused body up to this size is read and dropped, so that its sender sees the answer."""


@dataclass(slots=True)
class Budget:
    """Bytes that all large bodies may hold while they arrive."""

    limit_bytes: int
    held_bytes: int = 0

    def take(self, amount: int) -> None:
        """Count `amount` more; refuses with 503 and the time to come back when it is too much."""
        if self.held_bytes + amount > self.limit_bytes:
            raise RequestError(
                503,
                "too many large requests are arriving at once",
                code="overloaded",
                headers={"Retry-After": "1", "Connection": "close"},
            )
        self.held_bytes += amount


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    """How much may come, and how long it may take."""

    body_bytes: int
    seconds: float
    budget: Budget = field(default_factory=lambda: Budget(limit_bytes=64 * 1024 * 1024))


class ClientLeft(Exception):  # noqa: N818 - it names what happened, which is nobody's error
    """The connection ended before the request did."""


async def read_json_bytes(
    scope: Scope, receive: Receive, limits: BodyLimits, *, seconds: float | None = None
) -> bytes:
    """The body of a JSON request, not parsed, within `seconds` if given. Raises `RequestError`."""
    patience = limits.seconds if seconds is None else seconds
    head = dict(reversed(scope["headers"]))  # the first of a name counts
    _require_json(head)
    _check_length(head, limits)
    try:
        async with asyncio.timeout(patience):
            return await _collect(receive, limits)
    except TimeoutError:
        raise RequestError(
            408,
            f"the body must arrive within {patience:g} seconds",
            headers={"Connection": "close"},
        ) from None
    except ClientLeft:
        raise RequestError(400, "the client left before its request ended") from None


def parse_json(body: bytes) -> Any:
    """The document of `body`. Raises `RequestError` (400)."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as problem:
        raise RequestError(
            400, f"the body must be JSON in UTF-8: {problem}", code="invalid_json"
        ) from None


async def _collect(receive: Receive, limits: BodyLimits) -> bytes:
    chunks: list[bytes] = []
    size = counted = 0
    more = True
    try:
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientLeft
            chunk, more = message.get("body", b""), message.get("more_body", False)
            size += len(chunk)
            if size > limits.body_bytes:
                raise too_large(limits.body_bytes, close=True)
            if size > SMALL_BYTES:
                limits.budget.take(size - max(counted, 0))
                counted = size
            chunks.append(chunk)
    finally:
        limits.budget.held_bytes -= counted
    return b"".join(chunks)


def _require_json(head: Mapping[bytes, bytes]) -> None:
    kind = head.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        named = f", not `{kind.decode('latin-1')}`" if kind else ""
        raise RequestError(415, f"`Content-Type` must be `application/json`{named}")
    encoding = head.get(b"content-encoding", b"identity").lower()
    if encoding != b"identity":
        named = encoding.decode("latin-1")
        raise RequestError(415, f"`Content-Encoding` must be absent, not `{named}`")


def _check_length(head: Mapping[bytes, bytes], limits: BodyLimits) -> None:
    declared = head.get(b"content-length", b"")
    if declared.isdigit() and int(declared[:20]) > limits.body_bytes:
        raise too_large(limits.body_bytes, close=int(declared[:20]) > DISCARD_BYTES)


def too_large(limit_bytes: int, *, close: bool) -> RequestError:
    """The refusal of a body over the limit."""
    headers = {"Connection": "close"} if close else {}
    return RequestError(413, f"the body must be at most {limit_bytes} bytes", headers=headers)
