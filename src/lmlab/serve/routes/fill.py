"""POST /v1/fill: fill the masks of a text."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from lmlab.decoding.filler import MaskFiller
from lmlab.serve.errors import APIError, checking, json_response
from lmlab.serve.schemas import Fill
from lmlab.serve.served import Runs
from lmlab.serve.waiting import call

MOST_MASKS = 64
"""Masks of one request: the text is read once for each, and twice to fill them jointly."""


def fill(runs: Runs) -> APIRouter:
    """The route over these runs."""
    router = APIRouter()

    @router.post("/v1/fill", summary="Fill the masks of a text")
    async def fill(request: Request, body: Fill) -> JSONResponse:
        served = await runs.open(body.model, request)
        filler = served.role("filler")
        await asyncio.to_thread(_check_text, filler, body.text)
        found = await call(
            served,
            request,
            lambda pause: replace(filler, progress=lambda done, total: pause()).fill(
                body.text, top=body.top, jointly=body.jointly, order=body.order, beams=body.beams
            ),
        )
        candidates = [[candidate._asdict() for candidate in mask] for mask in found.candidates]
        content = {"object": "filled", "model": served.name, **asdict(found), "candidates": candidates}
        return json_response(content, served.name)

    return router


def _check_text(filler: MaskFiller, text: str) -> None:
    """Raise an `APIError` if a text has no masks or too many, or is too long for the model."""
    with checking("text"):
        masks = len(filler.encode(text).positions)
    if masks > MOST_MASKS:
        raise APIError(
            f"text: {masks} masks; this server fills at most {MOST_MASKS} in a request: send the text in parts",
            param="text",
        )
