"""The return of episodes: the sum of the rewards of each, whose mean over episodes ranks agents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lmlab.metrics.metric import Floats, SummedMetric, divide


class EpisodeReturn(SummedMetric):
    """The mean return over episodes; each episode is a unit of its interval.

    A prediction is the list of rewards of an episode. The truth is not used: give the episode's number or its start, so
    that agents are compared on the same episodes.
    """

    name = "episode_return"
    bounds = (-math.inf, math.inf)

    def __init__(self, *, discount: float = 1.0) -> None:
        if not 0 < discount <= 1:
            raise ValueError(f"discount = {discount}: it must be above 0 and at most 1")
        self.discount = discount

    def statistics(self, predicted: Sequence[Sequence[float]], true: Sequence[Any]) -> Floats:
        returns = [math.fsum(reward * self.discount**step for step, reward in enumerate(each)) for each in predicted]
        return np.stack([np.array(returns, dtype=np.float64), np.ones(len(returns))], axis=1)

    def value(self, totals: Floats) -> Floats:
        return divide(totals[..., 0], totals[..., 1], empty=float("nan"))
