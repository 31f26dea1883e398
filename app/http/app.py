"""`create_app`: all doors over HTTP, and `create_probe_app`: the few that need no certificate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app.http.admission import admission_routes
from app.http.advisor import advisor_router
from app.http.deps import Deps
from app.http.documents import COMPONENTS, REVIEW_PATHS
from app.http.door import Door, on_our_fault
from app.http.errors import JsonResponse, RequestError, error_response, http_error
from app.http.page_files import page_router
from app.http.probes import probe_router
from app.observability.metrics import Series

PAGE = Path(__file__).parent / "page"
PAGE_HEADERS = {
    # Everything a page needs is in it or on this server; it works without the Internet.
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; img-src 'self' data:; "
    "style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def create_app(deps: Deps) -> ASGIApp:
    """The application of the HTTPS port."""
    app = _bare("TrainJob Advisor", deps)
    reviews = admission_routes(deps)
    app.router.routes.extend(reviews)  # where the framework answers other methods than POST
    app.include_router(advisor_router(deps))
    app.include_router(probe_router(deps.health, deps.metrics))
    app.include_router(page_router())
    _add_documentation(app, deps)
    return _behind_door(app, deps, straight={each.path: each for each in reviews})


def create_probe_app(deps: Deps) -> ASGIApp:
    """The application of the plain port: probes and metrics only."""
    app = _bare("TrainJob Advisor probes", deps)
    app.include_router(probe_router(deps.health, deps.metrics))
    return _behind_door(app, deps, straight={})


def _bare(title: str, deps: Deps) -> FastAPI:
    app = FastAPI(
        title=title, version=deps.version, openapi_url=None, docs_url=None, redoc_url=None
    )
    app.router.redirect_slashes = False
    app.add_exception_handler(RequestError, _on_request_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, on_our_fault)
    return app


def _behind_door(app: FastAPI, deps: Deps, *, straight: Mapping[str, Route]) -> ASGIApp:
    # Built now: left to the framework, the first request would wait for it.
    app.middleware_stack = app.build_middleware_stack()
    # The framework answers an exception and raises it again; the door logs it.
    return Door(
        app=_with_head(app),
        straight=straight,
        requests=Series(deps.metrics.http_requests),
        draining=lambda: deps.health.draining,
    )


def _with_head(app: ASGIApp) -> ASGIApp:
    """`app`, which knows GET alone, with HEAD on every route of it: the server drops the body."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") != "HEAD":
            await app(scope, receive, send)
            return
        asked = {**scope, "method": "GET"}
        await app(asked, receive, send)
        scope["route"] = asked.get("route")  # by which the door counts

    return answer


async def _on_request_error(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, RequestError)  # noqa: S101 - registered for this class only
    return error_response(error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class only
    return error_response(http_error(error.status_code, error.headers))


def _add_documentation(app: FastAPI, deps: Deps) -> None:
    document = openapi_document(app, deps.version)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return JsonResponse(document)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return FileResponse(PAGE / "docs.html", headers=PAGE_HEADERS)


def openapi_document(app: FastAPI, version: str) -> dict[str, Any]:
    """The OpenAPI document, with the routes and bodies that are our own to serve and check."""
    document = get_openapi(title=app.title, version=version, routes=app.routes)
    document["paths"] = {**REVIEW_PATHS, **document["paths"]}
    document.setdefault("components", {}).setdefault("schemas", {}).update(COMPONENTS)
    return document
