"""Whether the server is well, and its figures."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse

from lmlab.serve.figures import prometheus
from lmlab.serve.served import Runs


def status(runs: Runs) -> APIRouter:
    """The routes over these runs."""
    router = APIRouter()

    @router.get("/health", summary="200 as soon as requests can be taken")
    async def health() -> JSONResponse:
        engines = [served.engine for served in tuple(runs.served.values())]
        failed = any(engine.failed is not None for engine in engines)
        ready = all(engine.ready.is_set() for engine in engines)
        good = ready and not failed
        return JSONResponse({"status": "ok" if good else "failed" if failed else "starting"}, 200 if good else 503)

    @router.get("/metrics", summary="Figures for Prometheus", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        figures = {name: (served.engine.figures, served.engine.rows) for name, served in tuple(runs.served.items())}
        return PlainTextResponse(prometheus(figures), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router
