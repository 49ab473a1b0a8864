"""Routes for other abilities: fill masks, predict labels, translate."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from lmlab.data.readers.examples import Example
from lmlab.decoding.translator import LONGEST, Translator
from lmlab.serve.errors import APIError, NotANumberError, checking, json_response
from lmlab.serve.schemas import Fill, Predict, PredictItem, Translate
from lmlab.serve.served import Runs, Served
from lmlab.serve.waiting import call
from lmlab.tasks.predicting import check_examples, describe_left_out
from lmlab.tasks.task import Task


def roles(runs: Runs) -> APIRouter:
    """The routes over these runs."""
    router = APIRouter()

    @router.post("/v1/fill", summary="Fill the masks of a text")
    async def fill(request: Request, body: Fill) -> JSONResponse:
        served = await runs.open(body.model, request)
        filler = _role(served, "filler")
        with checking("text"):
            await asyncio.to_thread(filler.encode, body.text)
        found = await call(
            served,
            request,
            lambda pause: replace(filler, progress=lambda done, total: pause()).fill(
                body.text, top=body.top, jointly=body.jointly, order=body.order, beams=body.beams
            ),
        )
        return json_response(
            {"object": "filled", "model": served.name, **asdict(found), "blanks": _candidates(found.blanks)},
            served.name,
        )

    @router.post("/v1/predict", summary="Labels, tags, scores or answers of a fine-tuned run")
    async def predict(request: Request, body: Predict) -> JSONResponse:
        served = await runs.open(body.model, request)
        predictor = _role(served, "predictor")
        given = body.input if isinstance(body.input, list) else [body.input]
        items = [PredictItem(text=each) if isinstance(each, str) else each for each in given]
        examples = [
            Example(predictor.task.as_read(each.text), each.second, choices=tuple(each.choices or ())) for each in items
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
        answer = {"object": "list", "model": served.name, "task": predictor.task.name, "data": data, **warnings}
        return json_response(answer, served.name)

    @router.post("/v1/translate", summary="Translate texts")
    async def translate(request: Request, body: Translate) -> JSONResponse:
        served = await runs.open(body.model, request)
        translator = _role(served, "translator")
        texts = [body.input] if isinstance(body.input, str) else body.input
        sources = await asyncio.to_thread(_read_sources, translator, texts, body)
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
        nothing = translator.frame.overhead("source", "a")
        if any(not each and len(row) > nothing for each, row in zip(found, sources, strict=True)):
            raise NotANumberError(served.name)
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
        return json_response({"object": "list", "model": served.name, "data": data}, served.name)

    return router


def _role(served: Served, name: str) -> Any:
    """A role of a run; without the ability, an error that names what the run can do."""
    try:
        return getattr(served.lm, name)
    except ValueError:
        can = ", ".join(served.abilities) or "nothing"
        raise APIError(f"{served.name} is no {name}; what it does: {can}", param="model", code="unsupported") from None


def _check_examples(task: Task, examples: list[Example]) -> None:
    """A ValueError where an example has not the form that the task reads."""
    check_examples(task, examples)
    task.items(examples)


def _read_sources(translator: Translator, texts: list[str], body: Translate) -> list[list[int]]:
    """The tokens of each text; an `APIError` where one, or what is to be written, is too long for the model."""
    with checking("input"):
        rows = translator.source_rows(texts, longest=LONGEST)
    window, begun = translator.model.window, len(translator.frame.row()["tokens"])
    if body.max_tokens is not None and window is not None and body.max_tokens > window - begun + 1:
        raise APIError(
            f"max_tokens = {body.max_tokens}: this model writes at most {window - begun + 1} tokens", param="max_tokens"
        )
    return rows


def _candidates(masks: list[list[Any]]) -> list[list[dict[str, Any]]]:
    return [[candidate._asdict() for candidate in mask] for mask in masks]


def _prediction(found: Any) -> dict[str, Any]:
    """A prediction as JSON: its value and, if the task has them, the scores of all values."""
    fields = found._asdict() if hasattr(found, "_asdict") else asdict(found)
    return {key: value for key, value in fields.items() if value is not None}
