"""What goes wrong at the edge, and the one shape it is answered in.

    RequestError          the request itself: too large, not JSON, wrong method, ...
        (anything else)   our own fault: answered 500, logged with its traceback

Codes are a closed set, so that clients can rely on them; docs/operations.md lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
from starlette.responses import Response

CODES: Mapping[int, str] = {
    400: "invalid_request",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "body_too_large",
    415: "unsupported_media_type",
    422: "invalid_request",
    500: "internal_error",
    503: "not_ready",
    504: "deadline_exceeded",
}


class RequestError(Exception):
    """The request cannot be answered. `status` and `code` say why, the message what to do."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "",
        path: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code or CODES[status]
        self.message = message
        self.path = path
        self.headers = dict(headers or {})


class JsonResponse(Response):
    """Strict JSON: NaN and Infinity become null, bytes are the same for the same content."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes of `content`."""
        return orjson.dumps(content)


def error_body(code: str, message: str, path: str = "") -> dict[str, Any]:
    """The error object of every route."""
    return {"error": {"code": code, "message": message, "path": path}}


def error_response(error: RequestError) -> JsonResponse:
    """The answer to a request that cannot be answered."""
    body = error_body(error.code, error.message, error.path)
    return JsonResponse(body, status_code=error.status, headers=error.headers)


def http_error(status: int, headers: Mapping[str, str] | None = None) -> RequestError:
    """The error for a status that the router decided on."""
    if status == HTTPStatus.NOT_FOUND:
        message = "there is nothing here; the routes are listed at /docs"
    elif status == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (headers or {}).get("Allow", "another method")
        message = f"this route takes {allowed} only"
    else:
        message = HTTPStatus(status).phrase.lower()
    code = CODES.get(status, "invalid_request")
    return RequestError(status, message, code=code, headers=headers)
