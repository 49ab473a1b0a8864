"""Batches of labelled examples: every epoch visits each once, in a new order, rows of like length together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

POOLED = 16
"""Batches whose examples are sorted by length before they are cut: rows of like length waste little on padding."""


class ExampleLoader:
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
        self._epoch: tuple[int, list[NDArray[np.int64]]] | None = None

    @property
    def mean_length(self) -> float:
        """Tokens of an item, on average."""
        return float(self.lengths.mean())

    @property
    def units_per_step(self) -> dict[str, float]:
        tokens = {"tokens": float(self.lengths.sum()) / self.count} if self.has_tokens else {}
        return {"examples": len(self.items) / self.count, **tokens}

    def batch(self, step: int) -> list[Any]:
        epoch, place = divmod(step, self.count)
        return [self.items[number] for number in self._batches(epoch)[place]]

    def restarts(self, step: int) -> bool:
        return True

    def plan(self, total_steps: int | None) -> None: ...

    def _batches(self, epoch: int) -> list[NDArray[np.int64]]:
        """The batches of an epoch; kept as one value, so that threads may share a loader."""
        kept = self._epoch
        if kept is None or kept[0] != epoch:
            generator = np.random.default_rng([self.seed, epoch])
            order = generator.permutation(len(self.items))
            pools = [
                order[first : first + POOLED * self.batch_size]
                for first in range(0, len(order), POOLED * self.batch_size)
            ]
            ordered = np.concatenate([each[np.argsort(self.lengths[each], kind="stable")] for each in pools])
            cuts = range(0, len(ordered), self.batch_size)
            batches = [ordered[first : first + self.batch_size] for first in cuts]
            kept = (epoch, [batches[number] for number in generator.permutation(len(batches))])
            self._epoch = kept
        return kept[1]
