"""Batches of windows of episodes: every epoch visits each action once, cut at new places and in a new order."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data.corpora.episodes import EpisodeSplit
from lmlab.data.loaders.loader import Loader


class EpisodeWindows(NamedTuple):
    """Parts of episodes, padded with zeros at their ends."""

    states: NDArray[np.float32]  # [B, T, S]
    actions: NDArray[np.float32]  # [B, T, A]
    returns: NDArray[np.float32]  # [B, T]
    timesteps: NDArray[np.int64]  # [B, T], counted from the start of the episode
    lengths: NDArray[np.int64]  # [B]


class EpisodeLoader(Loader):
    """Numbered batches of windows of at most `window` steps; batch k is a pure function of the data, the seed and k."""

    def __init__(self, data: EpisodeSplit, *, batch: int, window: int, seed: int) -> None:
        self.data, self.window, self.seed = data, window, seed
        self.count = max(1, round(data.size / (window * batch)))
        self.batch_size = batch
        self.steps_per_epoch = float(self.count)
        self._batches = lru_cache(2)(self._make_batches)

    @property
    def units_per_step(self) -> dict[str, float]:
        return {"actions": self.data.size / self.count}

    def batch(self, step: int) -> EpisodeWindows:
        epoch, number = divmod(step, self.count)
        return read_windows(self.data, self._batches(epoch)[number])

    def _make_batches(self, epoch: int) -> list[NDArray[np.int64]]:
        numbers = np.random.default_rng([self.seed, epoch])
        first = numbers.integers(1, self.window + 1, len(self.data.starts))
        windows = cut_windows(self.data, window=self.window, first=first)
        return np.array_split(numbers.permutation(windows), self.count)


def cut_windows(data: EpisodeSplit, *, window: int, first: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """The first step, the length and the time in its episode of each window [windows, 3], of all episodes.

    The first window of episode i has `first[i]` steps, and the others `window`; by default the first has as many.
    """
    windows = []
    for number, (start, length) in enumerate(zip(data.starts.tolist(), data.lengths.tolist(), strict=True)):
        cut = window if first is None else int(first[number])
        edges = np.array([0, *range(cut, length, window), length])
        windows.append(np.stack([start + edges[:-1], np.diff(edges), edges[:-1]], axis=1))
    return np.concatenate(windows)


def read_windows(data: EpisodeSplit, windows: NDArray[np.int64]) -> EpisodeWindows:
    """The steps of windows, as `cut_windows` gives them."""
    starts, lengths, times = windows.T
    steps = np.arange(int(lengths.max()))
    places = np.minimum(starts[:, None] + steps, data.size - 1)
    real = steps < lengths[:, None]
    return EpisodeWindows(
        states=data.states[places] * real[..., None],
        actions=data.actions[places] * real[..., None],
        returns=data.returns[places] * real,
        timesteps=(times[:, None] + steps) * real,
        lengths=np.ascontiguousarray(lengths),
    )
