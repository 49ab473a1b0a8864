"""A text and its translation in one row, `[CLS] x [SEP] y [SEP]`: what translation language modelling reads."""

from __future__ import annotations

import numpy as np

from lmlab.data.batches.bucketing import Buckets, gather_rows
from lmlab.data.batches.rows import Rows, SpecialTokens
from lmlab.data.corpora.pairs import PairSplit


class TranslationRows:
    """Pairs of a source and its target, so that a blank in one can be filled by looking at the other.

    Conneau & Lample 2019 (XLM), section 3.4: the positions of the target begin anew, and the segment tells the
    language. A batch has as many places as `batch` rows of the `window`; pairs too long for a row are left out.
    """

    def __init__(self, data: PairSplit, *, special: SpecialTokens, batch: int, window: int, seed: int) -> None:
        source, target = (length - 1 for length in data.lengths)  # without the boundary
        kept = np.flatnonzero(source + target + 3 <= window)
        if not len(kept):
            raise ValueError(f"none of the {len(data):,} pairs fits into a row of {window} tokens; raise model.window")
        self.data, self.special, self.seed = data, special, seed
        self._lengths = [source[kept], target[kept]]
        self._starts = [np.asarray(side.documents)[kept] for side in (data.source, data.target)]
        self._kept = kept
        whole = source[kept] + target[kept] + 3
        self._buckets = Buckets([whole], tokens=batch * window, seed=seed)
        self.batch_size = max(1, round(len(kept) / self._buckets.count))
        self.window = max(4, round(float(whole.mean())))
        self.steps_per_epoch = float(self._buckets.count)
        self.units_per_step = {"tokens": float(whole.sum() / self._buckets.count)}

    def batch(self, step: int) -> Rows:
        chosen = self._buckets.rows(step)
        (a, b), (first, second) = ([each[chosen] for each in two] for two in (self._lengths, self._starts))
        sides = (self.data.source.tokens, first, a), (self.data.target.tokens, second, b)
        x, y = (
            gather_rows(np.asarray(tokens), starts, sizes, fill=self.special.pad) for tokens, starts, sizes in sides
        )
        lengths = a + b + 3
        places = np.arange(int(lengths.max()))[None]
        middle = (a + 1)[:, None]  # the place of the first [SEP]
        later = places - middle - 1  # the place in the target
        in_target = (later >= 0) & (later < b[:, None])
        tokens = np.full((len(chosen), places.shape[1]), self.special.pad, dtype=np.int64)
        tokens[:, 0] = self.special.cls
        in_source = (places >= 1) & (places < middle)
        tokens[in_source] = x[np.arange(x.shape[1]) < a[:, None]]
        tokens[in_target] = y[np.arange(y.shape[1]) < b[:, None]]
        tokens[(places == middle) | (later == b[:, None])] = self.special.sep
        segments = (places > middle).astype(np.int64)
        identity = np.stack([np.full(len(chosen), self.seed), self._kept[chosen]], axis=1)
        padded = int(lengths.min()) < places.shape[1]
        return Rows(
            tokens,
            identity,
            segments=segments,
            lengths=lengths if padded else None,
            positions=np.where(segments == 1, np.maximum(later, 0), places),
        )

    def restarts(self, step: int) -> bool:
        return True

    def plan(self, total_steps: int | None) -> None: ...
