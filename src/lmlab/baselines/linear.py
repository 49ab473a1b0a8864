"""Linear models over many features, fitted to the optimum: convex, so neither seeds nor learning rates matter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class Features(Protocol):
    """Rows of features as a matrix X [N, V] that offers only products."""

    width: int

    def times(self, weights: Tensor) -> Tensor:
        """X W: [V, C] -> [N, C]."""

    def back(self, gradients: Tensor) -> Tensor:
        """Xᵀ G: [N, C] -> [V, C]."""


class DenseFeatures:
    """A dense matrix of a few features."""

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self.width = values.shape[1]

    def times(self, weights: Tensor) -> Tensor:
        return self.values @ weights

    def back(self, gradients: Tensor) -> Tensor:
        return self.values.T @ gradients


class SparseFeatures:
    """A sparse matrix of many features, a few in each row; products are sums over embedding bags."""

    def __init__(self, rows: Iterable[Mapping[int, float]], *, width: int) -> None:
        self.width = width
        columns: list[int] = []
        values: list[float] = []
        sizes: list[int] = []
        for row in rows:
            columns.extend(row.keys())
            values.extend(row.values())
            sizes.append(len(row))
        self._rows = len(sizes)
        where = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes, dtype=torch.long))
        self._columns = torch.tensor(columns, dtype=torch.long)
        self._values = torch.tensor(values, dtype=torch.float32)
        self._offsets = _starts(torch.tensor(sizes, dtype=torch.long))
        order = torch.argsort(self._columns, stable=True)  # the transpose: for each feature, the rows that have it
        self._back_rows, self._back_values = where[order], self._values[order]
        self._back_offsets = _starts(torch.bincount(self._columns, minlength=width))

    def times(self, weights: Tensor) -> Tensor:
        return _sum_bags(weights, self._columns, self._values, self._offsets)

    def back(self, gradients: Tensor) -> Tensor:
        return _sum_bags(gradients, self._back_rows, self._back_values, self._back_offsets)


def _starts(sizes: Tensor) -> Tensor:
    return F.pad(sizes.cumsum(0)[:-1], (1, 0)) if len(sizes) else sizes


def _sum_bags(table: Tensor, positions: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
    if not len(positions) or not len(offsets):
        return table.new_zeros(len(offsets), table.shape[1])
    return F.embedding_bag(positions, table, offsets, mode="sum", per_sample_weights=values)


class LinearModel(NamedTuple):
    """Scores X W + b."""

    weights: Tensor  # [V, C]
    bias: Tensor  # [C]

    def scores(self, features: Features) -> Tensor:
        return features.times(self.weights) + self.bias


Objective = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From scores [N, C] to the mean loss and its gradient by the scores."""


@torch.no_grad()
def fit_linear(
    features: Features,
    objective: Objective,
    *,
    outputs: int,
    penalty: float,
    start: LinearModel | None = None,
    steps: int = 60,
) -> LinearModel:
    """The weights that minimise loss + penalty / 2 |W|² (no penalty on the bias), by L-BFGS (Liu & Nocedal 1989)."""
    weights = start.weights.clone() if start else torch.zeros(features.width, outputs)
    bias = start.bias.clone() if start else torch.zeros(outputs)
    optimizer = torch.optim.LBFGS(
        [weights, bias], max_iter=steps, history_size=8, line_search_fn="strong_wolfe", tolerance_grad=1e-6
    )

    def closure() -> float:
        loss, gradient = objective(features.times(weights) + bias)
        weights.grad = features.back(gradient) + penalty * weights
        bias.grad = gradient.sum(0)
        return float(loss + penalty / 2 * weights.square().sum())

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return LinearModel(weights, bias)


def cross_entropy_to(targets: Tensor) -> Objective:
    """Cross-entropy of classes [N] under the softmax of their scores."""

    def objective(scores: Tensor) -> tuple[Tensor, Tensor]:
        log_probabilities = scores.log_softmax(1)
        gradient = log_probabilities.exp()
        gradient[torch.arange(len(targets)), targets] -= 1
        return F.nll_loss(log_probabilities, targets), gradient / len(targets)

    return objective


def squared_error_to(targets: Tensor) -> Objective:
    """Half the mean squared error of numbers [N]."""

    def objective(scores: Tensor) -> tuple[Tensor, Tensor]:
        error = scores[:, 0] - targets
        return error.square().mean() / 2, error[:, None] / len(targets)

    return objective


def choice_among(groups: Tensor, right: Tensor) -> Objective:
    """Cross-entropy of one correct row [G] per group, under the softmax of scores [N, 1] within the group [N]."""

    def objective(scores: Tensor) -> tuple[Tensor, Tensor]:
        log_probabilities = grouped_log_softmax(scores[:, 0], groups)
        gradient = log_probabilities.exp()
        gradient[right] -= 1
        return -log_probabilities[right].mean(), gradient[:, None] / len(right)

    return objective


def grouped_log_softmax(scores: Tensor, groups: Tensor) -> Tensor:
    """log softmax of scores [N] within each group; groups are numbered from 0."""
    count = int(groups.max()) + 1 if len(groups) else 0
    highest = scores.new_full((count,), -torch.inf).scatter_reduce(0, groups, scores, "amax")
    shifted = scores - highest[groups]
    return shifted - scores.new_zeros(count).scatter_add(0, groups, shifted.exp()).log()[groups]
