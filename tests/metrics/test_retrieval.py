"""Recall@k by hand and against counting."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lmlab.metrics.retrieval import RecallAtK
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
