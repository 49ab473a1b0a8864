"""POST /v1/predict: labels, tags, scores or answers of a fine-tuned run."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from lmlab.data.readers.examples import Example
from lmlab.serve.errors import checking, json_response
from lmlab.serve.schemas import Predict, PredictItem
from lmlab.serve.served import Runs
from lmlab.serve.waiting import call
from lmlab.tasks.predicting import check_examples, describe_left_out
from lmlab.tasks.task import Task


def predict(runs: Runs) -> APIRouter:
    """The route over these runs."""
    router = APIRouter()

    @router.post("/v1/predict", summary="Labels, tags, scores or answers of a fine-tuned run")
    async def predict(request: Request, body: Predict) -> JSONResponse:
        served = await runs.open(body.model, request)
        predictor = served.role("predictor")
        given = body.input if isinstance(body.input, list) else [body.input]
        items = [PredictItem(text=each) if isinstance(each, str) else each for each in given]
        examples = [
            Example(predictor.task.to_input(each.text), each.second, choices=tuple(each.choices or ()))
            for each in items
        ]
        with checking("input"):
            await asyncio.to_thread(_check_examples, predictor.task, examples)
        found = await call(
            served,
            request,
            lambda pause: replace(predictor, progress=lambda done, total: pause()).predict(examples),
        )
        data = [
            {"index": number, **({} if isinstance(example.a, str) else {"words": example.a}), **_prediction(each)}
            for number, (example, each) in enumerate(zip(examples, found, strict=True))
        ]
        note = describe_left_out(predictor.task, found)
        warnings = {} if note is None else {"warnings": [note]}
        content = {"object": "list", "model": served.name, "task": predictor.task.name, "data": data, **warnings}
        return json_response(content, served.name)

    return router


def _check_examples(task: Task, examples: list[Example]) -> None:
    """Raise a ValueError if an example does not have the form that the task reads."""
    check_examples(task, examples)
    task.items(examples)


def _prediction(found: Any) -> dict[str, Any]:
    """A prediction as JSON: its value and, if the task has them, the scores of all values."""
    fields = found._asdict() if hasattr(found, "_asdict") else asdict(found)
    return {key: value for key, value in fields.items() if value is not None}
