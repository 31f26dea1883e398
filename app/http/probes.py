"""`/healthz`, `/readyz` and `/metrics`."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.responses import Response

from app.http.documents import HEALTH_OPERATION, READY_OPERATION
from app.http.errors import JsonResponse, RequestError, error_response
from app.http.state import Health
from app.observability.metrics import Metrics


def probe_router(health: Health, metrics: Metrics) -> APIRouter:
    """The routes of probes and of monitoring."""
    router = APIRouter(tags=["operations"])

    @router.get("/healthz", openapi_extra=HEALTH_OPERATION)
    async def healthz() -> Response:
        ailments = health.ailments()
        return _refused("unhealthy", ailments) if ailments else JsonResponse({"status": "ok"})

    @router.get("/readyz", openapi_extra=READY_OPERATION)
    async def readyz() -> Response:
        obstacles = health.obstacles()
        metrics.ready.set(not obstacles)
        if obstacles:
            return _refused("not_ready", obstacles)
        return JsonResponse({"status": "ready", "notes": health.notes()})

    @router.get("/metrics", include_in_schema=False)
    async def exposition() -> Response:
        metrics.ready.set(not health.obstacles())
        return Response(metrics.exposition(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return router


def _refused(code: str, reasons: Mapping[str, str]) -> Response:
    message = "; ".join(f"{part}: {reason}" for part, reason in reasons.items())
    return error_response(RequestError(503, message, code=code, path=next(iter(reasons))))
