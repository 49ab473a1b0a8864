"""Why: which tokens speak for a prediction, and which against it, by gradient × input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.responses import RunNames, Text, answer_for_each
from lmlab.studio.run_store import RunStore
from lmlab.studio.shown import show
from lmlab.studio.workers import HeavyRoute

if TYPE_CHECKING:
    from lmlab.language_model import LanguageModel


class Asked(Config):
    """The text before a prediction, with a [MASK], or to classify; without a target, the most probable is explained."""

    runs: RunNames
    text: Text
    target: str = Field("", max_length=100)


def make_router(run_store: RunStore) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    @router.post("/why")
    def why(asked: Asked) -> Response:
        from lmlab.analysis.attribution import attribute

        def look(model: LanguageModel) -> dict[str, Any]:
            attributed = attribute(model, asked.text, prediction=asked.target or None)
            return {"found": attributed, "shown": show(attributed)}

        return answer_for_each(asked.runs, run_store, look)

    return router
