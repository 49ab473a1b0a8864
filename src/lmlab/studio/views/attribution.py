"""Attribution: which tokens speak for a prediction, and which against it, by gradient × input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.responses import RunNames, Text, respond_for_each, to_json
from lmlab.studio.run_store import RunStore
from lmlab.studio.workers import HeavyRoute

if TYPE_CHECKING:
    from lmlab.language_model import LanguageModel


class AttributionRequest(Config):
    """The text before a prediction, with a [MASK], or to classify; without a target, the most probable is explained."""

    runs: RunNames
    text: Text
    target: str = Field("", max_length=100)


def make_router(run_store: RunStore) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    @router.post("/attribution")
    def attribution(request: AttributionRequest) -> Response:
        from lmlab.analysis.attribution import attribute

        def look(name: str, model: LanguageModel) -> dict[str, Any]:
            found = attribute(model, request.text, prediction=request.target or None)
            return {"found": found, "analysis": to_json(found)}

        return respond_for_each(request.runs, run_store, look)

    return router
