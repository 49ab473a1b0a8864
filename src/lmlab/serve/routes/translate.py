"""POST /v1/translate: translate texts by beam search."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from lmlab.decoding.translator import LONGEST, Translator
from lmlab.serve.errors import APIError, NotANumberError, checking, json_response
from lmlab.serve.schemas import Translate
from lmlab.serve.served import Runs
from lmlab.serve.waiting import call

BATCH_SIZE = 8


def translate(runs: Runs) -> APIRouter:
    """The route over these runs."""
    router = APIRouter()

    @router.post("/v1/translate", summary="Translate texts")
    async def translate(request: Request, body: Translate) -> JSONResponse:
        served = await runs.open(body.model, request)
        translator = served.role("translator")
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
                batch=BATCH_SIZE,
                progress=lambda done, total: pause(),
            ),
        )
        empty = translator.frame.overhead("source", "a")  # the length of a source without a text
        if any(not beams and len(source) > empty for beams, source in zip(found, sources, strict=True)):
            raise NotANumberError(served.name)
        data = [
            {
                "index": number,
                "text": beams[0].text if beams else "",
                "beams": [
                    {"text": beam.text, "score": beam.score, "log_probability": beam.log_probability} for beam in beams
                ],
            }
            for number, beams in enumerate(found)
        ]
        return json_response({"object": "list", "model": served.name, "data": data}, served.name)

    return router


def _read_sources(translator: Translator, texts: list[str], body: Translate) -> list[list[int]]:
    """The tokens of each text; an `APIError` if a text, or its translation, would be too long for the model."""
    with checking("input"):
        rows = translator.source_rows(texts, longest=LONGEST)
    window, begun = translator.model.window, len(translator.frame.row()["tokens"])
    if body.max_tokens is not None and window is not None and body.max_tokens > window - begun + 1:
        raise APIError(
            f"max_tokens = {body.max_tokens}: this model writes at most {window - begun + 1} tokens", param="max_tokens"
        )
    return rows
