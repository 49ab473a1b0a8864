"""Batches from a token stream. Batch number k is a pure function of (stream, settings, k): resuming needs only k."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

Tokens = np.ndarray


class Loader(Protocol):
    """An endless, numbered supply of the raw material of batches; that of windows and streams is [B, window + 1]."""

    batch_size: int
    window: int
    steps_per_epoch: float

    @property
    def units_per_step(self) -> Mapping[str, float]:
        """How many tokens (targets, examples …) a batch has, on average: what budgets count."""

    def batch(self, step: int) -> Any: ...

    def plan(self, total_steps: int | None) -> None: ...

    def restarts(self, step: int) -> bool:
        """True where batch `step` does not go on from the one before: carried state must be forgotten."""


class Windows:
    """Shuffled windows: every epoch visits each window once, in a new order, from a new offset."""

    def __init__(self, tokens: Tokens, *, batch: int, window: int, seed: int) -> None:
        if len(tokens) < 2:
            raise ValueError(f"the text has {len(tokens)} tokens; at least 2 are needed to predict one from another")
        self.tokens = tokens
        self.batch_size = batch
        self.window = min(window, len(tokens) - 1)
        self.seed = seed
        self.count = max(1, (len(tokens) - self.window) // self.window)
        self.steps_per_epoch = self.count / batch
        self._epoch = -1
        self._starts = np.zeros(0, dtype=np.int64)

    @property
    def units_per_step(self) -> dict[str, float]:
        return {"tokens": float(self.batch_size * self.window)}

    def batch(self, step: int) -> Tensor:
        first = step * self.batch_size
        rows = [self._row(first + i) for i in range(self.batch_size)]
        return torch.from_numpy(np.stack(rows).astype(np.int64))

    def plan(self, total_steps: int | None) -> None: ...

    def restarts(self, step: int) -> bool:
        return True

    def _row(self, index: int) -> Tokens:
        epoch, place = divmod(index, self.count)
        if epoch != self._epoch:
            generator = np.random.default_rng([self.seed, epoch])
            spare = len(self.tokens) - 1 - self.count * self.window
            offset = int(generator.integers(0, spare + 1))
            self._starts = offset + self.window * generator.permutation(self.count)
            self._epoch = epoch
        start = self._starts[place]
        return self.tokens[start : start + self.window + 1]


class Streams:
    """Contiguous text in parallel rows, so that a state can be carried from one batch to the next."""

    def __init__(self, tokens: Tokens, *, batch: int, window: int, seed: int) -> None:
        targets = len(tokens) - 1
        if targets < 1:
            raise ValueError(f"the text has {len(tokens)} tokens; at least 2 are needed to predict one from another")
        self.tokens = tokens
        self.batch_size = min(batch, targets)
        self.window = min(window, targets // self.batch_size)
        self.seed = seed
        self.count = targets // (self.batch_size * self.window)
        self.steps_per_epoch = float(self.count)

    @property
    def units_per_step(self) -> dict[str, float]:
        return {"tokens": float(self.batch_size * self.window)}

    def batch(self, step: int) -> Tensor:
        epoch, place = divmod(step, self.count)
        length = self.count * self.window
        spare = len(self.tokens) - 1 - self.batch_size * length
        offset = int(np.random.default_rng([self.seed, epoch]).integers(0, spare + 1))
        starts = offset + length * np.arange(self.batch_size) + place * self.window
        rows = [self.tokens[start : start + self.window + 1] for start in starts]
        return torch.from_numpy(np.stack(rows).astype(np.int64))

    def plan(self, total_steps: int | None) -> None: ...

    def restarts(self, step: int) -> bool:
        return step % self.count == 0
