"""Metrics of predicted scores: how well they follow the true ones, whatever their scale."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from lmlab.metrics.metric import Direction, Floats, check_equal_lengths


class Correlation(ABC):
    """A correlation of predicted and true scores; not a number where one of them is constant, or not a number.

    No sums of single examples: a mean that is taken first keeps the digits, and ranks depend on all examples.
    """

    name: str
    better: Direction = "higher"
    bounds: tuple[float, float] = (-1.0, 1.0)
    is_proportion: bool = False

    @abstractmethod
    def values(self, scores: Floats) -> Callable[[Floats], Floats]:
        """From counts [R, N] to what is correlated: [R, N], or [1, N] where it is the same in all draws."""

    def score(self, predicted: Sequence[float], true: Sequence[float]) -> float:
        return float(self.resampler(predicted, true)(np.ones((1, len(true))))[0])

    def resampler(self, predicted: Sequence[float], true: Sequence[float]) -> Callable[[Floats], Floats]:
        check_equal_lengths(predicted, true)
        x, y = (np.asarray(each, dtype=np.float64).reshape(-1) for each in (predicted, true))
        values = self.values(x), self.values(y)
        usable = bool(np.isfinite(x).all() and np.isfinite(y).all() and len(x))

        def draw(counts: Floats) -> Floats:
            if not usable:
                return np.full(len(counts), np.nan)
            return correlate(values[0](counts), values[1](counts), counts)

        return draw


class Pearson(Correlation):
    """The linear correlation."""

    name = "pearson"

    def values(self, scores: Floats) -> Callable[[Floats], Floats]:
        return lambda counts: scores[None]


class Spearman(Correlation):
    """The linear correlation of the ranks; equal scores share the mean of their ranks."""

    name = "spearman"

    def values(self, scores: Floats) -> Callable[[Floats], Floats]:
        order = np.argsort(scores, kind="stable")
        ordered = scores[order]
        first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(scores) else np.zeros(0, int)
        group = np.empty(len(scores), dtype=int)
        group[order] = np.repeat(np.arange(len(first)), np.diff(np.r_[first, len(scores)]))

        def ranks(counts: Floats) -> Floats:
            sizes = np.add.reduceat(counts[:, order], first, axis=1)  # how many of a draw have each score
            ranked: Floats = (np.cumsum(sizes, axis=1) - (sizes - 1) / 2)[:, group]
            return ranked

        return ranks


def correlate(x: Floats, y: Floats, counts: Floats) -> Floats:
    """Pearson's correlation of each row of x and y, whose values are weighted by `counts`: [R]."""
    x, y = (_standard(each, counts) for each in (x, y))
    products: Floats = (counts * x * y).sum(1)
    return products.clip(-1, 1)


def _standard(x: Floats, counts: Floats) -> Floats:
    """Less the mean, of length 1; not a number where a row is constant."""
    drawn = counts > 0
    high, low = np.where(drawn, x, -np.inf).max(1), np.where(drawn, x, np.inf).min(1)
    constant = ~(high > low)
    size = np.where(constant, 1, high / 2 - low / 2)  # halves, so that no difference of two scores overflows
    x = (x - np.where(constant, 0, low)[:, None]) / size[:, None]
    x = x - ((counts * x).sum(1) / counts.sum(1))[:, None]
    length = np.sqrt((counts * x * x).sum(1))
    return x / np.where(constant, np.nan, length)[:, None]
