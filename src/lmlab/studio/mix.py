"""The mix of layers that fine-tuned runs have learnt: which layers a task reads (Peters et al. 2018, figure 2)."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.responses import RunNames, answer
from lmlab.studio.run_store import RunStore
from lmlab.studio.shown import show
from lmlab.studio.workers import HeavyRoute


class Asked(Config):
    """Which runs."""

    runs: RunNames


def make_router(run_store: RunStore) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    @router.post("/mix")
    def mix(asked: Asked) -> Response:
        from lmlab.analysis.layer_mix import TaskLayers, describe_mix
        from lmlab.runs.checkpoint import read_mix

        found = [describe_mix(name, *read_mix(run_store.find_checked(name), name=name)) for name in asked.runs]
        return answer({"mixes": found, "shown": show(TaskLayers(found))})

    return router
