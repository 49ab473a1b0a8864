"""Prefill: prompts are read one by one, in pieces, so that running sequences do not wait long; scored on request."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence

import torch

from lmlab.decoding.chain_rule import SEGMENT, TokenScore, score_in_pieces
from lmlab.models.abilities import PredictsNext
from lmlab.serve.engine.prefix_cache import Prefilled, PrefixCache
from lmlab.serve.errors import NotANumberError

PIECE = 64
"""Tokens of a prompt that a model with a window reads at once."""


def piece_size(model: PredictsNext) -> int:
    """The number of tokens read at once; without a window the segment of scoring (it changes what an XL reads)."""
    return SEGMENT if model.window is None else PIECE


def prefill(model: PredictsNext, tokens: Sequence[int], cache: PrefixCache) -> Generator[int, None, Prefilled]:
    """Read a prompt, or its end if it is longer than the window; yields the number of tokens after each piece."""
    if model.window is not None:
        tokens = tokens[-model.window :]
    done, found = cache.find(tokens)
    for start in range(done, len(tokens), cache.piece):
        piece = torch.tensor([tokens[start : start + cache.piece]], device=model.device)
        found = Prefilled(*model.step(piece, model.start(1) if found is None else found.state))
        cache.keep(tokens[: start + cache.piece], found)
        yield piece.shape[1]
    assert found is not None
    return found


def score_prompt(
    model: PredictsNext,
    tokens: Sequence[int],
    cache: PrefixCache,
    *,
    top: int,
    opening: int | None = None,
    unknown: int | None = None,
) -> Generator[int, None, list[TokenScore]]:
    """The score of each token after the first, with the same windows as `lmlab score`; the cache keeps the states.

    With `opening`, the first token is scored too, after that token alone.
    """
    scores = yield from score_in_pieces(
        model,
        tokens,
        top=top,
        piece=cache.piece,
        unknown=unknown,
        keep=lambda length, logits, state: cache.keep(tokens[:length], Prefilled(logits, state)),
    )
    if opening is not None:
        first = [opening, tokens[0]]
        scores = (yield from score_in_pieces(model, first, top=top, piece=cache.piece, unknown=unknown)) + scores
    if any(math.isnan(score.nats) for score in scores):
        raise NotANumberError("the model")
    return scores
