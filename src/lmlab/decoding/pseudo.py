"""Pseudo-log-likelihood: how well a model that reads both ways guesses each token from all the others.

    PLL(w_1 … w_n) = Σ_t log P(w_t | all tokens but w_t)          Salazar et al. 2020, equation 1

Each token is masked in turn. It is no probability of the text: the factors are not those of the chain rule, and every
token is seen while the others are guessed. So it is lower in bits than any left-to-right score, and not comparable
with one. Shapes: R rows, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from lmlab.decoding.scoring import Nats, Progress
from lmlab.models.abilities import FillsBlanks


class Window(NamedTuple):
    """A stretch of a document that is read at once, and the part of it whose tokens are scored there."""

    document: int
    start: int
    end: int
    first: int  # the first token of the document that is scored in this window
    last: int  # the one after the last


@torch.inference_mode()
def pseudo_score_tokens(
    model: FillsBlanks,
    documents: Sequence[ArrayLike],
    *,
    cls: int,
    sep: int,
    mask: int,
    batch: int = 16,
    progress: Progress | None = None,
) -> list[Nats]:
    """-log P of each token of each document given all others, in nats; `batch` windows' worth of tokens at once.

    A document stands between `cls` and `sep`. One that is longer than the model's window is read in windows that
    overlap by half, each scoring its middle: a token sees at least a quarter of a window on either side, where the
    document has that much. Copies of a window with different masks are read side by side, and scores over the
    vocabulary are computed at the masks alone.
    """
    if batch < 1:
        raise ValueError(f"batch = {batch}: give at least 1")
    texts = [np.array(document, dtype=np.int64) for document in documents]
    results = [np.zeros(len(text)) for text in texts]
    longest = max(map(len, texts), default=0) + 2
    room = batch * (longest if model.window is None else model.window)
    content = longest - 2 if model.window is None else model.window - 2
    if content < 1:
        raise ValueError(f"the model reads at most {model.window} tokens, and [CLS] and [SEP] leave no room for a text")
    windows = [window for number, text in enumerate(texts) for window in cut(number, len(text), content)]
    done, total = 0, sum(map(len, texts))
    for rows in _batches(windows, room):
        tokens, lengths, places = _masked(rows, texts, cls=cls, sep=sep)
        every = torch.arange(len(rows))
        targets = tokens[every, places]
        tokens[every, places] = mask
        tokens, lengths, at = (part.to(model.device) for part in (tokens, lengths, places[:, None]))
        hidden = model.read(tokens=tokens, lengths=lengths, at=at)[:, 0]
        nats = model.nll(hidden, targets.to(model.device)).double().cpu().numpy()
        for (window, token), value in zip(rows, nats, strict=True):
            results[window.document][token] = value
        done += len(rows)
        if progress is not None:
            progress(done, total)
    return results


def cut(document: int, length: int, content: int) -> Iterator[Window]:
    """Windows of at most `content` tokens over a document, each token scored in that in which it is most central."""
    if length <= content:
        if length:
            yield Window(document, 0, length, 0, length)
        return
    stride = max(1, content // 2)
    starts = [*range(0, length - content, stride), length - content]
    middles = [(before + content + after) // 2 for before, after in pairwise(starts)]
    edges = [0, *middles, length]
    for start, (first, last) in zip(starts, pairwise(edges), strict=True):
        yield Window(document, start, start + content, first, last)


Row = tuple[Window, int]
"""A window, and the token of its document that is masked in it."""


def _batches(windows: list[Window], room: int) -> Iterator[list[Row]]:
    """Rows in batches of at most `room` tokens, the longest first."""
    rows: list[Row] = []
    for window in sorted(windows, key=lambda window: window.start - window.end):
        for token in range(window.first, window.last):
            longest = rows[0][0].end - rows[0][0].start + 2 if rows else 0
            if rows and (len(rows) + 1) * longest > room:
                yield rows
                rows = []
            rows.append((window, token))
    if rows:
        yield rows


def _masked(rows: list[Row], texts: list[NDArray[np.int64]], *, cls: int, sep: int) -> tuple[Tensor, Tensor, Tensor]:
    """The tokens [R, T] of rows between [CLS] and [SEP], their lengths [R], and the place of the token to mask [R]."""
    sizes = np.array([window.end - window.start + 2 for window, _ in rows])
    tokens = np.full((len(rows), sizes.max()), sep)
    tokens[:, 0] = cls
    for row, (window, _) in zip(tokens, rows, strict=True):
        row[1 : window.end - window.start + 1] = texts[window.document][window.start : window.end]
    places = torch.tensor([token - window.start + 1 for window, token in rows])
    return torch.from_numpy(tokens), torch.from_numpy(sizes), places
