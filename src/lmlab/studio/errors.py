"""Errors: what a translator, or a model that continues texts, does off the beaten track."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.responses import RunName, Text, answer
from lmlab.studio.run_store import RunStore
from lmlab.studio.shown import show
from lmlab.studio.workers import HeavyRoute

MOST = 20
"""Texts that are tried at once: each is tried in four ways."""


class Asked(Config):
    """Sources or prompts, one per line."""

    run: RunName
    lines: Text
    provoked: bool = Field(True, description="whether they are tried scrambled, doubled and repeated, too")
    tokens: int = Field(40, ge=1, le=200, description="the most tokens that are written of each")
    seed: int = Field(0, ge=0, lt=2**31, description="of what is scrambled")


def make_router(run_store: RunStore) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    @router.post("/errors")
    def errors(asked: Asked) -> Response:
        from lmlab.analysis.errors import find_errors

        lines = [line for line in asked.lines.splitlines() if line.strip()]
        if len(lines) > MOST:
            raise ValueError(f"{len(lines)} texts: give at most {MOST}; lmlab inspect errors takes a file")
        model = run_store.open(asked.run)  # it takes seconds, and others may use the model meanwhile
        found = find_errors(model, lines, tokens=asked.tokens, seed=asked.seed, provoked=asked.provoked)
        return answer({"outputs": found.outputs, "aligned": found.aligned, "shown": show(found)})

    return router
