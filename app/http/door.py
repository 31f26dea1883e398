"""The outermost layer: whatever happens inside, the answer has our shape and is counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import Counter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.http.errors import RequestError, error_response
from app.observability.logs import logger
from app.observability.metrics import Series

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
INTERNAL = "internal error: the request was not the cause; the log of this process has the details"


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """ASGI middleware: a log line for what nobody caught, `Connection: close` when draining.

    A POST to a path of `straight` goes to its endpoint past `app`, the framework, whose layers take
    longer than a review that equals an earlier one. `requests` are counted by route template,
    method and status.
    """

    app: ASGIApp
    straight: Mapping[str, Route]
    requests: Series[Counter]
    draining: Callable[[], bool]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = 0
        complete = False

        async def send_on(message: Message) -> None:
            nonlocal status, complete
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.draining():
                    message = _closing(message)
            complete = message["type"] == "http.response.body" and not message.get("more_body")
            await send(message)

        try:
            await self._endpoint(scope)(scope, receive, send_on)
        except RequestError as problem:
            await error_response(problem)(scope, receive, send_on)
        except Exception:
            logger().exception("request_failed", route=_route(scope), method=scope["method"])
            if not status:
                await error_response(RequestError(500, INTERNAL))(scope, receive, send_on)
            elif not complete:
                raise  # half an answer is out: only cutting the connection is honest
        finally:
            self._count(scope, status)

    def _endpoint(self, scope: Scope) -> ASGIApp:
        route = self.straight.get(scope["path"]) if scope["method"] == "POST" else None
        if route is None:
            return self.app
        scope["route"] = route
        return route.app

    def _count(self, scope: Scope, status: int) -> None:
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.requests[_route(scope), method, str(status)].inc()


async def on_our_fault(request: Request, error: Exception) -> Response:
    """The answer to an exception of ours: HTTP 500, so that the failure policy decides."""
    del request, error
    return error_response(RequestError(500, INTERNAL))


def _closing(message: Message) -> dict[str, Any]:
    kept = [pair for pair in message.get("headers", ()) if pair[0].lower() != b"connection"]
    return {**message, "headers": [*kept, (b"connection", b"close")]}


def _route(scope: Scope) -> str:
    # The template, never the path: labels are a closed set.
    return getattr(scope.get("route"), "path", "none")
