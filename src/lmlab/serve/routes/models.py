"""GET /v1/models: the runs that are served; and the index at /."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from lmlab.serve.errors import APIError
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
