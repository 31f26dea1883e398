"""A client of an application in this process: no port, no thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
from starlette.types import ASGIApp


class Client:
    """Sends requests to an application as a server would hand them over."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def get(self, path: str, **more: Any) -> httpx.Response:
        """GET."""
        return self.request("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        """POST; an iterator as `content` is sent in chunks."""
        return self.request("POST", path, **more)

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Any method."""
        return asyncio.run(self._send(method, path, more))

    async def _send(self, method: str, path: str, more: dict[str, Any]) -> httpx.Response:
        if isinstance(more.get("content"), Iterator):
            more["content"] = _chunks(more["content"])
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="https://advisor") as http:
            return await http.request(method, path, **more)


async def _chunks(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
