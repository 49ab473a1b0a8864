"""A text and its translation in one row, as the frame has two texts: what translation language modelling reads."""

from __future__ import annotations

import numpy as np

from lmlab.data.corpora.pairs import PairSplit
from lmlab.data.loaders.bucketing import Buckets
from lmlab.data.loaders.framing import Part, frame_rows
from lmlab.data.loaders.rows import Rows
from lmlab.tokenizers.frames import Frame


class TranslationRows:
    """Pairs of a source and its target, so that a blank in one can be filled by looking at the other.

    Conneau & Lample 2019 (XLM), section 3.4: the positions of the target begin anew, and the segment tells the
    language. A batch has as many places as `batch` rows of the `window`; pairs too long for a row are left out.
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
        self.units_per_step = {"tokens": float(whole.sum() / self._buckets.count)}

    def batch(self, step: int) -> Rows:
        chosen = self._buckets.rows(step)
        sides = zip((self.data.source, self.data.target), self._starts, self._lengths, strict=True)
        a, b = (Part(np.asarray(side.tokens), starts[chosen], lengths[chosen]) for side, starts, lengths in sides)
        rows = frame_rows(self.frame, self.frame.reads, {"a": a, "b": b}, pad=self.pad)
        places, second = np.arange(rows.tokens.shape[1]), rows.begin_of("b")[:, None]
        return Rows(
            rows.tokens,
            np.stack([np.full(len(chosen), self.seed), self._kept[chosen]], axis=1),
            segments=rows.segments,
            lengths=rows.lengths if int(rows.lengths.min()) < len(places) else None,
            positions=np.where(places < second, places, places - second),
        )

    def restarts(self, step: int) -> bool:
        return True

    def plan(self, total_steps: int | None) -> None: ...
