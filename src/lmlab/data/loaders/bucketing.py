"""Batches by token count: rows of similar lengths together, so that there is little padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


class Buckets:
    """The rows of batch number k, a pure function of the lengths, the settings and k.

    Rows are sorted by length and cut into batches whose padded size, rows × longest row, is at most `tokens` (for each
    kind of length, if a row has several, as a pair of texts has). Rows of equal lengths swap places from epoch to
    epoch, and the batches of an epoch come in a new order each time; every row comes once in an epoch. The sorted
    lengths are always the same, so the number of batches is, too.
    """

    def __init__(self, lengths: Sequence[NDArray[np.int64]], *, tokens: int, seed: int) -> None:
        self.lengths, self.tokens, self.seed = lengths, tokens, seed
        self._cuts = self._cut()
        self.count = len(self._cuts) - 1
        self._epoch = lru_cache(1)(self._make_epoch)

    def rows(self, step: int) -> NDArray[np.int64]:
        """Return the numbers of the rows of batch `step`."""
        epoch, position = divmod(step, self.count)
        order, batches = self._epoch(epoch)
        which = batches[position]
        return order[self._cuts[which] : self._cuts[which + 1]]

    def _make_epoch(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the sorted rows and the order of the batches."""
        generator = np.random.default_rng([self.seed, epoch])
        return self._sort(generator), generator.permutation(self.count)

    def _sort(self, generator: np.random.Generator) -> NDArray[np.int64]:
        """Sort rows by their last length, then by the others up and down in turn, so that neighbours are similar."""
        *others, last = self.lengths
        keys = [np.where(last % 2, -other, other) for other in others]
        return np.lexsort((generator.random(len(last)), *keys, last)).astype(np.int64)

    def _cut(self) -> list[int]:
        """Return where each batch begins in the sorted rows, and where the last one ends."""
        order = self._sort(np.random.default_rng(0))
        longest_of = np.max([length[order] for length in self.lengths], axis=0).tolist()
        cuts, begin, longest = [0], 0, 0
        for position, length in enumerate(longest_of):
            longest = max(longest, length)
            if position > begin and longest * (position + 1 - begin) > self.tokens:
                cuts.append(position)
                begin, longest = position, length
        return [*cuts, len(longest_of)]


def in_batches(lengths: Sequence[int], *, tokens: int) -> Iterator[list[int]]:
    """Yield the numbers of items that form a batch, the longest items first, so that there is little padding."""
    group: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        if group and (len(group) + 1) * (lengths[group[0]] + 4) > tokens:
            yield group
            group = []
        group.append(number)
    if group:
        yield group
