"""Batches by token count: rows of like lengths together, so that little is padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray


class Buckets:
    """Which rows make batch number k, a pure function of the lengths, the settings and k.

    Rows are sorted by length, and cut into batches whose padded size, rows × longest row, is at most `tokens` (of each
    kind of length, where a row has several, as a pair of texts has). Rows of equal lengths change places from epoch to
    epoch, and the batches of an epoch come in a new order each time; every row comes once in an epoch. Since the sorted
    lengths are always the same, so is the number of batches.
    """

    def __init__(self, lengths: Sequence[NDArray[np.int64]], *, tokens: int, seed: int) -> None:
        self.lengths, self.tokens, self.seed = lengths, tokens, seed
        self._cuts = self._cut()
        self.count = len(self._cuts) - 1
        self._epoch: tuple[int, NDArray[np.int64], NDArray[np.int64]] | None = None

    def rows(self, step: int) -> NDArray[np.int64]:
        """The numbers of the rows of batch `step`."""
        epoch, place = divmod(step, self.count)
        kept = self._epoch  # read once and written once: threads may share a loader
        if kept is None or kept[0] != epoch:
            generator = np.random.default_rng([self.seed, epoch])
            kept = (epoch, self._sort(generator), generator.permutation(self.count))
            self._epoch = kept
        _, order, batches = kept
        which = batches[place]
        return order[self._cuts[which] : self._cuts[which + 1]]

    def _sort(self, generator: np.random.Generator) -> NDArray[np.int64]:
        """Rows by their last length, then by the others up and down in turn, so that neighbours are alike in all."""
        *others, last = self.lengths
        keys = [np.where(last % 2, -other, other) for other in others]
        return np.lexsort((generator.random(len(last)), *keys, last)).astype(np.int64)

    def _cut(self) -> list[int]:
        """Where each batch begins in the sorted rows, and where the last one ends."""
        order = self._sort(np.random.default_rng(0))
        longest_of = np.max([length[order] for length in self.lengths], axis=0).tolist()
        cuts, begin, longest = [0], 0, 0
        for place, length in enumerate(longest_of):
            longest = max(longest, length)
            if place > begin and longest * (place + 1 - begin) > self.tokens:
                cuts.append(place)
                begin, longest = place, length
        return [*cuts, len(longest_of)]


def in_batches(lengths: Sequence[int], *, tokens: int) -> Iterator[list[int]]:
    """The numbers of items that are read together, the longest first, so that little is padding."""
    group: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        if group and (len(group) + 1) * (lengths[group[0]] + 4) > tokens:
            yield group
            group = []
        group.append(number)
    if group:
        yield group
