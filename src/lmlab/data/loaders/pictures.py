"""Batches of rows with pictures: every epoch visits each row once, in a new order."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data.corpora.pictures.split import PictureSplit
from lmlab.data.loaders.loader import Loader


class PictureRows(NamedTuple):
    """Some rows of a split with their pictures."""

    split: PictureSplit
    rows: NDArray[np.int64]  # [B] numbers of rows: of their labels, texts and regions
    pixels: NDArray[np.uint8]  # [B, H, W, C]
    longest: int  # the most tokens of a text, special tokens included


class PictureLoader(Loader):
    """Numbered batches of rows; batch k is a pure function of the split, the seed and k."""

    window = 1

    def __init__(self, split: PictureSplit, *, batch: int, longest: int, seed: int) -> None:
        self.split, self.longest, self.seed = split, longest, seed
        self.batch_size = min(batch, split.size)
        self.count = -(-split.size // self.batch_size)
        self.steps_per_epoch = float(self.count)
        self._order = lru_cache(2)(self._shuffle)

    @property
    def units_per_step(self) -> dict[str, float]:
        return {"images": self.split.size / self.count}

    def batch(self, step: int) -> PictureRows:
        epoch, position = divmod(step, self.count)
        rows = self._order(epoch)[position * self.batch_size : (position + 1) * self.batch_size]
        return PictureRows(self.split, rows, self.split.pixels[self.split.pictures[rows]], self.longest)

    def _shuffle(self, epoch: int) -> NDArray[np.int64]:
        return np.random.default_rng([self.seed, epoch]).permutation(self.split.size)
