"""Batches from a token stream. Batch number k is a pure function of (stream, settings, k): resuming needs only k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Tokens = np.ndarray


class Loader(Protocol):
    """An endless, numbered supply of the raw material of batches; that of windows and streams is [B, window + 1]."""

    batch_size: int
    window: int
    steps_per_epoch: float

    @property
    def units_per_step(self) -> Mapping[str, float]:
        """How much a batch has of each unit that a budget may count (`tokens`), on average."""

    def batch(self, step: int) -> Any: ...

    def restarts(self, step: int) -> bool:
        """True where batch `step` does not go on from the one before: carried state must be forgotten."""

    def plan(self, total_steps: int | None) -> None:
        """Told before training how many batches there will be; None where only the clock can tell."""


@runtime_checkable
class ScalesRate(Protocol):
    """A loader whose batches differ in size, so that the steps made of them do, too."""

    def rate_share(self, step: int) -> float:
        """What the learning rate of batch `step` is multiplied by."""


def rate_share(loader: Loader, step: int) -> float:
    """What the learning rate of a batch is multiplied by: 1 where all are alike."""
    return loader.rate_share(step) if isinstance(loader, ScalesRate) else 1.0


def mean_units(mixture: Sequence[tuple[float, Loader]]) -> dict[str, float]:
    """The units per step of several loaders by turns, each with its share of the steps."""
    names = mixture[0][1].units_per_step
    return {name: sum(share * loader.units_per_step[name] for share, loader in mixture) for name in names}


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
        self._epoch: tuple[int, NDArray[np.int64]] | None = None

    @property
    def units_per_step(self) -> dict[str, float]:
        return {"tokens": float(self.batch_size * self.window)}

    def batch(self, step: int) -> Tensor:
        first = step * self.batch_size
        rows = [self._row(first + i) for i in range(self.batch_size)]
        return torch.from_numpy(np.stack(rows).astype(np.int64))

    def restarts(self, step: int) -> bool:
        return True

    def plan(self, total_steps: int | None) -> None: ...

    def _row(self, index: int) -> Tokens:
        epoch, place = divmod(index, self.count)
        start = self._starts(epoch)[place]
        return self.tokens[start : start + self.window + 1]

    def _starts(self, epoch: int) -> NDArray[np.int64]:
        """Where the windows of an epoch start, in its order; kept as one value, so that threads may share a loader."""
        kept = self._epoch
        if kept is None or kept[0] != epoch:
            generator = np.random.default_rng([self.seed, epoch])
            spare = len(self.tokens) - 1 - self.count * self.window
            offset = int(generator.integers(0, spare + 1))
            kept = (epoch, offset + self.window * generator.permutation(self.count))
            self._epoch = kept
        return kept[1]


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

    def restarts(self, step: int) -> bool:
        return step % self.count == 0

    def plan(self, total_steps: int | None) -> None: ...


class Mirrored:
    """The batches of a text and of the same text from its end, beside each other."""

    def __init__(self, forward: Loader, backward: Loader) -> None:
        self.ways = (forward, backward)
        self.batch_size, self.window = forward.batch_size, forward.window
        self.steps_per_epoch = forward.steps_per_epoch

    @property
    def units_per_step(self) -> Mapping[str, float]:
        return self.ways[0].units_per_step

    def batch(self, step: int) -> tuple[Any, Any]:
        forward, backward = self.ways
        return forward.batch(step), backward.batch(step)

    def restarts(self, step: int) -> bool:
        return self.ways[0].restarts(step)

    def plan(self, total_steps: int | None) -> None: ...


class Halved(Mirrored):
    """The same for a model that reads both as rows of one batch: each way has half of the rows that are counted."""

    def __init__(self, forward: Loader, backward: Loader) -> None:
        super().__init__(forward, backward)
        self.batch_size = forward.batch_size + backward.batch_size

    @property
    def units_per_step(self) -> Mapping[str, float]:
        return {name: 2 * count for name, count in self.ways[0].units_per_step.items()}
