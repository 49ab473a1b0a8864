"""GET /health and /metrics: the state of the server."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from lmlab.serve.metrics import prometheus
from lmlab.serve.served import Runs


def health(runs: Runs) -> APIRouter:
    """The routes over these runs."""
    router = APIRouter()

    @router.get("/health", summary="200 as soon as requests are accepted")
    async def health() -> JSONResponse:
        engines = [served.engine for served in tuple(runs.served.values())]
        failed = any(engine.failed is not None for engine in engines)
        ready = all(engine.ready.is_set() for engine in engines)
        good = ready and not failed
        return JSONResponse({"status": "ok" if good else "failed" if failed else "starting"}, 200 if good else 503)

    @router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        engines = [served.engine.metrics for served in tuple(runs.served.values())]
        return PlainTextResponse(prometheus(engines), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return router
