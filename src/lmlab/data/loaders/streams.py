"""Batches of a token stream, for models that predict the next token: each row has window + 1 tokens [B, T + 1]."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmlab.data.loaders.loader import Loader

Tokens = np.ndarray

HALVED = 0.05
"""The fraction of segments of `VariedStreams` whose length is around half the window."""
DEVIATION = 5.0
"""The standard deviation of their lengths, in tokens."""
SHORTEST = 5


class Windows(Loader):
    """Shuffled windows: every epoch visits each window once, in a new order, from a new offset."""

    def __init__(self, tokens: Tokens, *, batch: int, window: int, seed: int) -> None:
        _check_length(tokens)
        self.tokens, self.seed = tokens, seed
        self.batch_size = batch
        self.window = min(window, len(tokens) - 1)
        self.count = max(1, (len(tokens) - self.window) // self.window)
        self.steps_per_epoch = self.count / batch
        self._starts = lru_cache(1)(self._find_starts)

    @property
    def units_per_step(self) -> dict[str, float]:
        return {"tokens": float(self.batch_size * self.window)}

    def batch(self, step: int) -> Tensor:
        first = step * self.batch_size
        return _stack([self._row(first + i) for i in range(self.batch_size)])

    def _row(self, index: int) -> Tokens:
        epoch, position = divmod(index, self.count)
        start = self._starts(epoch)[position]
        return self.tokens[start : start + self.window + 1]

    def _find_starts(self, epoch: int) -> NDArray[np.int64]:
        """Return where the windows of an epoch start, in the order of that epoch."""
        generator = np.random.default_rng([self.seed, epoch])
        spare = len(self.tokens) - 1 - self.count * self.window
        offset = int(generator.integers(0, spare + 1))
        return offset + self.window * generator.permutation(self.count)


class ItemWindows(Windows):
    """Shuffled items of equal length, each with the boundaries around it: every epoch visits each once."""

    def __init__(self, tokens: Tokens, *, batch: int, window: int, seed: int) -> None:
        super().__init__(tokens, batch=batch, window=window, seed=seed)
        self.count = max(1, (len(tokens) - 1) // self.window)
        self.steps_per_epoch = self.count / batch

    def _find_starts(self, epoch: int) -> NDArray[np.int64]:
        order: NDArray[np.int64] = np.random.default_rng([self.seed, epoch]).permutation(self.count)
        return self.window * order


class Streams(Loader):
    """Contiguous text in parallel rows, so that a state can be carried from one batch to the next."""

    continuous = True

    def __init__(self, tokens: Tokens, *, batch: int, window: int, seed: int) -> None:
        _check_length(tokens)
        self.tokens, self.seed = tokens, seed
        targets = len(tokens) - 1
        self.batch_size = min(batch, targets)
        self.window = min(window, targets // self.batch_size)
        self.count = targets // (self.batch_size * self.window)
        self.steps_per_epoch = float(self.count)

    @property
    def units_per_step(self) -> dict[str, float]:
        return {"tokens": float(self.batch_size * self.window)}

    def batch(self, step: int) -> Tensor:
        epoch, position = divmod(step, self.count)
        length = self.count * self.window
        spare = len(self.tokens) - 1 - self.batch_size * length
        offset = int(np.random.default_rng([self.seed, epoch]).integers(0, spare + 1))
        starts = offset + length * np.arange(self.batch_size) + position * self.window
        return _stack([self.tokens[start : start + self.window + 1] for start in starts])

    def restarts(self, step: int) -> bool:
        return step % self.count == 0


class VariedStreams(Loader):
    """`Streams` in segments of varied length: L ~ N(w, 5), for 5% of them N(w / 2, 5), and at least 5 tokens.

    With a fixed window w, a token of a text that is always split in the same way always has the same position in its
    segment, and one token in w never learns from more than the token before it (Merity et al. 2018, section 4.1). The
    learning rate is multiplied by L / w (`rate_factor`), or short segments would count as much as long ones. All
    lengths of an epoch are sampled together from the seed and its number, so batch k is a pure function of k.
    """

    continuous = True

    def __init__(self, tokens: Tokens, *, batch: int, window: int, seed: int) -> None:
        even = Streams(tokens, batch=batch, window=window, seed=seed)
        self.tokens, self.batch_size, self.window, self.seed = tokens, even.batch_size, even.window, seed
        self.length = (len(tokens) - 1) // self.batch_size
        self.mean_length = min(self.length, max(1.0, (1 - HALVED / 2) * self.window))
        self.steps_per_epoch = self.length / self.mean_length
        self._first_steps = [0]  # of each epoch, as far as they are known
        self._ends = lru_cache(1)(self._find_ends)

    @property
    def units_per_step(self) -> dict[str, float]:
        return {"tokens": self.batch_size * self.mean_length}

    def batch(self, step: int) -> Tensor:
        epoch, position = self._find(step)
        ends = self._ends(epoch)
        first, end = (int(ends[position - 1]) if position else 0), int(ends[position])
        spare = len(self.tokens) - 1 - self.batch_size * self.length
        offset = int(np.random.default_rng([self.seed, epoch]).integers(0, spare + 1))
        starts = offset + self.length * np.arange(self.batch_size)
        return _stack([self.tokens[start + first : start + end + 1] for start in starts])

    def rate_factor(self, step: int) -> float:
        epoch, position = self._find(step)
        return float(np.diff(self._ends(epoch), prepend=0)[position] / self.window)

    def restarts(self, step: int) -> bool:
        return self._find(step)[1] == 0

    def _find(self, step: int) -> tuple[int, int]:
        """Return the epoch of a step and the step's number within it."""
        firsts = self._first_steps  # replaced as a whole, because threads may share a loader
        while firsts[-1] <= step:
            firsts = [*firsts, firsts[-1] + len(self._ends(len(firsts) - 1))]
            self._first_steps = firsts
        epoch = bisect_right(firsts, step) - 1
        return epoch, step - firsts[epoch]

    def _find_ends(self, epoch: int) -> NDArray[np.int64]:
        """Return where the segments of an epoch end in each row; the last takes what is left."""
        generator = np.random.default_rng([self.seed, epoch, 1])
        shortest = min(SHORTEST, self.window)
        most = self.length // shortest + 1
        means = np.where(generator.random(most) < HALVED, self.window / 2, self.window)
        lengths = np.maximum(shortest, generator.normal(means, DEVIATION).astype(np.int64))
        ends = np.cumsum(lengths)
        count = int(np.searchsorted(ends, self.length)) + 1
        clipped: NDArray[np.int64] = np.minimum(ends[:count], self.length)
        return clipped


def vary(loader: Loader) -> Loader:
    """Return the same streams in segments of varied length; a ValueError if the loader has no streams."""
    if not isinstance(loader, Streams):
        raise ValueError(
            "train.order = 'varied' cuts contiguous text into segments of varied length, which is for models that "
            "predict the next token and keep their state; use 'auto'"
        )
    return VariedStreams(loader.tokens, batch=loader.batch_size, window=loader.window, seed=loader.seed)


class BothDirections(Loader):
    """The batches of a text and of the same text reversed, as pairs."""

    def __init__(self, forward: Loader, backward: Loader) -> None:
        self.forward, self.backward = forward, backward
        self.batch_size, self.window = forward.batch_size, forward.window
        self.steps_per_epoch = forward.steps_per_epoch
        self.continuous = forward.continuous

    @property
    def units_per_step(self) -> Mapping[str, float]:
        return self.forward.units_per_step

    def batch(self, step: int) -> tuple[Any, Any]:
        return self.forward.batch(step), self.backward.batch(step)

    def restarts(self, step: int) -> bool:
        return self.forward.restarts(step)


class HalfReversed(BothDirections):
    """The same for a model that reads both as the rows of one batch, so that each direction has half of the rows."""

    def __init__(self, forward: Loader, backward: Loader) -> None:
        super().__init__(forward, backward)
        self.batch_size = forward.batch_size + backward.batch_size

    @property
    def most_lanes(self) -> int:
        return self.forward.most_lanes

    @property
    def units_per_step(self) -> Mapping[str, float]:
        return {name: 2 * count for name, count in self.forward.units_per_step.items()}


def _check_length(tokens: Tokens) -> None:
    if len(tokens) < 2:
        raise ValueError(f"the text has {len(tokens)} tokens; at least 2 are needed to predict one from another")


def _stack(rows: list[Tokens]) -> Tensor:
    return torch.from_numpy(np.stack(rows).astype(np.int64))
