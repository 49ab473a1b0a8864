"""Recall@k by hand and against counting."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lmlab.metrics.retrieval import Matching, RankedRecall, RecallAtK, StreamingRecall, chance_of_recall
from lmlab.metrics.statistics import estimate


def test_recall_by_hand() -> None:
    results, right = [["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a"], []], ["a", "a", "a", "a"]
    assert RecallAtK(1).score(results, right) == 0.25
    assert RecallAtK(2).score(results, right) == 0.5
    assert RecallAtK(10).score(results, right) == 0.75
    assert RecallAtK(2).score([["a", "b"], ["c", "d"]], [{"a", "x"}, {"c", "d"}]) == pytest.approx((1 / 2 + 1) / 2)
    assert RecallAtK(5).name == "recall_at_5"
    assert math.isnan(RecallAtK(1).score([], []))


def test_recall_is_a_count_over_similarities_and_has_an_interval() -> None:
    """The right item is found if fewer than k items are more similar."""
    similarity = np.random.default_rng(0).normal(size=(60, 40)) + 1.5 * np.eye(60, 40)
    right = [i % 40 for i in range(60)]
    results = np.argsort(-similarity, axis=1).tolist()
    better = [(similarity[i] > similarity[i, right[i]]).sum() for i in range(60)]
    for k in (1, 5, 40):
        assert RecallAtK(k).score(results, right) == pytest.approx(np.mean([count < k for count in better]))
    found = estimate(RecallAtK(5), results, right)
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low < found.value < found.high <= 1


def test_what_is_not_defined_is_an_error() -> None:
    with pytest.raises(ValueError, match="k = 0"):
        RecallAtK(0)
    with pytest.raises(ValueError, match="query 1 has no right item"):
        RecallAtK(1).score([["a"], ["b"]], ["a", set()])


def test_ranks_and_chance_are_those_of_brute_force() -> None:
    generator = np.random.default_rng(0)
    pictures, texts = (generator.integers(-2, 3, (12, 3)).astype(np.float32) for _ in range(2))
    picture_numbers = np.array([0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    caption_numbers = np.array([0, 1, 2, 3, 0, 4, 5, 6, 7, 8, 9, 0])
    pictures, texts = pictures[picture_numbers], texts[caption_numbers]
    found = Matching(pictures, texts, picture_numbers, caption_numbers)
    for ranks, queries, own, candidates, others in (
        (found.text_to_picture(), texts, caption_numbers, pictures, picture_numbers),
        (found.picture_to_text(), pictures, picture_numbers, texts, caption_numbers),
    ):
        for query, number in enumerate(sorted(set(own.tolist()))):
            right = {int(others[row]) for row in range(12) if own[row] == number}
            vector = queries[own.tolist().index(number)]
            scores = {other: float(vector @ candidates[others.tolist().index(other)]) for other in set(others.tolist())}
            top = max(scores[other] for other in right)
            assert ranks.best[query] == 1 + sum(scores[o] >= top for o in scores if o not in right)
            assert ranks.right[query] == len(right)
        for k in (1, 3, 20):
            orders = [generator.permutation(ranks.candidates)[:k] for _ in range(20_000)]
            simulated = np.mean([[(order < right).any() for right in (1, 2, 3)] for order in orders], axis=0)
            expected = np.mean([simulated[int(right) - 1] for right in ranks.right])
            assert chance_of_recall(ranks, k) == pytest.approx(expected, abs=0.02)


def test_equal_vectors_for_everything_find_nothing() -> None:
    numbers = np.arange(6)
    same = Matching(np.ones((6, 2), np.float32), np.ones((6, 2), np.float32), numbers, numbers)
    metric = StreamingRecall("text_to_picture", 5)
    assert np.isnan(metric.value())
    metric.add(same)
    assert metric.value() == 0
    assert RankedRecall(6).score(same.text_to_picture().best.tolist(), [1] * 6) == 1
