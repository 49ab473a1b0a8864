"""Surprise: one text as several runs see it, token by token, and word by word where they are to be compared."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.responses import RunNames, Text, answer_for_each
from lmlab.studio.run_store import RunStore
from lmlab.studio.workers import HeavyRoute
from lmlab.units import bits_per_byte


class Asked(Config):
    """Which text, and by which runs."""

    runs: RunNames
    text: Text


def make_router(run_store: RunStore) -> APIRouter:
    router = APIRouter(route_class=HeavyRoute)

    @router.post("/surprise")
    def surprise(asked: Asked) -> Response:
        return answer_for_each(asked.runs, run_store, lambda model: colour(model, asked.text))

    return router


def colour(model: Any, text: str) -> dict[str, Any]:
    """Every token and every word with its bits, and where they stand in the text."""
    import math

    from lmlab.analysis.surprisal import read_surprisals
    from lmlab.tokenizers.inspecting import loses_text

    found = read_surprisals(model, text)
    (one,) = found.texts
    tokenizer = model.text_tokenizer
    return {
        "tokens": one.tokens,
        "words": one.words,
        "bits": found.bits,
        "bits_per_byte": bits_per_byte(found.bits * math.log(2), len(text.encode())),
        "pseudo": found.pseudo,
        "lossy": loses_text(tokenizer, [text]),
    }
