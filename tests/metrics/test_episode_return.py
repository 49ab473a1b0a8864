"""The return of episodes by hand, with its interval over episodes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from lmlab.metrics.episode_return import EpisodeReturn
from lmlab.metrics.statistics import Scores


def test_returns_by_hand() -> None:
    assert EpisodeReturn().score([[1, 0, 2], [], [-1]], [0, 1, 2]) == pytest.approx((3 + 0 - 1) / 3)
    assert EpisodeReturn(discount=0.5).score([[1, 0, 2]], [0]) == 1.5
    assert math.isnan(EpisodeReturn().score([], []))
    with pytest.raises(ValueError, match="discount = 0"):
        EpisodeReturn(discount=0)


def test_the_interval_is_that_of_a_mean_over_episodes() -> None:
    generator = np.random.default_rng(0)
    episodes = [generator.normal(1.0, 3.0, size=generator.integers(1, 9)).tolist() for _ in range(200)]
    scores = Scores(EpisodeReturn(), {"agent": [episodes]}, range(200), resamples=4000)
    returns = [sum(rewards) for rewards in episodes]
    expected = scipy.stats.t.interval(0.95, 199, np.mean(returns), scipy.stats.sem(returns))
    found = scores.estimate("agent")
    assert found.value == pytest.approx(np.mean(returns))
    width = expected[1] - expected[0]
    assert (found.low, found.high) == pytest.approx(expected, abs=0.06 * width)


def test_a_higher_return_on_the_same_episodes_is_better() -> None:
    luck = np.random.default_rng(1).normal(0.0, 5.0, size=50)
    skill = np.random.default_rng(2).normal(0.5, 0.5, size=50)
    agents = {"a": [[[each] for each in luck]], "b": [[[each, more] for each, more in zip(luck, skill, strict=True)]]}
    (found,) = Scores(EpisodeReturn(), agents, range(50)).compare()
    assert (found.better, found.value) == ("b", pytest.approx(skill.mean()))
    assert found.significant
