"""Batches of pairs of a source and a target text, by token count."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data.batches.bucketing import Buckets, gather_rows
from lmlab.data.corpora.pairs import PairSplit
from lmlab.data.reading.text import TextWarning


class PairRows(NamedTuple):
    """The raw material of a batch of pairs."""

    source: NDArray[np.int64]  # [B, S], each row x1 .. xn b, and padding
    source_lengths: NDArray[np.int64]  # [B], n + 1
    target: NDArray[np.int64]  # [B, T + 1], each row b y1 .. ym b, and padding
    target_lengths: NDArray[np.int64]  # [B], m + 1: the tokens that are predicted


class PairBatches:
    """Shuffled pairs in batches of at most `tokens` places per side, padding included.

    Pairs with more than `longest` tokens on a side (the boundary included) are left out, and told of. A budget counts
    the tokens of both sides, padding left out.
    """

    def __init__(self, data: PairSplit, *, tokens: int, longest: int | None = None, seed: int) -> None:
        source, target = data.lengths
        limit = min(tokens, tokens if longest is None else longest)
        kept = np.flatnonzero(np.maximum(source, target) <= limit)
        if len(kept) < len(source):
            _warn_of_dropped(len(source) - len(kept), len(source), limit)
        self._source, self._target = (np.asarray(side.tokens) for side in (data.source, data.target))
        self._starts = [np.asarray(side.documents)[kept] for side in (data.source, data.target)]
        self._lengths = [source[kept], target[kept]]
        self._buckets = Buckets(self._lengths, tokens=tokens, seed=seed)
        self.steps_per_epoch = float(self._buckets.count)
        self.batch_size = max(1, round(len(kept) / self._buckets.count))
        self.window = max(1, round(float(self._lengths[1].mean())))

    @property
    def units_per_step(self) -> dict[str, float]:
        """`targets` are those of the tokens that are predicted."""
        source, target = (float(lengths.sum() / self._buckets.count) for lengths in self._lengths)
        return {"tokens": source + target, "targets": target}

    def batch(self, step: int) -> PairRows:
        rows = self._buckets.rows(step)
        (source_starts, target_starts), (source, target) = (
            [each[rows] for each in two] for two in (self._starts, self._lengths)
        )
        return PairRows(
            gather_rows(self._source, source_starts, source, fill=int(self._source[0])),
            source,
            gather_rows(self._target, target_starts - 1, target + 1, fill=int(self._target[0])),
            target,
        )

    def restarts(self, step: int) -> bool:
        return True

    def plan(self, total_steps: int | None) -> None: ...


def _warn_of_dropped(dropped: int, total: int, limit: int) -> None:
    if dropped == total:
        raise ValueError(
            f"all {total:,} pairs have more than {limit} tokens on a side, the most that a row may have; "
            f"raise train.window (or model.window, where the model has one)"
        )
    warnings.warn(
        f"{dropped:,} of {total:,} pairs are left out: they have more than {limit} tokens on a side, the most that a "
        f"row may have (train.window, or what the model holds)",
        TextWarning,
        stacklevel=4,
    )
