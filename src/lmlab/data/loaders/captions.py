"""Batches of pictures with their captions: every epoch visits each pair once, in a new order."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from lmlab.data.loaders.loader import Loader


class CaptionedPictures(Protocol):
    """A split of pictures with captions (data/corpora/pictures/split.py)."""

    @property
    def size(self) -> int:
        """The number of pairs."""

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """The distinct pictures [P, H, W, C]."""

    @property
    def pictures(self) -> NDArray[np.int64]:
        """The number of the picture of each pair [N]."""

    def caption(self, row: int) -> NDArray[np.integer]:
        """The tokens of the caption of a pair, without special tokens."""


class CaptionBatch(NamedTuple):
    """Some of the pairs."""

    pixels: NDArray[np.uint8]  # [B, H, W, C]
    captions: list[NDArray[np.integer]]  # tokens, without special tokens
    pictures: NDArray[np.int64]  # [B], the number of each picture in its split
    window: int  # the most tokens of a caption, special tokens included


class CaptionLoader(Loader):
    """Numbered batches of pairs; batch k is a pure function of the data, the seed and k.

    An epoch is divided evenly, so that batches differ by one pair at most: a contrastive loss depends on their size.
    """

    def __init__(self, data: CaptionedPictures, *, batch: int, window: int, seed: int) -> None:
        if data.size < 2:
            raise ValueError(f"{data.size} pairs of a picture and a caption: a contrastive loss needs at least two")
        self.data, self.window, self.seed = data, window, seed
        self.batch_size = min(batch, data.size)
        self.count = -(-data.size // self.batch_size)
        self.steps_per_epoch = float(self.count)
        self._batches = lru_cache(2)(self._make_batches)

    @property
    def units_per_step(self) -> dict[str, float]:
        return {"pairs": self.data.size / self.count}

    def batch(self, step: int) -> CaptionBatch:
        epoch, position = divmod(step, self.count)
        rows = self._batches(epoch)[position]
        pictures = np.asarray(self.data.pictures[rows])
        captions = [self.data.caption(row) for row in rows.tolist()]
        return CaptionBatch(self.data.pixels[pictures], captions, pictures, self.window)

    def _make_batches(self, epoch: int) -> list[NDArray[np.int64]]:
        order = np.random.default_rng([self.seed, epoch]).permutation(self.data.size)
        return list(np.array_split(order, self.count))
