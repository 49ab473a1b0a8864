"""Blanks: words of a text are hidden, and a masked model says what might stand there."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.responses import RunNames, Text, answer_for_each
from lmlab.studio.run_store import RunStore
from lmlab.studio.workers import HeavyRoute

MOST = 12
"""Blanks of one text."""


class Asked(Config):
    """A text with `[MASK]` for each hidden word."""

    runs: RunNames
    text: Text
    top: int = Field(6, ge=1, le=50, description="tokens of each blank, and fillings")
    jointly: bool = Field(False, description="whether blanks are filled so that they suit each other")
    order: Literal["left-to-right", "confident"] = Field("left-to-right", description="of joint filling")


def make_router(run_store: RunStore) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    @router.post("/blanks")
    def fill(asked: Asked) -> Response:
        if asked.text.count("[MASK]") > MOST:
            raise ValueError(f"{asked.text.count('[MASK]')} blanks: hide at most {MOST} words at once")
        options: dict[str, Any] = {"top": asked.top, "jointly": asked.jointly, "order": asked.order}
        return answer_for_each(
            asked.runs, run_store, lambda model: {"filled": model.filler.fill(asked.text, **options)}
        )

    return router
