"""Routes that start, watch and stop training."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.jobs import TRAINED, Wanted, Works
from lmlab.studio.responses import answer


class Which(Config):
    """A work by its number."""

    number: int = Field(ge=1, le=100_000)


def make_router(works: Works) -> APIRouter:
    router = APIRouter()

    @router.get("/works")
    def list_works() -> Response:
        return answer({"works": works.about(), "texts": works.names(), "models": list(TRAINED)})

    @router.post("/works/command")
    def command(wanted: Wanted) -> Response:
        return answer({"command": works.command(wanted)})

    @router.post("/works")
    def start(wanted: Wanted) -> Response:
        return answer(works.describe(works.start(wanted)))

    @router.post("/works/stop")
    def stop(which: Which) -> Response:
        work = works.find(which.number)
        work.stop()
        return answer(works.describe(work))

    return router
