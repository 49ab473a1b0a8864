"""Batches of pairs of a source and a target text, by token count."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data.corpora.pairs import PairSplit
from lmlab.data.loaders.bucketing import Buckets
from lmlab.data.loaders.framing import FlatTexts, frame_rows
from lmlab.data.loaders.loader import Loader
from lmlab.data.loaders.rows import RowLoader, Rows
from lmlab.data.readers.text import TextWarning
from lmlab.tokenizers.frames import Frame


class PairRows(NamedTuple):
    """A batch of pairs in their frame."""

    source: NDArray[np.int64]  # [B, S], each row x1 .. xn b, and padding
    source_lengths: NDArray[np.int64]  # [B], n + 1
    target: NDArray[np.int64]  # [B, T + 1], each row b y1 .. ym b, and padding
    target_lengths: NDArray[np.int64]  # [B], m + 1: the predicted tokens, all but the first


def frame_pairs(frame: Frame, source: FlatTexts, target: FlatTexts, *, pads: tuple[int, int]) -> PairRows:
    """Return sources and targets in their frame, padded at their ends."""
    sources = frame_rows(frame, "source", {"a": source}, pad=pads[0])
    targets = frame_rows(frame, "tokens", {"b": target}, pad=pads[1])
    return PairRows(sources.tokens, sources.lengths, targets.tokens, targets.lengths - 1)


def pair_overhead(frame: Frame) -> tuple[int, int]:
    """Return how many special tokens are read with a source, and how many are predicted with a target."""
    return frame.overhead("source", "a"), frame.overhead("tokens", "b") - 1


class PairBatches(Loader):
    """Shuffled pairs in batches of at most `tokens` positions per side, padding included.

    Pairs with more than `longest` tokens on a side (special tokens included) are left out with a warning. A budget
    counts the tokens of both sides, without padding.
    """

    def __init__(self, data: PairSplit, *, frame: Frame, tokens: int, longest: int | None = None, seed: int) -> None:
        source, target = (lengths + more for lengths, more in zip(data.lengths, pair_overhead(frame), strict=True))
        limit = min(tokens, tokens if longest is None else longest)
        kept = np.flatnonzero(np.maximum(source, target) <= limit)
        if len(kept) < len(source):
            _warn_of_dropped(len(source) - len(kept), len(source), limit)
        self.frame, self._kept, self._data = frame, kept, data
        self._pads = int(data.source.tokens[0]), int(data.target.tokens[0])  # padding is never read
        self._lengths = [source[kept], target[kept]]
        self._buckets = Buckets(self._lengths, tokens=tokens, seed=seed)
        self.steps_per_epoch = float(self._buckets.count)
        self.batch_size = max(1, round(len(kept) / self._buckets.count))
        self.window = max(1, round(float(self._lengths[1].mean())))

    @property
    def units_per_step(self) -> dict[str, float]:
        """`targets` are the predicted tokens."""
        source, target = (float(lengths.sum() / self._buckets.count) for lengths in self._lengths)
        return {"tokens": source + target, "targets": target}

    def batch(self, step: int) -> PairRows:
        rows = self._kept[self._buckets.rows(step)]
        source, target = (
            FlatTexts(np.asarray(side.tokens), np.asarray(side.documents)[rows], lengths[rows])
            for side, lengths in zip((self._data.source, self._data.target), self._data.lengths, strict=True)
        )
        return frame_pairs(self.frame, source, target, pads=self._pads)


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


class TranslationRows(RowLoader):
    """A source and its target in one row, so that a mask in one can be filled by reading the other.

    Translation language modelling, Conneau & Lample 2019 (XLM), section 3.4: the positions of the target start at 0
    again, and the segment is the language. A batch has at most as many positions as `batch` rows of the `window`; pairs
    too long for a row are left out.
    """

    def __init__(self, data: PairSplit, *, frame: Frame, pad: int, batch: int, window: int, seed: int) -> None:
        source, target = data.lengths
        around = frame.overhead(frame.reads, "ab")
        kept = np.flatnonzero(source + target + around <= window)
        if not len(kept):
            raise ValueError(f"none of the {len(data):,} pairs fits into a row of {window} tokens; raise model.window")
        self.data, self.frame, self.pad, self.seed = data, frame, pad, seed
        self._lengths = [source[kept], target[kept]]
        self._starts = [np.asarray(side.documents)[kept] for side in (data.source, data.target)]
        self._kept = kept
        whole = source[kept] + target[kept] + around
        self._buckets = Buckets([whole], tokens=batch * window, seed=seed)
        self.batch_size = max(1, round(len(kept) / self._buckets.count))
        self.window = max(4, round(float(whole.mean())))
        self.steps_per_epoch = float(self._buckets.count)
        self._tokens = float(whole.sum())

    @property
    def units_per_step(self) -> dict[str, float]:
        return {"tokens": self._tokens / self._buckets.count}

    def batch(self, step: int) -> Rows:
        chosen = self._buckets.rows(step)
        sides = zip((self.data.source, self.data.target), self._starts, self._lengths, strict=True)
        a, b = (FlatTexts(np.asarray(side.tokens), starts[chosen], lengths[chosen]) for side, starts, lengths in sides)
        rows = frame_rows(self.frame, self.frame.reads, {"a": a, "b": b}, pad=self.pad)
        positions, second = np.arange(rows.tokens.shape[1]), rows.begin_of("b")[:, None]
        return Rows(
            rows.tokens,
            np.stack([np.full(len(chosen), self.seed), self._kept[chosen]], axis=1),
            segments=rows.segments,
            lengths=rows.lengths if int(rows.lengths.min()) < len(positions) else None,
            positions=np.where(positions < second, positions, positions - second),
        )
