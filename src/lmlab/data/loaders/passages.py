"""Batches of passages of plain text, by token count: whole documents, or pieces of long ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data.corpora.corpus import TextSplit
from lmlab.data.loaders.bucketing import Buckets
from lmlab.data.loaders.loader import Loader
from lmlab.data.loaders.sentences import find_sentences
from lmlab.tokenizers.pieces import Pieces


class PassageRows(NamedTuple):
    """A batch of passages as flat arrays."""

    tokens: NDArray[np.int64]  # [N], row after row, without boundaries
    lengths: NDArray[np.int64]  # [B], which sum to N
    begins: NDArray[np.bool_] | None  # [N], true where a sentence begins; None if not asked for


class Passages(Loader):
    """Shuffled passages of plain text: whole documents, long ones cut into pieces; never two documents in one.

    With the `around` special tokens of its frame, a passage has at most `longest` tokens, and a batch at most `tokens`
    positions. If the `pieces` of the vocabulary are given, sentences are found.
    """

    def __init__(
        self, data: TextSplit, *, around: int, tokens: int, longest: int, seed: int, pieces: Pieces | None = None
    ) -> None:
        size = min(tokens, longest) - around
        if size < 1:
            raise ValueError(
                f"rows of {size + around} tokens have no room for text besides {around} special token(s); raise "
                f"train.window"
            )
        starts = np.asarray(data.documents)
        lengths = np.diff(starts, append=len(data.tokens)) - 1
        parts = -(-lengths // size)
        nth = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
        self._tokens: NDArray[np.integer] = np.asarray(data.tokens)
        self._begins: NDArray[np.bool_] | None = None
        if pieces is not None:
            self._begins = np.zeros(len(self._tokens), bool)
            self._begins[find_sentences(self._tokens, starts, pieces).starts] = True
        self._starts = np.repeat(starts, parts) + size * nth
        self._lengths = np.minimum(size, np.repeat(lengths, parts) - size * nth)
        self._rows = self._lengths + around
        self._buckets = Buckets([self._rows], tokens=tokens, seed=seed)
        self.steps_per_epoch = float(self._buckets.count)
        self.batch_size = max(1, round(len(self._lengths) / self._buckets.count))
        self.window = max(1, round(float(self._rows.mean())))

    @property
    def units_per_step(self) -> dict[str, float]:
        return {"tokens": float(self._rows.sum() / self._buckets.count)}

    def batch(self, step: int) -> PassageRows:
        rows = self._buckets.rows(step)
        lengths = self._lengths[rows]
        ends = np.cumsum(lengths)
        positions = np.repeat(self._starts[rows] - ends + lengths, lengths) + np.arange(ends[-1])
        begins = None if self._begins is None else self._begins[positions]
        return PassageRows(self._tokens[positions].astype(np.int64), lengths, begins)
