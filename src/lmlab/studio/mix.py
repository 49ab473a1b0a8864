"""The mix of layers that fine-tuned runs have learnt: which layers a task reads (Peters et al. 2018, figure 2)."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.answers import RunNames, answer
from lmlab.studio.shelf import Shelf, read
from lmlab.studio.shown import show


class Asked(Config):
    """Which runs."""

    runs: RunNames


def make_router(shelf: Shelf) -> APIRouter:
    router = APIRouter()

    @router.post("/mix")
    def mix(asked: Asked) -> Response:
        from lmlab.analysis.task_layers import TaskLayers, read_mix
        from lmlab.checkpoint import TASK, read_heads

        found = []
        for name in asked.runs:
            path = shelf.find(name)
            if not (path / TASK).is_file():
                raise ValueError(f"{name} has not learnt a task: lmlab finetune RUN DATA -o {name} --how mix")
            found.append(read_mix(name, str(read(path / TASK).get("kind", "task")), read_heads(path)))
        return answer({"mixes": found, "shown": show(TaskLayers(found))})

    return router
