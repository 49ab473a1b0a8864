"""GET /v1/models: what is served."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

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

    if runs.limits.lenient:

        @router.delete("/v1/models/{name:path}", include_in_schema=False)
        async def delete(name: str) -> dict[str, Any]:
            return {"id": name, "object": "model", "deleted": False}

    else:

        @router.delete("/v1/models/{name:path}", include_in_schema=False)
        async def refuse(name: str) -> None:
            raise APIError("runs are not deleted over the network; remove the folder", status=403)

    return router
