"""The mix of layers that fine-tuned runs have learnt: which layers a task reads (Peters et al. 2018, figure 2)."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.answers import RunNames, answer
from lmlab.studio.shelf import Shelf


class Asked(Config):
    """Which runs."""

    runs: RunNames


def make_router(shelf: Shelf) -> APIRouter:
    router = APIRouter()

    @router.post("/mix")
    def mix(asked: Asked) -> Response:
        found = []
        for name in asked.runs:
            with shelf.using(name) as model:
                heads = model.predictor.heads
                if "mix" not in heads:
                    raise ValueError(
                        f"{name} has not learnt a mix of layers: lmlab finetune RUN DATA -o {name} --how mix"
                    )
                learnt = heads["mix"]
                found.append(
                    {"run": name, "task": model.predictor.task.name, "shares": learnt.shares().tolist()}  # type: ignore[operator]
                )
        return answer({"runs": found})

    return router
