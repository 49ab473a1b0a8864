"""Recall@k: how often a search finds what it looks for among its first k results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.metrics.metric import Direction, Floats, SummedMetric, divide

Floats32 = NDArray[np.float32]
ROWS = 1024
"""Queries whose scores are held at once."""


class Ranks(NamedTuple):
    """The outcome of a search by several queries among the same candidates."""

    best: NDArray[np.int64]  # [N] rank of the best right candidate, from 1
    right: NDArray[np.int64]  # [N] right candidates
    candidates: int


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


class RankedRecall(SummedMetric):
    """The fraction of queries whose best right result has at most rank k; a prediction is that rank, from 1.

    Where several results are right, as for two pictures with the same caption, one of them is enough. The truth is the
    number of right results of each query, from which `chance_of_recall` follows.
    """

    is_proportion = True

    def __init__(self, k: int) -> None:
        self.k, self.name = k, f"recall_at_{k}"

    def statistics(self, predicted: Sequence[int], true: Sequence[int]) -> Floats:
        found = np.asarray(predicted) <= self.k
        return np.stack([found.astype(np.float64), np.ones(len(found))], axis=1)

    def value(self, totals: Floats) -> Floats:
        return divide(totals[..., 0], totals[..., 1], empty=float("nan"))


def rank_matches(queries: Floats32, candidates: Floats32, right: Callable[[slice], NDArray[np.bool_]]) -> Ranks:
    """The rank of the best right candidate of each query, by the product of their vectors [N, E] and [M, E].

    `right(rows)` says which candidates [rows, M] are right for some of the queries; each needs one. A wrong candidate
    with the same score comes before a right one, so that equal vectors for everything are no success.
    """
    best, count = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for first in range(0, len(queries), ROWS):
        rows = slice(first, min(first + ROWS, len(queries)))
        scores, is_right = queries[rows] @ candidates.T, right(rows)
        top = np.where(is_right, scores, -np.inf).max(1, keepdims=True)
        best.append(1 + ((scores >= top) & ~is_right).sum(1))
        count.append(is_right.sum(1))
    return Ranks(np.concatenate(best), np.concatenate(count), len(candidates))


def chance_of_recall(ranks: Ranks, k: int) -> float:
    """The recall at k of a random order: the mean over queries of 1 − C(M − r, k) / C(M, k) for r right candidates."""
    wrong, number = ranks.candidates - ranks.right, ranks.candidates
    missed = np.ones(len(ranks.right))
    for position in range(min(k, number)):
        missed *= np.maximum(0, wrong - position) / (number - position)
    return float(1 - missed.mean()) if len(missed) else float("nan")


class Matching(NamedTuple):
    """Vectors of pairs of pictures and texts, with the numbers of their pictures and captions: equal ones are equal."""

    pictures: Floats32  # [N, E]
    texts: Floats32  # [N, E]
    picture_numbers: NDArray[np.int64]  # [N]
    caption_numbers: NDArray[np.int64]  # [N]

    def text_to_picture(self) -> Ranks:
        """Each distinct caption looks for its pictures among the distinct pictures."""
        return self._search(self.texts, self.caption_numbers, self.pictures, self.picture_numbers)

    def picture_to_text(self) -> Ranks:
        """Each distinct picture looks for its captions among the distinct captions."""
        return self._search(self.pictures, self.picture_numbers, self.texts, self.caption_numbers)

    @staticmethod
    def _search(queries: Floats32, own: NDArray[np.int64], candidates: Floats32, others: NDArray[np.int64]) -> Ranks:
        _, query_rows, query_of = np.unique(own, return_index=True, return_inverse=True)
        _, candidate_rows, candidate_of = np.unique(others, return_index=True, return_inverse=True)
        pairs = np.zeros((len(query_rows), len(candidate_rows)), dtype=np.bool_)
        pairs[query_of, candidate_of] = True
        return rank_matches(queries[query_rows], candidates[candidate_rows], lambda rows: pairs[rows])


class StreamingRecall:
    """Recall at k over all pairs of an evaluation, in one direction; it is shown the vectors of each batch."""

    better: Direction = "higher"

    def __init__(self, direction: Literal["text_to_picture", "picture_to_text"], k: int) -> None:
        self.direction, self.metric = direction, RankedRecall(k)
        self._parts: list[Matching] = []

    def add(self, watched: Matching) -> None:
        self._parts.append(watched)

    def value(self) -> float:
        if not self._parts:
            return float("nan")
        ranks: Ranks = getattr(join_matchings(self._parts), self.direction)()
        return self.metric.score(ranks.best.tolist(), ranks.right.tolist())


def join_matchings(parts: Sequence[Matching]) -> Matching:
    """The pairs of several batches together."""
    return Matching(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
