"""What a measure is: a score of predictions against the truth, made so that it can be drawn again by the bootstrap."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lmlab.metrics.metric import Direction

Floats = NDArray[np.float64]


class Measure(Protocol):
    """A score of predictions against what is true; not a number where there are no examples."""

    name: str
    better: Direction
    bounds: tuple[float, float]
    is_proportion: bool  # of examples: right or wrong, nothing between

    def score(self, predicted: Sequence[Any], true: Sequence[Any]) -> float:
        """The measure over all examples."""

    def resampler(self, predicted: Sequence[Any], true: Sequence[Any]) -> Callable[[Floats], Floats]:
        """A function from counts [R, N], how often a draw has each example, to the measure of each draw [R]."""


class SummedMeasure(ABC):
    """A measure that follows from sums over the examples: right answers, spans found and spans there."""

    name: str
    better: Direction = "higher"
    bounds: tuple[float, float] = (0.0, 1.0)
    is_proportion: bool = False

    @abstractmethod
    def statistics(self, predicted: Sequence[Any], true: Sequence[Any]) -> Floats:
        """What is summed, for each example: [N, S]."""

    @abstractmethod
    def value(self, totals: Floats) -> Floats:
        """The measure [...] that sums [..., S] come to."""

    def score(self, predicted: Sequence[Any], true: Sequence[Any]) -> float:
        check_equal_lengths(predicted, true)
        return float(self.value(self.statistics(predicted, true).sum(0))) if len(true) else float("nan")

    def resampler(self, predicted: Sequence[Any], true: Sequence[Any]) -> Callable[[Floats], Floats]:
        check_equal_lengths(predicted, true)
        statistics = self.statistics(predicted, true)
        return lambda counts: self.value(counts @ statistics)


class Collected:
    """A measure as the `Metric` of an evaluation: shown batches of (predicted, true), computed over them all."""

    def __init__(self, measure: Measure) -> None:
        self.better: Direction = measure.better
        self._measure = measure
        self._predicted: list[Any] = []
        self._true: list[Any] = []

    def add(self, watched: tuple[Sequence[Any], Sequence[Any]]) -> None:
        """The predictions of a batch, and what is true."""
        predicted, true = watched
        check_equal_lengths(predicted, true)
        self._predicted.extend(predicted)
        self._true.extend(true)

    def value(self) -> float:
        return self._measure.score(self._predicted, self._true)


def check_equal_lengths(predicted: Sequence[Any], true: Sequence[Any]) -> None:
    """Predictions and truth must be of the same examples."""
    if len(predicted) != len(true):
        raise ValueError(f"{len(predicted)} predictions for {len(true)} examples: give one for each")


def divide(numerator: Floats, denominator: Floats, *, empty: float) -> Floats:
    """Numerator by denominator, and `empty` where that is 0 / 0."""
    result = np.full(np.broadcast_shapes(numerator.shape, denominator.shape), empty)
    np.divide(numerator, denominator, out=result, where=denominator != 0)
    return result


def harmonic(both: Floats, predicted: Floats, true: Floats, *, empty: float = 0.0) -> Floats:
    """F1 of counts: 2 both / (predicted + true), the harmonic mean of precision and recall."""
    return divide(2 * both, predicted + true, empty=empty)
