"""What a metric is: `Metric` scores predictions, `StreamingMetric` is shown the batches of an evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Direction = Literal["higher", "lower"]
"""Which scores are better."""
Floats = NDArray[np.float64]


class Metric(Protocol):
    """A score of predictions against the truth that can be resampled by the bootstrap; NaN without examples."""

    name: str
    better: Direction
    bounds: tuple[float, float]
    is_proportion: bool  # of examples that are right or wrong

    def score(self, predicted: Sequence[Any], true: Sequence[Any]) -> float:
        """The score of all examples."""

    def resampler(self, predicted: Sequence[Any], true: Sequence[Any]) -> Callable[[Floats], Floats]:
        """A function from counts [R, N], how often each resample has each example, to the score of each one [R]."""


class SummedMetric(ABC):
    """A metric that is computed from sums over the examples, such as the numbers of right and of all answers."""

    name: str
    better: Direction = "higher"
    bounds: tuple[float, float] = (0.0, 1.0)
    is_proportion: bool = False

    @abstractmethod
    def statistics(self, predicted: Sequence[Any], true: Sequence[Any]) -> Floats:
        """The numbers that are summed, for each example: [N, S]."""

    @abstractmethod
    def value(self, totals: Floats) -> Floats:
        """The score [...] of sums [..., S]."""

    def score(self, predicted: Sequence[Any], true: Sequence[Any]) -> float:
        check_equal_lengths(predicted, true)
        return float(self.value(self.statistics(predicted, true).sum(0))) if len(true) else float("nan")

    def resampler(self, predicted: Sequence[Any], true: Sequence[Any]) -> Callable[[Floats], Floats]:
        check_equal_lengths(predicted, true)
        statistics = self.statistics(predicted, true)
        return lambda counts: self.value(counts @ statistics)


class StreamingMetric(Protocol):
    """A score that is computed from the batches of an evaluation, one after the other.

    Many metrics (F1, a rank correlation, BLEU) are not the mean of their values on parts: nothing is averaged outside.
    """

    better: Direction

    def add(self, watched: Any) -> None:
        """Add what the loss of a batch has watched under the name of this metric."""

    def value(self) -> float:
        """The score of everything that was added; NaN if nothing was."""


class Average:
    """The mean of the watched numbers: an accuracy from booleans, a loss from nats."""

    def __init__(self, better: Direction) -> None:
        self.better: Direction = better
        self._total: Tensor | float = 0.0
        self._count = 0

    def add(self, watched: Tensor) -> None:
        """Add numbers of any shape, on their device: only `value` waits for it."""
        import torch

        self._total = self._total + watched.detach().sum(dtype=torch.float64 if watched.device.type == "cpu" else None)
        self._count += watched.numel()

    def value(self) -> float:
        return float(self._total) / self._count if self._count else float("nan")


class Collected:
    """A `Metric` as a `StreamingMetric`: collects (predicted, true) of all batches and scores them together."""

    def __init__(self, metric: Metric) -> None:
        self.better: Direction = metric.better
        self._metric = metric
        self._predicted: list[Any] = []
        self._true: list[Any] = []

    def add(self, watched: tuple[Sequence[Any], Sequence[Any]]) -> None:
        """Add the predictions of a batch and the truth."""
        predicted, true = watched
        check_equal_lengths(predicted, true)
        self._predicted.extend(predicted)
        self._true.extend(true)

    def value(self) -> float:
        return self._metric.score(self._predicted, self._true)


def accuracy() -> Average:
    """The fraction of right predictions."""
    return Average("higher")


def mean_nats() -> Average:
    """Mean surprisal."""
    return Average("lower")


def check_equal_lengths(predicted: Sequence[Any], true: Sequence[Any]) -> None:
    """Raise a ValueError if there is not one prediction for each example."""
    if len(predicted) != len(true):
        raise ValueError(f"{len(predicted)} predictions for {len(true)} examples: give one for each")


def divide(numerator: Floats, denominator: Floats, *, empty: float) -> Floats:
    """Numerator / denominator, and `empty` for 0 / 0."""
    result = np.full(np.broadcast_shapes(numerator.shape, denominator.shape), empty)
    np.divide(numerator, denominator, out=result, where=denominator != 0)
    return result


def harmonic(both: Floats, predicted: Floats, true: Floats, *, empty: float = 0.0) -> Floats:
    """F1 from counts: 2 both / (predicted + true), the harmonic mean of precision and recall."""
    return divide(2 * both, predicted + true, empty=empty)
