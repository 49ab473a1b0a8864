"""What is served: the index at /, the list of models, health and metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from lmlab.serve.errors import APIError
from lmlab.serve.metrics import prometheus
from lmlab.serve.served import Runs


def models(runs: Runs) -> APIRouter:
    """The routes over these runs."""
    router = APIRouter()

    @router.get("/v1/models", summary="The runs that are served")
    def every() -> dict[str, Any]:
        return {"object": "list", "data": runs.cards()}

    @router.get("/v1/models/{name:path}", summary="One of them")
    def one(name: str) -> dict[str, Any]:
        return runs.card(name)

    @router.delete("/v1/models/{name:path}", include_in_schema=False)
    async def delete(name: str) -> dict[str, Any]:
        if runs.limits.lenient:
            return {"id": name, "object": "model", "deleted": False}
        raise APIError("runs are not deleted over the network; remove the folder", status=403)

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


def index(runs: Runs) -> APIRouter:
    """The route `/`, which lists the models and the routes."""
    router = APIRouter()

    @router.get("/", include_in_schema=False)
    async def overview(request: Request) -> dict[str, Any]:
        paths: dict[str, dict[str, Any]] = request.app.openapi()["paths"]
        return {
            "server": f"lmlab {request.app.version}",
            "models": [card["id"] for card in runs.cards()],
            "routes": {
                f"{method.upper()} {path}": about["summary"]
                for path, methods in paths.items()
                for method, about in methods.items()
            },
            "schema": "/openapi.json",
        }

    return router
