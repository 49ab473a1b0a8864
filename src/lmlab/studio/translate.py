"""Translating: what a search finds, its tree, and which source words each target word was written from."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.responses import RunName, Text, answer
from lmlab.studio.run_store import RunStore
from lmlab.studio.workers import HeavyRoute


class Asked(Config):
    """A source text, and how it is translated."""

    run: RunName
    text: Text
    beams: int = Field(4, ge=1, le=10, description="beam size")
    length_penalty: float = Field(0.6, ge=0, le=10, description="0 ranks by probability, which favours short texts")
    layer: int = Field(-1, ge=-64, le=63, description="decoder block whose attention is shown; -1 is the last")
    head: int | None = Field(None, ge=0, le=255, description="one head; without it the mean of all")
    target: Text | None = Field(None, description="a translation of the user's own, to be aligned")


def make_router(run_store: RunStore) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    @router.post("/translate")
    def translate(asked: Asked) -> Response:
        with run_store.using(asked.run) as model:
            (found,) = model.translator.translate(
                [asked.text], beams=asked.beams, length_penalty=asked.length_penalty, longest=200
            )
            result: dict[str, Any] = {"translations": found, "alignment": None, "why_not": None}
            target = asked.target or (found[0] if found else None)
            if target:
                try:
                    (result["alignment"],) = model.aligner.align(
                        [asked.text], [target], layer=asked.layer, head=asked.head
                    )
                except ValueError as error:
                    result["why_not"] = str(error)
            return answer(result)

    return router
