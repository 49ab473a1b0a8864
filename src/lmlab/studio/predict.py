"""Predicting with a fine-tuned run: classes, scores, tags, answers and choices."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.answers import RunName, Text, answer
from lmlab.studio.shelf import Shelf, read


class Asked(Config):
    """An example: a text, a second one where the task is about two, choices where there are some."""

    run: RunName
    text: Text
    second: Text | None = None
    choices: list[Text] = Field([], max_length=20)


def make_router(shelf: Shelf) -> APIRouter:
    router = APIRouter()

    @router.get("/task")
    def task(run: Annotated[str, Query(max_length=500)]) -> Response:
        told = read(shelf.find(run) / "task.json")
        names = ("kind", "labels", "how", "layers", "pair")
        return answer({name: told.get(name) for name in names})

    @router.post("/predict")
    def predict(asked: Asked) -> Response:
        from lmlab.data.reading.examples import Example

        with shelf.using(asked.run) as model:
            predictor = model.predictor
            tags = predictor.task.name == "tagging"
            words: Any = tuple(asked.text.split()) if tags else asked.text
            if not asked.text.strip():
                raise ValueError("the text is empty: write something to predict from")
            example = Example(words, asked.second, tuple(asked.choices))
            (found,) = predictor.predict([example])
            return answer({"task": predictor.task.name, "words": list(words) if tags else None, "prediction": found})

    return router
