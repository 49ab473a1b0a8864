"""Which tokens of a row are masked, and what replaces them: whole batches at once, and static shapes."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data.loaders.framing import Integers
from lmlab.data.loaders.rows import Rows
from lmlab.objectives.objective import IGNORE
from lmlab.tokenizers.pieces import Flags, Pieces

Unit = Literal["token", "word", "span"]

SPAN_END = 0.2
LONGEST_SPAN = 10
"""The length of a span is geometric, P(n) ∝ 0.8ⁿ up to 10 words: 3.8 on average (Joshi et al. 2020, section 3.1)."""


class Draws(NamedTuple):
    """The random numbers of a batch, each [B, T] and even in [0, 1): all that it hangs on besides the rows."""

    order: NDArray[np.float64]  # of the units, in which they are chosen
    fate: NDArray[np.float64]  # [MASK], a random token, or kept
    token: NDArray[np.float64]  # which random token
    length: NDArray[np.float64]  # of spans
    sample: NDArray[np.float64]  # to sample tokens from a model


class Corrupted(NamedTuple):
    """Rows with blanks."""

    tokens: Integers  # [B, T]
    positions: Integers  # [B, K] of the chosen tokens, in the order of the text
    targets: Integers  # [B, K] the chosen tokens; IGNORE where a row has fewer


def draw_numbers(rows: Rows, generator: np.random.Generator, *, dynamic: bool) -> Draws:
    """New random numbers each time; or, where masking is static, always the same for the same row."""
    count, shape = len(Draws._fields), rows.tokens.shape
    if dynamic:
        return Draws(*generator.random((count, *shape)))
    each = [np.random.default_rng(identity).random((count, shape[1])) for identity in rows.identity]
    return Draws(*np.stack(each, axis=1))


def count_chosen(share: float, length: int) -> int:
    """The number of chosen tokens in a row of this length, at least 1."""
    return max(1, round(share * length))


def corrupt(
    rows: Rows,
    draws: Draws,
    *,
    pieces: Pieces,
    mask: int,
    unit: Unit = "token",
    share: float = 0.15,
    mask_share: float = 0.8,
    random_share: float = 0.1,
) -> Corrupted:
    """Choose round(share · T) tokens of each row; put [MASK], a random token, or the same in their place.

    Devlin et al. 2019, appendix A.1. Special tokens and padding are never chosen. Units (tokens, words, or spans of
    words) are chosen in random order until the number is reached, so that the last of them may be cut. The three fates
    are drawn for each token, but for spans once for all of a span (SpanBERT, Joshi et al. 2020).
    """
    tokens = rows.tokens
    window = tokens.shape[1]
    numbers = number_units(tokens, draws.length, pieces, unit)
    allowed = ~pieces.special[tokens]
    key = np.where(allowed, np.take_along_axis(draws.order, numbers, axis=1), np.inf)
    most = count_chosen(share, window)
    ranked = np.argsort(key, axis=1, kind="stable")[:, :most]
    wanted = np.full(len(tokens), most)
    if rows.lengths is not None:
        wanted = np.maximum(1, np.round(share * rows.lengths).astype(np.int64))
    wanted = np.minimum(wanted, allowed.sum(axis=1))

    positions = np.sort(np.where(np.arange(most) < wanted[:, None], ranked, window), axis=1)
    is_masked = positions < window
    positions[~is_masked] = 0
    targets = np.where(is_masked, np.take_along_axis(tokens, positions, axis=1), IGNORE)

    fate = np.take_along_axis(draws.fate, numbers, axis=1) if unit == "span" else draws.fate
    fate = np.take_along_axis(fate, positions, axis=1)
    ordinary = np.flatnonzero(~pieces.special)
    drawn = ordinary[(np.take_along_axis(draws.token, positions, axis=1) * len(ordinary)).astype(np.int64)]
    put = np.where(fate < mask_share, mask, np.where(fate < mask_share + random_share, drawn, targets))
    corrupted = tokens.copy()
    row = np.broadcast_to(np.arange(len(tokens))[:, None], positions.shape)
    corrupted[row[is_masked], positions[is_masked]] = put[is_masked]
    return Corrupted(corrupted, positions, targets)


def number_units(tokens: Integers, length: NDArray[np.float64], pieces: Pieces, unit: Unit) -> Integers:
    """The number [B, T] of the unit that each token belongs to, counted from 0 in each row."""
    if unit == "token":
        return np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)
    words = _count(pieces.begins_word(tokens))
    if unit == "word":
        return words
    window, stays = tokens.shape[1], 1 - SPAN_END
    spans = 1 + np.floor(np.log(1 - length * (1 - stays**LONGEST_SPAN)) / np.log(stays)).astype(np.int64)
    ends = np.minimum(np.cumsum(np.minimum(spans, LONGEST_SPAN), axis=1), window)
    begins = np.zeros((len(tokens), window + 1), dtype=bool)  # a span, at a word of the row: they tile it
    np.put_along_axis(begins, ends, True, axis=1)
    tile = np.take_along_axis(_count(begins), words, axis=1)
    special = pieces.special[tokens]
    new = special.copy()  # a span ends at a special token
    new[:, 1:] |= special[:, :-1] | (tile[:, 1:] != tile[:, :-1])
    return _count(new)


def _count(begins: Flags) -> Integers:
    """How many begin at the positions of a row up to each, the first position not counted."""
    return np.cumsum(begins, axis=1) - begins[:, :1]
