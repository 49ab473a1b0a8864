"""Batches of labelled examples: every epoch visits each once, in a new order, items of similar length together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmlab.data.loaders.loader import Loader

POOLED = 16
"""Batches whose items are sorted by length together, before they are cut: similar lengths need little padding."""


class ExampleLoader(Loader):
    """Numbered batches of items; batch k is a pure function of them, the seed and k.

    `tokens` gives the length of an item in tokens; None where items have no tokens.
    """

    def __init__(
        self,
        items: Sequence[Any],
        *,
        batch: int,
        window: int,
        seed: int,
        tokens: Callable[[Any], int] | None = None,
    ) -> None:
        if not items:
            raise ValueError("there are no examples to learn from")
        self.items, self.seed, self.window = items, seed, window
        self.batch_size = min(batch, len(items))
        self.count = -(-len(items) // self.batch_size)
        self.steps_per_epoch = float(self.count)
        self.has_tokens = tokens is not None
        self.lengths = np.array([1 if tokens is None else tokens(item) for item in items])
        self._batches = lru_cache(1)(self._make_batches)

    @property
    def mean_length(self) -> float:
        """The mean number of tokens of an item."""
        return float(self.lengths.mean())

    @property
    def units_per_step(self) -> dict[str, float]:
        tokens = {"tokens": float(self.lengths.sum()) / self.count} if self.has_tokens else {}
        return {"examples": len(self.items) / self.count, **tokens}

    def batch(self, step: int) -> list[Any]:
        epoch, position = divmod(step, self.count)
        return [self.items[number] for number in self._batches(epoch)[position]]

    def _make_batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """Return the batches of an epoch, as numbers of items."""
        generator = np.random.default_rng([self.seed, epoch])
        order = generator.permutation(len(self.items))
        size = POOLED * self.batch_size
        pools = [order[first : first + size] for first in range(0, len(order), size)]
        ordered = np.concatenate([each[np.argsort(self.lengths[each], kind="stable")] for each in pools])
        cuts = range(0, len(ordered), self.batch_size)
        batches = [ordered[first : first + self.batch_size] for first in cuts]
        return [batches[number] for number in generator.permutation(len(batches))]


class GroupedLoader(ExampleLoader):
    """The same, with the items of a group together: all questions about one picture, which is then read once."""

    def __init__(
        self,
        items: Sequence[Any],
        *,
        batch: int,
        window: int,
        seed: int,
        group: Callable[[Any], Hashable],
        tokens: Callable[[Any], int] | None = None,
    ) -> None:
        super().__init__(items, batch=batch, window=window, seed=seed, tokens=tokens)
        groups: dict[Hashable, list[int]] = {}
        for number, item in enumerate(items):
            groups.setdefault(group(item), []).append(number)
        self.groups = list(groups.values())

    def _make_batches(self, epoch: int) -> list[NDArray[np.int64]]:
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.groups))
        numbers = np.concatenate([self.groups[group] for group in order])
        return [numbers[first : first + self.batch_size] for first in range(0, len(numbers), self.batch_size)]
