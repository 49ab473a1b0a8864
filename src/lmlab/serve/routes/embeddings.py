"""POST /v1/embeddings: vectors of texts."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from lmlab.analysis.embedding import Vectors
from lmlab.models.abilities import GivesVectors, ability
from lmlab.serve.errors import APIError, NotANumberError, checking
from lmlab.serve.planning import PromptText, read_prompts
from lmlab.serve.schemas import Embeddings
from lmlab.serve.served import Runs, Served
from lmlab.serve.waiting import call


def embeddings(runs: Runs) -> APIRouter:
    """The route over these runs."""
    router = APIRouter()

    @router.post("/v1/embeddings", summary="Vectors of texts")
    async def embed(request: Request, body: Embeddings) -> JSONResponse:
        served = await runs.open(body.model, request)
        if not body.input and not isinstance(body.input, str):
            raise APIError("input: the list is empty; give a text, several, or token ids", param="input")
        if ability(served.lm.model, GivesVectors) is None:
            raise APIError(f"{served.name} has no vectors; what it does: {', '.join(served.abilities)}", param="model")
        texts = await asyncio.to_thread(read_prompts, body.input, served, "input")
        vectors = await call(served, request, lambda pause: _read(served, texts, body, pause))
        if not np.isfinite(vectors).all():
            raise NotANumberError(served.name, "vectors")
        if body.dimensions is not None:
            if body.dimensions > vectors.shape[1]:
                raise APIError(
                    f"dimensions = {body.dimensions}: the vectors of {served.name} have {vectors.shape[1]}",
                    param="dimensions",
                )
            vectors = vectors[:, : body.dimensions]
        tokens = sum(len(text.ids) for text in texts)
        # The client requests base64 by default, but its strict mode, in which its tests run, accepts only numbers.
        form = "float" if served.limits.lenient else body.encoding_format
        data = [
            {"object": "embedding", "index": number, "embedding": _encode(vector, form)}
            for number, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return JSONResponse({"object": "list", "model": served.name, "data": data, "usage": usage})

    return router


def _read(served: Served, texts: list[PromptText], body: Embeddings, pause: Callable[[], None]) -> Vectors:
    embedder = replace(served.lm.embedder, layers=body.layers, batch_tokens=1024, progress=lambda done, total: pause())
    if body.pool == "cls" and not embedder.frame.has("cls"):
        raise APIError(f"pool = cls: {served.name} has no [CLS] token; pool by mean or max", param="pool")
    with checking("layers"):
        embedder.check_layers()
    with checking("input"):
        embedder.check_lengths([text.ids for text in texts])
    full = [number for number, text in enumerate(texts) if text.ids]
    found = embedder.read([texts[number].ids for number in full] or [[]], body.pool)
    vectors = np.zeros((len(texts), found[0].shape[0]), np.float32)
    if full:
        vectors[full] = np.stack(found)
    return vectors


def _encode(vector: Vectors, form: str | None) -> list[float] | str:
    """As numbers, or as the base64 of little-endian single precision, which the Python client asks for."""
    if form == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return [float(number) for number in vector]
