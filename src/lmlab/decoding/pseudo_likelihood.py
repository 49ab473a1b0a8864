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

from lmlab.decoding.chain_rule import Nats
from lmlab.models.abilities import FillsMasks
from lmlab.progress import ReportProgress, check_cancelled
from lmlab.tokenizers.frames import Frame, collate

Chosen = NDArray[np.bool_]
LONGEST = 512
"""Tokens that are read at once by a model without a window: each is a pass over all of them."""


class MaskedWindow(NamedTuple):
    """A stretch of a document that is read at once, and the part of it whose tokens are scored there."""

    document: int
    start: int
    end: int
    first: int  # the first token of the document that is scored in this window
    last: int  # the one after the last


@torch.inference_mode()
def pseudo_score_tokens(
    model: FillsMasks,
    documents: Sequence[ArrayLike],
    *,
    frame: Frame,
    mask: int,
    only: Sequence[Chosen] | None = None,
    batch: int = 16,
    progress: ReportProgress | None = None,
) -> list[Nats]:
    """-log P of each token of each document given all others, in nats; `batch` windows' worth of tokens at once.

    Where `only` some tokens of each document are asked for, no other one is masked, and the others have 0.

    One that is longer than the model's window is read in windows that overlap by half, each in its `frame` and scoring
    its middle: a token sees at least a quarter of a window on either side, where the document has that much. Copies of
    a window with different masks are read side by side, and scores over the vocabulary are computed at the masks alone.
    """
    if batch < 1:
        raise ValueError(f"batch = {batch}: give at least 1")
    texts = [np.array(document, dtype=np.int64) for document in documents]
    results = [np.zeros(len(text)) for text in texts]
    around = frame.overhead("tokens", "a")
    longest = max(map(len, texts), default=0) + around
    window = min(longest, LONGEST) if model.window is None else model.window
    if window <= around:
        raise ValueError(f"the model reads at most {window} tokens, and [CLS] and [SEP] leave no room for a text")
    windows = [each for number, text in enumerate(texts) for each in cut(number, len(text), window - around)]
    framed = frame.rows([{"a": texts[each.document][each.start : each.end]} for each in windows])
    positions = [row.inputs["tokens"].positions("a") for row in framed]
    chosen = [np.ones(len(text), dtype=bool) for text in texts] if only is None else only
    done, total = 0, int(sum(each.sum() for each in chosen))
    for group in _batches(windows, chosen, batch * window, around):
        inputs = collate([framed[number] for number, _ in group])
        check_cancelled()
        every = torch.arange(len(group))
        at = torch.tensor([positions[number][token - windows[number].start] for number, token in group])
        targets = inputs["tokens"][every, at]
        inputs["tokens"][every, at] = mask
        moved = {name: part.to(model.device) for name, part in inputs.items()}
        hidden = model.read(**moved, at=at[:, None].to(model.device))[:, 0]
        nats = model.nll(hidden, targets.to(model.device)).double().cpu().numpy()
        for (number, token), value in zip(group, nats, strict=True):
            results[windows[number].document][token] = value
        done += len(group)
        if progress is not None:
            progress(done, total)
    return results


def cut(document: int, length: int, content: int) -> Iterator[MaskedWindow]:
    """Windows of at most `content` tokens over a document, each token scored in that in which it is most central."""
    if length <= content:
        if length:
            yield MaskedWindow(document, 0, length, 0, length)
        return
    stride = max(1, content // 2)
    starts = [*range(0, length - content, stride), length - content]
    middles = [(before + content + after) // 2 for before, after in pairwise(starts)]
    edges = [0, *middles, length]
    for start, (first, last) in zip(starts, pairwise(edges), strict=True):
        yield MaskedWindow(document, start, start + content, first, last)


def _batches(
    windows: list[MaskedWindow], chosen: Sequence[Chosen], room: int, around: int
) -> Iterator[list[tuple[int, int]]]:
    """The numbers of windows, each with a token of its document that is masked: at most `room` positions at once."""
    group: list[tuple[int, int]] = []
    longest = 0
    for number in sorted(range(len(windows)), key=lambda number: windows[number].start - windows[number].end):
        window = windows[number]
        for token in window.first + np.flatnonzero(chosen[window.document][window.first : window.last]):
            if group and (len(group) + 1) * longest > room:
                yield group
                group = []
            longest = longest if group else window.end - window.start + around
            group.append((number, int(token)))
    if group:
        yield group
