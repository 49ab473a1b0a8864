"""Batches made ahead: while the model learns from one, another thread makes the next."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from lmlab.data.loaders.loader import Loader
from lmlab.objectives.objective import Batch, Objective


class Prefetcher:
    """Batch number k of an objective, a pure function of the loader, the seed and k; the one after it is begun."""

    def __init__(self, objective: Objective, loader: Loader, *, seed: int) -> None:
        self.objective, self.loader, self.seed = objective, loader, seed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._next: tuple[int, Future[Batch]] | None = None

    def batch(self, place: int) -> Batch:
        """Batch `place`; quick where the one before it was the last that was asked for."""
        if self._next is not None and self._next[0] == place:
            batch = self._next[1].result()
        else:
            batch = self._thread.submit(make_batch, self.objective, self.loader, place, seed=self.seed).result()
        following = self._thread.submit(make_batch, self.objective, self.loader, place + 1, seed=self.seed)
        self._next = (place + 1, following)
        return batch

    def close(self) -> None:
        """End the thread; a batch in the making is waited for."""
        self._thread.shutdown(cancel_futures=True)


def make_batch(objective: Objective, loader: Loader, place: int, *, seed: int) -> Batch:
    """Batch `place`, with random numbers of its own."""
    return objective.batch(loader.batch(place), np.random.default_rng([seed, place]))
