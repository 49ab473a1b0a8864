"""Batches made ahead: while the model learns from one, another thread makes the next."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from lmlab.data.loaders.loader import Loader
from lmlab.objectives.objective import Augments, Batch, Objective


class Prefetcher:
    """Makes numbered batches in a thread; a batch is a pure function of the loader, the seed and its number."""

    def __init__(self, objective: Objective, loader: Loader, *, seed: int) -> None:
        self.objective, self.loader, self.seed = objective, loader, seed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._next: tuple[int, Future[Batch]] | None = None

    def batch(self, number: int, following: int) -> Batch:
        """Batch number `number`; then batch `following` is begun."""
        if self._next is None or self._next[0] != number:
            self._begin(number)
        assert self._next is not None
        batch = self._next[1].result()
        self._begin(following)
        return batch

    def _begin(self, number: int) -> None:
        self._next = number, self._thread.submit(make_training_batch, self.objective, self.loader, number, self.seed)

    def close(self) -> None:
        """End the thread, after the batch that it is making."""
        self._thread.shutdown(cancel_futures=True)


def make_batch(objective: Objective, loader: Loader, number: int, *, seed: int) -> Batch:
    """Batch number `number`, with its own random numbers."""
    return objective.batch(loader.batch(number), np.random.default_rng([seed, number]))


def make_training_batch(objective: Objective, loader: Loader, number: int, seed: int) -> Batch:
    """The same for training: augmented, by objectives that do it."""
    generator, raw = np.random.default_rng([seed, number]), loader.batch(number)
    return objective.batch(objective.augment(raw, generator) if isinstance(objective, Augments) else raw, generator)
