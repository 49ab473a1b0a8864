"""Predicting with a fine-tuned run: classes, scores, tags, answers and choices."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.responses import RunName, Text, answer
from lmlab.studio.run_files import read
from lmlab.studio.run_store import RunStore
from lmlab.studio.workers import HeavyRoute


class Asked(Config):
    """An example: a text, a second one where the task is about two, choices where there are some."""

    run: RunName
    text: Text
    second: Text | None = None
    choices: list[Text] = Field([], max_length=20)


def make_router(run_store: RunStore) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    @router.get("/task")
    def task(run: Annotated[str, Query(max_length=500)]) -> Response:
        task = read(run_store.find(run) / "task.json")
        method = task.get("method", task.get("how"))  # its name before version 0.6
        names = ("kind", "labels", "layers", "pair")
        return answer({**{name: task.get(name) for name in names}, "how": method})

    @router.post("/predict")
    def predict(asked: Asked) -> Response:
        from lmlab.data.readers.examples import Example

        with run_store.using(asked.run) as model:
            predictor = model.predictor
            words = predictor.task.as_read(asked.text)
            if not asked.text.strip():
                raise ValueError("the text is empty: write something to predict from")
            example = Example(words, asked.second, tuple(asked.choices))
            (found,) = predictor.predict([example])
            told = None if isinstance(words, str) else list(words)
            return answer({"task": predictor.task.name, "words": told, "prediction": found})

    return router
