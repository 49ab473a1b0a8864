"""Neighbours: the tokens whose vectors lie nearest to a word's, in several runs, and analogies."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.responses import RunNames, answer
from lmlab.studio.run_store import RunStore
from lmlab.studio.shown import show
from lmlab.studio.workers import HeavyRoute


class Asked(Config):
    """One word, or three: a is to b as c is to what?"""

    runs: RunNames
    words: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field(min_length=1, max_length=3)
    top: int = Field(12, ge=1, le=100, description="tokens that are shown")


def make_router(run_store: RunStore) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    @router.post("/neighbours")
    def neighbours(asked: Asked) -> Response:
        from lmlab.analysis.neighbours import find_neighbours

        if len(asked.words) == 2:
            raise ValueError("2 words: give one, or three for an analogy (a is to b as c is to what?)")
        found: list[dict[str, Any]] = []
        for name in asked.runs:
            with run_store.using(name) as model:
                try:
                    shown = show(find_neighbours(model, asked.words, top=asked.top))
                    found.append({"run": name, "shown": shown, "why_not": None})
                except ValueError as error:  # a word that one vocabulary lacks, others may have
                    found.append({"run": name, "shown": None, "why_not": str(error)})
        return answer({"runs": found})

    return router
