"""What other models do: fill blanks, predict labels, translate."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from fastapi import APIRouter, Request

from lmlab.data.reading.examples import Example
from lmlab.serve.errors import APIError
from lmlab.serve.requests import Fill, Predict, PredictItem, Translate
from lmlab.serve.served import Runs, Served
from lmlab.serve.waiting import call
from lmlab.tasks.forms import as_task_reads
from lmlab.tasks.predicting import describe_left_out


def roles(runs: Runs) -> APIRouter:
    """The routes over these runs."""
    router = APIRouter()

    @router.post("/v1/fill", summary="Fill the blanks of a text")
    async def fill(request: Request, body: Fill) -> dict[str, Any]:
        served = await runs.open(body.model)
        filler = _role(served, "filler")
        found = await call(
            served,
            request,
            lambda pause: replace(filler, progress=lambda done, total: pause()).fill(
                body.text, top=body.top, jointly=body.jointly, order=body.order, beams=body.beams
            ),
        )
        return {"object": "filled", "model": served.name, **asdict(found), "blanks": _blanks(found.blanks)}

    @router.post("/v1/predict", summary="Labels, tags, scores or answers of a fine-tuned run")
    async def predict(request: Request, body: Predict) -> dict[str, Any]:
        served = await runs.open(body.model)
        predictor = _role(served, "predictor")
        given = body.input if isinstance(body.input, list) else [body.input]
        items = [PredictItem(text=each) if isinstance(each, str) else each for each in given]
        examples = [
            Example(as_task_reads(predictor.task, each.text), each.second, choices=tuple(each.choices or ()))
            for each in items
        ]
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
        told = {} if note is None else {"warnings": [note]}
        return {"object": "list", "model": served.name, "task": predictor.task.name, "data": data, **told}

    @router.post("/v1/translate", summary="Translate texts")
    async def translate(request: Request, body: Translate) -> dict[str, Any]:
        served = await runs.open(body.model)
        translator = _role(served, "translator")
        texts = [body.input] if isinstance(body.input, str) else body.input
        found = await call(
            served,
            request,
            lambda pause: translator.translate(
                texts,
                beams=body.beams,
                length_penalty=body.length_penalty,
                tokens=body.max_tokens,
                batch=8,
                progress=lambda done, total: pause(),
            ),
        )
        data = [
            {
                "index": number,
                "text": each[0].text if each else "",
                "beams": [
                    {"text": one.text, "score": one.score, "log_probability": one.log_probability} for one in each
                ],
            }
            for number, each in enumerate(found)
        ]
        return {"object": "list", "model": served.name, "data": data}

    return router


def _role(served: Served, name: str) -> Any:
    """A role of a run; where it has not the ability, an error that says what it can do."""
    try:
        return getattr(served.lm, name)
    except ValueError:
        can = ", ".join(served.abilities) or "nothing"
        raise APIError(f"{served.name} is no {name}; what it does: {can}", param="model", code="unsupported") from None


def _blanks(blanks: list[list[Any]]) -> list[list[dict[str, Any]]]:
    return [[candidate._asdict() for candidate in blank] for blank in blanks]


def _prediction(found: Any) -> dict[str, Any]:
    """A prediction as JSON: what it is, and how sure the model is of each possibility, where it says so."""
    told = found._asdict() if hasattr(found, "_asdict") else asdict(found)
    return {key: value for key, value in told.items() if value is not None}
