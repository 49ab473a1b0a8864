"""Surprise: one text as several runs see it, token by token, and word by word where they are to be compared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from starlette.responses import Response

from lmlab.config import Config
from lmlab.studio.answers import RunNames, Text, answer
from lmlab.studio.shelf import Shelf

if TYPE_CHECKING:
    from lmlab.decoding.scorer import Scorer


class Asked(Config):
    """Which text, and by which runs."""

    runs: RunNames
    text: Text


def make_router(shelf: Shelf) -> APIRouter:
    router = APIRouter()

    @router.post("/surprise")
    def surprise(asked: Asked) -> Response:
        found = []
        for name in asked.runs:
            with shelf.using(name) as model:
                found.append({"run": name, **colour(model.scorer, asked.text)})
        return answer({"runs": found, "words": [[start, end] for start, end in words_of(asked.text)]})

    return router


def colour(scorer: Scorer, text: str) -> dict[str, Any]:
    """Every token with its bits, where it stands in the text, and the bits of each word."""
    score = scorer.score([text])
    spans = spans_of(scorer, text, len(score.token_ids[0]))
    tokens = [
        {"piece": piece, "bits": bits, **({"start": span[0], "end": span[1]} if span else {})}
        for (piece, bits), span in zip(score.surprisals, spans, strict=True)
    ]
    return {
        "tokens": tokens,
        "words": by_word(text, spans, [bits for _, bits in score.surprisals]),
        "bits": score.bits,
        "bits_per_byte": score.bits_per_byte,
        "perplexity": score.perplexity,
        "pseudo": score.pseudo,
        "lossy": score.lossy,
    }


def spans_of(scorer: Scorer, text: str, tokens: int) -> Sequence[tuple[int, int] | None]:
    """Where each token stands in the text, by its characters; None where the tokenizer does not tell."""
    kind = scorer.tokenizer.kind
    if kind == "characters" and tokens == len(text):
        return [(i, i + 1) for i in range(tokens)]
    if kind == "bytes":
        return [(i, i + 1) for i, letter in enumerate(text) for _ in letter.encode()]
    encoded = scorer.tokenizer.engine.encode(text, add_special_tokens=False)
    return list(encoded.offsets) if len(encoded.ids) == tokens else [None] * tokens


def words_of(text: str) -> list[tuple[int, int]]:
    """The words of a text: what stands between white space."""
    return [match.span() for match in re.finditer(r"\S+", text)]


def by_word(text: str, spans: Sequence[tuple[int, int] | None], bits: Sequence[float]) -> list[float] | None:
    """The bits of each word: those of the tokens that end in it, and of the white space before it.

    White space after the last word counts to that word, so that words add up to the text. None where places are not
    known.
    """
    words = words_of(text)
    if not words or any(span is None for span in spans):
        return None
    found, word = [0.0] * len(words), 0
    for span, value in zip(spans, bits, strict=True):
        assert span is not None
        while word < len(words) - 1 and span[1] > words[word][1]:
            word += 1
        found[word] += value
    return found
