"""Batches of several languages, or of several kinds of data, in turn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmlab.data.loaders.loader import CombinedLoader, Loader

ROUND = 256
"""Batches after which every part has had its fraction, within one batch; a multiple of it for many parts."""
TURNS = 4
"""The least number of batches that a part of average fraction has in such a longer round."""


class MixedLoader(CombinedLoader):
    """Batches of several parts in turn, each batch from one part, as often as the part's fraction says.

    The parts are languages or kinds of data.

    A round of batches has each part a fixed number of times, in an order sampled with the seed. So the part of
    batch k, and its number within that part, follow from k alone.
    """

    def __init__(self, loaders: Mapping[str, Loader], fractions: Mapping[str, float], *, seed: int) -> None:
        self.names, self.loaders, self.seed = list(loaders), list(loaders.values()), seed
        self.round = ROUND if len(loaders) <= ROUND else ROUND * math.ceil(TURNS * len(loaders) / ROUND)
        self.counts = apportion([fractions[name] for name in self.names], self.round)
        first = self.loaders[0]
        self.batch_size, self.window = first.batch_size, first.window
        self.continuous = all(loader.continuous for loader in self.loaders)
        self.steps_per_epoch = float(sum(loader.steps_per_epoch for loader in self.loaders))
        self._order = lru_cache(1)(self._make_order)

    @property
    def parts(self) -> list[tuple[float, Loader]]:
        return list(zip((self.counts / self.round).tolist(), self.loaders, strict=True))

    @property
    def most_lanes(self) -> int:
        return min(loader.most_lanes for loader in self.loaders)

    def plan(self, total_steps: int | None) -> None:
        """Pass on to each part how many of the batches are its own."""
        for part, loader in enumerate(self.loaders):
            loader.plan(None if total_steps is None else self._before(part, total_steps))

    def batch(self, step: int) -> Any:
        part, number = self._find(step)
        return self.loaders[part].batch(number)

    def restarts(self, step: int) -> bool:
        """True also where the part changes: the carried state is of another part."""
        part, number = self._find(step)
        return step == 0 or self._find(step - 1)[0] != part or self.loaders[part].restarts(number)

    def rate_factor(self, step: int) -> float:
        part, number = self._find(step)
        return self.loaders[part].rate_factor(number)

    def part(self, step: int) -> str:
        """Return the part of batch `step`."""
        return self.names[self._find(step)[0]]

    def _find(self, step: int) -> tuple[int, int]:
        """Return the number of the part of a batch, and the batch's number within that part."""
        turn, position = divmod(step, self.round)
        part = int(self._order(turn)[position])
        return part, self._before(part, step)

    def _before(self, part: int, step: int) -> int:
        """Return how many of the batches before `step` are of a part."""
        turn, position = divmod(step, self.round)
        in_this_round = np.count_nonzero(self._order(turn)[:position] == part)
        return turn * int(self.counts[part]) + int(in_this_round)

    def _make_order(self, turn: int) -> NDArray[np.int64]:
        """Return the parts of a round, in order."""
        slots = np.repeat(np.arange(len(self.counts)), self.counts)
        return np.random.default_rng([self.seed, turn]).permutation(slots)


class Mapped(Loader):
    """The batches of another loader, whose tokens get other ids."""

    def __init__(self, inner: Loader, ids: NDArray[np.int64]) -> None:
        self.inner, self.ids = inner, torch.from_numpy(ids)
        self.batch_size, self.window = inner.batch_size, inner.window
        self.steps_per_epoch, self.continuous = inner.steps_per_epoch, inner.continuous

    @property
    def units_per_step(self) -> Mapping[str, float]:
        return self.inner.units_per_step

    def batch(self, step: int) -> Tensor:
        found: Tensor = self.ids[self.inner.batch(step)]
        return found

    def restarts(self, step: int) -> bool:
        return self.inner.restarts(step)

    def plan(self, total_steps: int | None) -> None:
        self.inner.plan(total_steps)

    def rate_factor(self, step: int) -> float:
        return self.inner.rate_factor(step)


def apportion(fractions: Sequence[float], slots: int) -> NDArray[np.int64]:
    """Return whole numbers that sum to `slots` and are as close to the fractions as possible, none of them zero."""
    if slots < len(fractions):
        raise ValueError(f"{slots} slots are too few for {len(fractions)} fractions of at least one each")
    exact = np.array(fractions) * slots
    counts: NDArray[np.int64] = np.maximum(1, np.floor(exact)).astype(np.int64)
    while counts.sum() < slots:
        counts[np.argmax(exact - counts)] += 1
    while counts.sum() > slots:
        counts[np.argmax(np.where(counts > 1, counts - exact, -math.inf))] -= 1
    return counts
