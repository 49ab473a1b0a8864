"""The five ways in which BART damages a text (Lewis et al. 2020, section 2.2), each for a whole batch at once.

A batch is `Ragged`: all its rows after each other, and their lengths. Each function gives a new one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SPAN = 3.0
"""The mean of the Poisson distribution from which the lengths of infilled spans come."""


class Ragged(NamedTuple):
    """Rows of different lengths, without padding."""

    tokens: NDArray[np.int64]  # [N], row after row
    lengths: NDArray[np.int64]  # [B], which sum to N

    @property
    def row(self) -> NDArray[np.int64]:
        """The row of each token."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @property
    def position(self) -> NDArray[np.int64]:
        """The position of each token in its row."""
        return np.arange(len(self.tokens)) - np.repeat(self.starts, self.lengths)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each row begins."""
        return np.cumsum(self.lengths) - self.lengths


def permute_sentences(rows: Ragged, begins: NDArray[np.bool_], generator: np.random.Generator) -> Ragged:
    """The sentences of each row in random order; `begins` [N] is true at the first token of each."""
    sentence = np.cumsum(begins | (rows.position == 0)) - 1
    key = generator.random(int(sentence[-1]) + 1 if len(sentence) else 0)
    order = np.lexsort((np.arange(len(sentence)), key[sentence], rows.row))
    return rows._replace(tokens=rows.tokens[order])


def rotate(rows: Ragged, fraction: float, generator: np.random.Generator) -> Ragged:
    """A fraction of the rows is rotated to begin at a token that is chosen at random."""
    chosen = generator.random(len(rows.lengths)) < fraction
    offset = chosen * (generator.random(len(rows.lengths)) * rows.lengths).astype(np.int64)
    length, row = rows.lengths, rows.row
    return rows._replace(tokens=rows.tokens[rows.starts[row] + (rows.position + offset[row]) % length[row]])


def delete(rows: Ragged, fraction: float, generator: np.random.Generator) -> Ragged:
    """Delete a fraction of the tokens; the model must find their positions."""
    kept = generator.random(len(rows.tokens)) >= fraction
    lengths = np.bincount(rows.row[kept], minlength=len(rows.lengths))
    return Ragged(rows.tokens[kept], lengths)


def mask(rows: Ragged, fraction: float, generator: np.random.Generator, *, token: int) -> Ragged:
    """With the mask `token` in place of a fraction of the tokens, as in BERT."""
    hidden = generator.random(len(rows.tokens)) < fraction
    return rows._replace(tokens=np.where(hidden, token, rows.tokens))


def infill(rows: Ragged, fraction: float, generator: np.random.Generator, *, token: int) -> Ragged:
    """With one mask `token` in place of each of some spans, which hold a fraction of the tokens together.

    The lengths of the spans come from Poisson(3), the last one cut so that the fraction is met (rounded up or down by
    chance). A span of no tokens inserts a mask. How many tokens are missing must be found out. All ways to lay the
    spans of a row, without overlap, are equally likely: a row of n tokens with k spans of m tokens is a sequence of
    n − m + k slots, and k of these are chosen.
    """
    hidden = np.floor(rows.lengths * fraction + generator.random(len(rows.lengths))).astype(np.int64)
    spans = _draw_spans(hidden, generator)
    number = (spans >= 0).sum(1)
    slots = Ragged(np.zeros(0, np.int64), rows.lengths - hidden + number)
    row = slots.row
    order = np.lexsort((generator.random(len(row)), row))
    rank = np.empty(len(row), np.int64)
    rank[order] = np.arange(len(row)) - np.repeat(slots.starts, slots.lengths)
    chosen = rank < number[row]
    taken = np.ones(len(row), np.int64)
    taken[chosen] = spans[row[chosen], rank[chosen]]
    tokens = np.full(len(row), token, np.int64)
    tokens[~chosen] = rows.tokens[(np.cumsum(taken) - taken)[~chosen]]
    return Ragged(tokens, slots.lengths)


def _draw_spans(hidden: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
    """Lengths of spans [B, K] that sum to `hidden` [B] in each row; −1 after the last span of a row."""
    columns = int(hidden.max(initial=0) / SPAN) + 8
    spans = generator.poisson(SPAN, (len(hidden), columns))
    while (spans.sum(1) < hidden).any():
        spans = np.concatenate([spans, generator.poisson(SPAN, spans.shape)], axis=1)
    before = np.cumsum(spans, axis=1) - spans
    left = hidden[:, None] - before
    return np.where(left > 0, np.minimum(spans, left), -1)
