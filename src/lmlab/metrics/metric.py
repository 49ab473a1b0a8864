"""What a metric is."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import torch
from torch import Tensor

Direction = Literal["higher", "lower"]
"""What is better."""


class Metric(Protocol):
    """Is shown every batch of an evaluation, and says at the end what it came to.

    Many metrics (F1, a rank correlation, BLEU) are no mean of what they are on parts, so nothing is averaged outside.
    """

    better: Direction

    def add(self, watched: Any) -> None:
        """Take in what the loss of a batch has watched under this metric's name."""

    def value(self) -> float:
        """The metric over all that was added; not a number where nothing was."""


class Average:
    """The mean of the numbers that were watched: an accuracy of booleans, a loss of nats."""

    def __init__(self, better: Direction) -> None:
        self.better: Direction = better
        self._total: Tensor | float = 0.0
        self._count = 0

    def add(self, watched: Tensor) -> None:
        """Numbers of any shape; added up on their device, so that nobody waits for it before `value`."""
        self._total = self._total + watched.detach().sum(dtype=torch.float64 if watched.device.type == "cpu" else None)
        self._count += watched.numel()

    def value(self) -> float:
        return float(self._total) / self._count if self._count else float("nan")


def accuracy() -> Average:
    """The share of what is right."""
    return Average("higher")


def mean_nats() -> Average:
    """Mean surprisal."""
    return Average("lower")
