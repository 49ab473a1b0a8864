"""Routes that start, watch and stop training; whatever changes something needs the token."""

from __future__ import annotations

import hmac
from typing import Annotated

from fastapi import APIRouter, Depends, Header
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.serve.access_token import token_of
from lmlab.serve.errors import APIError
from lmlab.studio.answers import answer
from lmlab.studio.works import TRAINED, Wanted, Works


class Which(Config):
    """A work by its number."""

    number: int = Field(ge=1, le=100_000)


def make_router(works: Works, *, token: str | None) -> APIRouter:
    """`token` is what must be known to change something; None where the guard asks for it already."""
    router = APIRouter()

    def knows(authorization: Annotated[str, Header()] = "") -> None:
        given = token_of(authorization.encode("latin-1", "replace"))
        if token is not None and not hmac.compare_digest(given, token.encode()):
            raise APIError(
                "this needs the token: open the address that lmlab studio printed in the terminal",
                status=401,
                code="invalid_api_key",
            )

    @router.get("/works")
    def list_works() -> Response:
        return answer({"works": works.about(), "texts": works.names(), "models": list(TRAINED)})

    @router.post("/works/command")
    def command(wanted: Wanted) -> Response:
        return answer({"command": works.command(wanted)})

    @router.post("/works", dependencies=[Depends(knows)])
    def start(wanted: Wanted) -> Response:
        return answer(works.describe(works.start(wanted)))

    @router.post("/works/stop", dependencies=[Depends(knows)])
    def stop(which: Which) -> Response:
        work = works.find(which.number)
        work.stop()
        return answer(works.describe(work))

    return router
