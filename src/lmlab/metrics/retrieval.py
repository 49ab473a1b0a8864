"""Recall@k: how often a search finds what it looks for among its first k results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lmlab.metrics.metric import Floats, SummedMetric, divide


class RecallAtK(SummedMetric):
    """The mean over queries of the fraction of the right items that are among the first k results.

    A prediction is a list of results, best first; the truth is one right item or a set of them. With one right item for
    each query it is the fraction of queries that find it.
    """

    def __init__(self, k: int) -> None:
        if k < 1:
            raise ValueError(f"k = {k}: recall@k needs at least the first result, k = 1")
        self.k = k
        self.name = f"recall_at_{k}"

    def statistics(self, predicted: Sequence[Sequence[Any]], true: Sequence[Any]) -> Floats:
        rows = np.ones((len(true), 2))
        for row, (results, right) in enumerate(zip(predicted, true, strict=True)):
            items = set(right) if isinstance(right, (set, frozenset, list, tuple)) else {right}
            if not items:
                raise ValueError(f"query {row} has no right item: recall is not defined for it; leave it out")
            rows[row, 0] = len(items.intersection(results[: self.k])) / len(items)
        return rows

    def value(self, totals: Floats) -> Floats:
        return divide(totals[..., 0], totals[..., 1], empty=float("nan"))
