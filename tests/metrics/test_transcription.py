"""Word and character error rates by hand and against brute force."""

from __future__ import annotations

import functools
import math
import random

import numpy as np
import pytest

from lmlab.metrics.statistics import Scores
from lmlab.metrics.transcription import CharacterErrorRate, WordErrorRate, edit_distance


def brute_force(one: str, other: str) -> int:
    """By its definition: the cheapest way to treat the first pieces of both."""

    @functools.cache
    def distance(i: int, j: int) -> int:
        if i == len(one) or j == len(other):
            return len(one) - i + len(other) - j
        return min(distance(i + 1, j + 1) + (one[i] != other[j]), distance(i + 1, j) + 1, distance(i, j + 1) + 1)

    return distance(0, 0)


def test_edit_distances_are_those_of_brute_force() -> None:
    dice = random.Random(0)
    for _ in range(300):
        one, other = ("".join(dice.choices("abc", k=dice.randrange(9))) for _ in range(2))
        assert edit_distance(one, other) == brute_force(one, other)


def test_word_error_rate_by_hand() -> None:
    """One substitution, one deletion and one insertion against 4 + 2 words."""
    predicted, true = ["the cat sit  down", "now"], ["the cat sat down", "right now"]
    assert WordErrorRate().score(predicted, true) == pytest.approx((1 + 1) / 6)
    assert WordErrorRate().score([*predicted, "a b"], [*true, "a"]) == pytest.approx(3 / 7)
    assert WordErrorRate().score(["a b c"], ["d"]) == 3, "it may be above 1"
    assert WordErrorRate().score(true, true) == 0
    assert math.isnan(WordErrorRate().score([], []))


def test_character_error_rate_by_hand() -> None:
    assert CharacterErrorRate().score(["kitten"], ["sitting"]) == pytest.approx(3 / 7)
    assert CharacterErrorRate().score(["a  b "], ["a b"]) == 0


def test_resamples_are_the_rates_of_the_texts_written_out() -> None:
    predicted, true = ["a b c", "a x", "y"], ["a b d", "a b c", "y z"]
    counts = np.array([[1, 1, 1], [2, 0, 1], [0, 3, 0]])
    resampled = WordErrorRate().resampler(predicted, true)(counts.astype(float))
    for row, found in zip(counts, resampled, strict=True):
        texts = [(p, t) for p, t, count in zip(predicted, true, row, strict=True) for _ in range(count)]
        assert found == pytest.approx(WordErrorRate().score([p for p, _ in texts], [t for _, t in texts]))


def test_fewer_errors_are_better() -> None:
    true = [f"word {i} of a text" for i in range(30)]
    poor = [text.replace("word", "ward") if i % 2 else text.replace("of a", "") for i, text in enumerate(true)]
    scores = Scores(WordErrorRate(), {"poor": [poor], "good": [true]}, true)
    assert scores.order == ["good", "poor"]
    (found,) = scores.compare()
    assert found.value == pytest.approx((15 * 1 + 15 * 2) / 150)
    assert found.significant
