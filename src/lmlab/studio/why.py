"""Why: which tokens speak for a prediction, and which against it, by gradient × input."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.answers import RunNames, Text, answer
from lmlab.studio.shelf import Shelf
from lmlab.studio.shown import show


class Asked(Config):
    """The text before a prediction, with a [MASK], or to classify; without a target, the most probable is explained."""

    runs: RunNames
    text: Text
    target: str = Field("", max_length=100)


def make_router(shelf: Shelf) -> APIRouter:
    router = APIRouter()

    @router.post("/why")
    def why(asked: Asked) -> Response:
        from lmlab.analysis.attribution import attribute

        found = []
        for name in asked.runs:
            with shelf.using(name) as model:
                attributed = attribute(model, asked.text, target=asked.target or None)
            found.append({"run": name, "found": attributed, "shown": show(attributed)})
        return answer({"runs": found})

    return router
