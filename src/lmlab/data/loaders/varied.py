"""Streams cut into segments of varied length, so that no token is always the last that learns from its past.

With a fixed window w, each token of a text that has as many tokens as its row is always at the same place of a segment,
and one in w never learns from more than the token before it (Merity et al. 2018, section 4.1).
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmlab.data.loaders.loader import Loader, Streams, Tokens

HALVED = 0.05
"""The share of segments whose length is around half the window."""
SPREAD = 5.0
"""The standard deviation of lengths, in tokens."""
SHORTEST = 5


class VariedStreams:
    """As `Streams`, in segments of about a window: L ~ N(w, 5), in 5% of them N(w / 2, 5), and at least 5 tokens.

    The rate of a step is multiplied by L / w (`rate_share`), or short segments would count as much as long ones. All
    lengths of an epoch are drawn together from the seed and its number, so batch k is a pure function of k.
    """

    def __init__(self, tokens: Tokens, *, batch: int, window: int, seed: int) -> None:
        even = Streams(tokens, batch=batch, window=window, seed=seed)
        self.tokens, self.batch_size, self.window, self.seed = tokens, even.batch_size, even.window, seed
        self.length = (len(tokens) - 1) // self.batch_size
        self.mean_length = min(self.length, max(1.0, (1 - HALVED / 2) * self.window))
        self.steps_per_epoch = self.length / self.mean_length
        self._firsts = [0]  # the first step of each epoch, as far as they are known
        self._epoch: tuple[int, NDArray[np.int64]] | None = None

    @property
    def units_per_step(self) -> dict[str, float]:
        return {"tokens": self.batch_size * self.mean_length}

    def batch(self, step: int) -> Tensor:
        epoch, place = self._find(step)
        ends = self._ends(epoch)
        first, end = (int(ends[place - 1]) if place else 0), int(ends[place])
        spare = len(self.tokens) - 1 - self.batch_size * self.length
        offset = int(np.random.default_rng([self.seed, epoch]).integers(0, spare + 1))
        starts = offset + self.length * np.arange(self.batch_size)
        rows = [self.tokens[start + first : start + end + 1] for start in starts]
        return torch.from_numpy(np.stack(rows).astype(np.int64))

    def rate_share(self, step: int) -> float:
        """The length of a batch, of the window: what its rate is multiplied by."""
        epoch, place = self._find(step)
        return float(np.diff(self._ends(epoch), prepend=0)[place] / self.window)

    def restarts(self, step: int) -> bool:
        return self._find(step)[1] == 0

    def plan(self, total_steps: int | None) -> None: ...

    def _find(self, step: int) -> tuple[int, int]:
        """The epoch of a step, and its number there; threads may share a loader, so the list is replaced as a whole."""
        firsts = self._firsts
        while firsts[-1] <= step:
            firsts = [*firsts, firsts[-1] + len(self._ends(len(firsts) - 1))]
            self._firsts = firsts
        epoch = bisect_right(firsts, step) - 1
        return epoch, step - firsts[epoch]

    def _ends(self, epoch: int) -> NDArray[np.int64]:
        """Where the segments of an epoch end, in each row; the last takes what is left."""
        kept = self._epoch
        if kept is None or kept[0] != epoch:
            generator = np.random.default_rng([self.seed, epoch, 1])
            shortest = min(SHORTEST, self.window)
            most = self.length // shortest + 1
            centres = np.where(generator.random(most) < HALVED, self.window / 2, self.window)
            lengths = np.maximum(shortest, generator.normal(centres, SPREAD).astype(np.int64))
            ends = np.cumsum(lengths)
            count = int(np.searchsorted(ends, self.length)) + 1
            kept = (epoch, np.minimum(ends[:count], self.length))
            self._epoch = kept
        return kept[1]


def vary(loader: Loader) -> Loader:
    """The same streams in segments of varied length; a ValueError where there are no streams."""
    if not isinstance(loader, Streams):
        raise ValueError(
            "train.order = 'varied' cuts contiguous text into segments of varied length, which is for models that "
            "predict the next token and carry their state; take 'auto'"
        )
    return VariedStreams(loader.tokens, batch=loader.batch_size, window=loader.window, seed=loader.seed)
