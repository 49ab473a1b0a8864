"""Batches of several languages by turns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmlab.data.loaders.loader import Loader, mean_units, rate_share

ROUND = 256
"""Batches after which every language has had its share, to within one batch; a multiple of it with more languages."""
TURNS = 4
"""Batches that a language of average share has in such a longer round, at least."""


class Mixed:
    """Batches of several languages by turns, each batch in one language, as often as its share says.

    A round of batches has each language its number of times, in an order drawn from the seed; so batch k and its
    number within its own language are known from k alone.
    """

    def __init__(self, loaders: Mapping[str, Loader], shares: Mapping[str, float], *, seed: int) -> None:
        self.names, self.loaders, self.seed = list(loaders), list(loaders.values()), seed
        self.round = ROUND if len(loaders) <= ROUND else ROUND * math.ceil(TURNS * len(loaders) / ROUND)
        self.counts = apportion([shares[name] for name in self.names], self.round)
        first = self.loaders[0]
        self.batch_size, self.window = first.batch_size, first.window
        self.steps_per_epoch = float(sum(loader.steps_per_epoch for loader in self.loaders))
        self._order: tuple[int, NDArray[np.int64]] | None = None

    @property
    def mixture(self) -> list[tuple[float, Loader]]:
        """The loaders that this one is made of, and how much of the run each gives."""
        return list(zip((self.counts / self.round).tolist(), self.loaders, strict=True))

    @property
    def units_per_step(self) -> dict[str, float]:
        return mean_units(self.mixture)

    def plan(self, total_steps: int | None) -> None:
        """Each language is told how many of the batches are its own."""
        for language, loader in enumerate(self.loaders):
            loader.plan(None if total_steps is None else self._before(language, total_steps))

    def batch(self, step: int) -> Any:
        language, number = self._place(step)
        return self.loaders[language].batch(number)

    def restarts(self, step: int) -> bool:
        """True also where the language changes: a state that was carried is of another language."""
        language, number = self._place(step)
        return step == 0 or self._place(step - 1)[0] != language or self.loaders[language].restarts(number)

    def rate_share(self, step: int) -> float:
        language, number = self._place(step)
        return rate_share(self.loaders[language], number)

    def language(self, step: int) -> str:
        """The language of batch `step`."""
        return self.names[self._place(step)[0]]

    def _place(self, step: int) -> tuple[int, int]:
        """The number of the language of a batch, and the number of the batch within that language."""
        turn, place = divmod(step, self.round)
        language = int(self._order_of(turn)[place])
        return language, self._before(language, step)

    def _before(self, language: int, step: int) -> int:
        """How many of the batches before `step` are in a language."""
        turn, place = divmod(step, self.round)
        in_this_round = np.count_nonzero(self._order_of(turn)[:place] == language)
        return turn * int(self.counts[language]) + int(in_this_round)

    def _order_of(self, turn: int) -> NDArray[np.int64]:
        """The languages of a round; kept as one value, since training and the making of batches are two threads."""
        kept = self._order
        if kept is None or kept[0] != turn:
            slots = np.repeat(np.arange(len(self.counts)), self.counts)
            kept = (turn, np.random.default_rng([self.seed, turn]).permutation(slots))
            self._order = kept
        return kept[1]


def apportion(shares: Sequence[float], slots: int) -> NDArray[np.int64]:
    """Whole numbers that sum to `slots` and are as close to the shares as can be, none of them zero."""
    if slots < len(shares):
        raise ValueError(f"{slots} slots are too few for {len(shares)} shares of at least one each")
    exact = np.array(shares) * slots
    counts: NDArray[np.int64] = np.maximum(1, np.floor(exact)).astype(np.int64)
    while counts.sum() < slots:
        counts[np.argmax(exact - counts)] += 1
    while counts.sum() > slots:
        counts[np.argmax(np.where(counts > 1, counts - exact, -math.inf))] -= 1
    return counts
