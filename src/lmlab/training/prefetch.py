"""Batches made ahead: while the model learns from one, another thread makes the next."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from lmlab.data.loaders.loader import Loader
from lmlab.objectives.objective import Augments, Batch, Objective
from lmlab.training.micro_batches import MicroBatch, slice_rows


class Prefetcher:
    """Makes micro-batches in a thread; each is a pure function of the loader, the seed and its number."""

    def __init__(self, objective: Objective, loader: Loader, *, seed: int, lanes: int = 1) -> None:
        self.objective, self.loader, self.seed, self.lanes = objective, loader, seed, lanes
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._next: tuple[MicroBatch, Future[Batch]] | None = None

    def batch(self, micro: MicroBatch, following: MicroBatch) -> Batch:
        """The batch of a micro-batch; then that of `following` is begun."""
        if self._next is None or self._next[0] != micro:
            self._begin(micro)
        assert self._next is not None
        batch = self._next[1].result()
        self._begin(following)
        return batch

    def _begin(self, micro: MicroBatch) -> None:
        self._next = micro, self._thread.submit(self._make, micro)

    def _make(self, micro: MicroBatch) -> Batch:
        """The batch, augmented by objectives that do it."""
        key = [self.seed, micro.number] if self.lanes == 1 else [self.seed, micro.number, micro.lane]
        generator = np.random.default_rng(key)
        raw = slice_rows(self.loader.batch(micro.number), micro.lane, self.lanes)
        objective = self.objective
        return objective.batch(objective.augment(raw, generator) if isinstance(objective, Augments) else raw, generator)

    def close(self) -> None:
        """End the thread, after the batch that it is making."""
        self._thread.shutdown(cancel_futures=True)


def make_batch(objective: Objective, loader: Loader, number: int, *, seed: int) -> Batch:
    """Batch number `number`, with its own random numbers."""
    return objective.batch(loader.batch(number), np.random.default_rng([seed, number]))
