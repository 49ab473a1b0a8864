"""Metrics of predicted classes: accuracy, F1 and Matthews' correlation, each equal to scikit-learn's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmlab.metrics.metric import Floats, SummedMetric, divide, harmonic

POSITIVE_NAMES = (
    *("1", "yes", "true", "positive", "pos", "equivalent", "duplicate", "entailment", "acceptable", "spam", "+"),
    *("paraphrase", "is_duplicate", "same", "relevant", "toxic"),
)
"""Names by which the class that an F1 is about is known, where its opposite has another name."""


class Accuracy(SummedMetric):
    """The fraction of examples that are right."""

    name = "accuracy"
    is_proportion = True

    def statistics(self, predicted: Sequence[Any], true: Sequence[Any]) -> Floats:
        right = [float(p == t) for p, t in zip(predicted, true, strict=True)]
        return np.stack([np.array(right, dtype=np.float64), np.ones(len(right))], axis=1)

    def value(self, totals: Floats) -> Floats:
        return divide(totals[..., 0], totals[..., 1], empty=float("nan"))


class ChoiceAccuracy(Accuracy):
    """The fraction of questions whose choice is right.

    Instead of the number of a choice, a prediction may be a list of probabilities, one for each choice. It counts as
    the probability of the right one: the expected accuracy of choosing by them.
    """

    def statistics(self, predicted: Sequence[Any], true: Sequence[Any]) -> Floats:
        right = [p[t] if isinstance(p, (list, tuple)) else float(p == t) for p, t in zip(predicted, true, strict=True)]
        return np.stack([np.array(right, dtype=np.float64), np.ones(len(right))], axis=1)


class F1(SummedMetric):
    """F1 of one class, the positive one; 0 where it is neither predicted nor gold."""

    name = "f1"

    def __init__(self, positive: Any) -> None:
        self.positive = positive

    def statistics(self, predicted: Sequence[Any], true: Sequence[Any]) -> Floats:
        chosen = np.array([p == self.positive for p in predicted], dtype=np.float64)
        gold = np.array([t == self.positive for t in true], dtype=np.float64)
        return np.stack([chosen * gold, chosen, gold], axis=1)

    def value(self, totals: Floats) -> Floats:
        return harmonic(totals[..., 0], totals[..., 1], totals[..., 2])


class MacroF1(SummedMetric):
    """The mean of the F1 of all classes that are predicted or gold."""

    name = "macro_f1"

    def statistics(self, predicted: Sequence[Any], true: Sequence[Any]) -> Floats:
        chosen, gold = one_hot(predicted, true)
        return np.concatenate([chosen * gold, chosen, gold], axis=1)

    def value(self, totals: Floats) -> Floats:
        both, chosen, gold = np.split(totals, 3, axis=-1)
        each = harmonic(both, chosen, gold)
        present = chosen + gold > 0
        return divide((each * present).sum(-1), present.sum(-1).astype(np.float64), empty=float("nan"))


class Matthews(SummedMetric):
    """The correlation of predicted and true classes (Matthews 1975; of several classes, Gorodkin 2004).

    R = (c s − Σ p_k t_k) / √((s² − Σ p_k²) (s² − Σ t_k²)) where c of s examples are right, p_k are predicted
    as class k and t_k are of class k; 0 where all are predicted, or are, of one class.
    """

    name = "matthews"
    bounds = (-1.0, 1.0)

    def statistics(self, predicted: Sequence[Any], true: Sequence[Any]) -> Floats:
        chosen, gold = one_hot(predicted, true)
        right = (chosen * gold).sum(1, keepdims=True)
        return np.concatenate([right, np.ones_like(right), chosen, gold], axis=1)

    def value(self, totals: Floats) -> Floats:
        right, size = totals[..., 0], totals[..., 1]
        chosen, gold = np.split(totals[..., 2:], 2, axis=-1)
        covariance = right * size - (chosen * gold).sum(-1)
        # s² − Σ p_k² as Σ p_k (s − p_k), whose terms are all ≥ 0: a constant must have exactly 0
        variances = [(each * (size[..., None] - each)).sum(-1) for each in (chosen, gold)]
        return divide(covariance, np.sqrt(variances[0]) * np.sqrt(variances[1]), empty=0.0)


def one_hot(predicted: Sequence[Any], true: Sequence[Any]) -> tuple[Floats, Floats]:
    """Predicted and true classes as rows of 0 and 1, one column for each class seen in either: [N, C] twice."""
    classes: dict[Any, int] = {}
    numbers = [np.array([classes.setdefault(label, len(classes)) for label in part], int) for part in (true, predicted)]
    gold, chosen = (np.eye(len(classes))[each] for each in numbers)
    return chosen, gold


def confusion(predicted: Sequence[Any], true: Sequence[Any], *, labels: Sequence[Any]) -> NDArray[np.int64]:
    """Confusion matrix [C, C]: how often an example of a class (row) was predicted as another (column)."""
    number = {label: i for i, label in enumerate(labels)}
    unknown = [label for label in (*true, *predicted) if label not in number]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is none of the labels {', '.join(map(str, labels))}")
    pairs = [number[t] * len(labels) + number[p] for p, t in zip(predicted, true, strict=True)]
    return np.bincount(np.array(pairs, int), minlength=len(labels) ** 2).reshape(len(labels), len(labels))


def positive_label(labels: Sequence[str]) -> str | None:
    """The class that an F1 is computed for, if its name includes one."""
    known = [label for label in labels if label.lower() in POSITIVE_NAMES]
    return known[0] if len(known) == 1 and len(labels) == 2 else None
