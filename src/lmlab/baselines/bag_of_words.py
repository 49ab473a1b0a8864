"""Bags of words: logistic regression or ridge regression on TF-IDF features of words and word pairs.

Wang & Manning (2012, "Baselines and Bigrams") found it hard to beat on small data sets. A pair of texts has features
for the words of each, for the words in both, and for how much the two overlap.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch

from lmlab.baselines.baseline import Predictions, check_examples
from lmlab.baselines.linear import (
    LinearModel,
    Objective,
    SparseFeatures,
    cross_entropy_to,
    fit_linear,
    squared_error_to,
)
from lmlab.data.readers.examples import Example

Item = TypeVar("Item")

WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
MOST_FEATURES = 100_000
PENALTIES = (1.0, 0.1, 0.01)
"""L2 penalties, relative to the sum of the losses; the strongest first: each fit starts from the previous one."""
USUAL_PENALTY = 0.1
MOST_TO_CHOOSE_ON = 20_000
FEWEST_TO_HOLD_OUT = 50
"""With fewer examples none is held out, and the penalty is `USUAL_PENALTY`."""


def words_of(text: str) -> list[str]:
    """Words and single punctuation marks, lowercase."""
    return WORD.findall(text.lower())


def bag(text: str) -> Counter[str]:
    """Words and pairs of adjacent words with their counts."""
    words = words_of(text)
    return Counter([*words, *(f"{one} {two}" for one, two in pairwise(words))])


class TextFeatures:
    """The features of a text or a pair of texts: TF-IDF of length 1, then measures of overlap."""

    SHARED = ("of_both", "of_a", "of_b", "pairs", "cosine", "lengths")

    def __init__(self, examples: Sequence[Example]) -> None:
        """Choose the most frequent features of training examples, and count the examples that have each."""
        self._pairs = any(each.b is not None for each in examples)
        documents = Counter(name for each in examples for name in self._names(*self._bags(each)))
        kept = documents.most_common(MOST_FEATURES)
        self._columns = {name: column for column, (name, _) in enumerate(kept)}
        self._weight = {name: math.log((1 + len(examples)) / (1 + count)) + 1 for name, count in kept}
        self._shared_at = len(kept)
        self.width = len(kept) + (len(self.SHARED) if self._pairs else 0)

    def rows(self, examples: Sequence[Example]) -> list[dict[int, float]]:
        """The features of examples, without those not seen in training."""
        return [self._row(each) for each in examples]

    def matrix(self, rows: Sequence[Mapping[int, float]]) -> SparseFeatures:
        """Rows of features as a matrix."""
        return SparseFeatures(rows, width=self.width)

    def _bags(self, example: Example) -> tuple[Counter[str], Counter[str]]:
        a = example.a if isinstance(example.a, str) else " ".join(example.a)
        return bag(a), bag(example.b or "") if self._pairs else Counter()

    def _names(self, a: Counter[str], b: Counter[str]) -> Mapping[str, int]:
        if not self._pairs:
            return a
        parts = (("a", a), ("b", b), ("both", a & b))
        return {f"{part}:{name}": count for part, names in parts for name, count in names.items()}

    def _row(self, example: Example) -> dict[int, float]:
        a, b = self._bags(example)
        row = {}
        for name, count in self._names(a, b).items():
            if (column := self._columns.get(name)) is not None:
                row[column] = (1 + math.log(count)) * self._weight[name]
        length = math.sqrt(sum(value * value for value in row.values())) or 1.0
        row = {column: value / length for column, value in row.items()}
        if self._pairs:
            row.update(enumerate(self._shared(a, b), start=self._shared_at))
        return row

    def _shared(self, a: Counter[str], b: Counter[str]) -> tuple[float, ...]:
        """Overlap of two texts: values from 0 to 1, in the order of `SHARED`."""
        one, two = ({name: count for name, count in each.items() if " " not in name} for each in (a, b))
        sizes = sum(one.values()), sum(two.values())
        both = sum(min(count, two[name]) for name, count in one.items() if name in two)
        pairs = a.keys() - one.keys(), b.keys() - two.keys()
        weights = [
            {name: count * self._weight.get(f"{part}:{name}", 1.0) for name, count in names.items()}
            for part, names in (("a", one), ("b", two))
        ]
        product = sum(value * weights[1].get(name, 0.0) for name, value in weights[0].items())
        lengths = [math.sqrt(sum(value * value for value in each.values())) for each in weights]
        return (
            both / max(sum(sizes) - both, 1),
            both / max(sizes[0], 1),
            both / max(sizes[1], 1),
            len(pairs[0] & pairs[1]) / max(len(pairs[0] | pairs[1]), 1),
            product / (lengths[0] * lengths[1] or 1.0),
            min(sizes) / max(*sizes, 1),
        )


class WordClassifier:
    """Multinomial logistic regression over the words of a text or a pair."""

    name = "bag_of_words"

    def fit(self, train: Sequence[Example], *, valid: Sequence[Example] | None = None) -> None:
        check_examples(train)
        self.labels: list[str] = sorted({each.label for each in train})
        position = {label: i for i, label in enumerate(self.labels)}

        def objective(examples: Sequence[Example]) -> Objective:
            return cross_entropy_to(torch.tensor([position[each.label] for each in examples]))

        known = None if valid is None else [each for each in valid if each.label in position]
        self._features, self._linear = fit_texts(train, known, make_objective=objective, outputs=len(self.labels))

    def predict(self, examples: Sequence[Example]) -> Predictions:
        confidence, best = self.probabilities(examples).max(1)
        return Predictions([self.labels[i] for i in best.tolist()], confidence.double().numpy())

    def probabilities(self, examples: Sequence[Example]) -> torch.Tensor:
        """Class probabilities [N, C], in the order of `labels`."""
        return self._linear.scores(self._features.matrix(self._features.rows(examples))).softmax(1)


class WordRegression:
    """Ridge regression over the words of a text or a pair."""

    name = "bag_of_words"

    def fit(self, train: Sequence[Example], *, valid: Sequence[Example] | None = None) -> None:
        check_examples(train)
        scores = np.array([each.label for each in train], dtype=np.float64)
        self._mean, self._std = float(scores.mean()), float(scores.std()) or 1.0

        def objective(examples: Sequence[Example]) -> Objective:
            scores = np.array([each.label for each in examples], dtype=np.float64)
            return squared_error_to(torch.from_numpy((scores - self._mean) / self._std).float())

        known = None if valid is None else [each for each in valid if each.label is not None]
        self._features, self._linear = fit_texts(train, known, make_objective=objective, outputs=1)

    def predict(self, examples: Sequence[Example]) -> Predictions:
        scores = (
            self._linear.scores(self._features.matrix(self._features.rows(examples)))[:, 0].double() * self._std
            + self._mean
        )
        return Predictions(scores.tolist(), np.full(len(examples), np.nan))


def thin_out(items: Sequence[Item]) -> Sequence[Item]:
    """Every item, every second, third …: at most `MOST_TO_CHOOSE_ON`, evenly spaced."""
    return items[:: -(-len(items) // MOST_TO_CHOOSE_ON) or 1]


def fit_texts(
    train: Sequence[Example],
    valid: Sequence[Example] | None,
    *,
    make_objective: Callable[[Sequence[Example]], Objective],
    outputs: int,
) -> tuple[TextFeatures, LinearModel]:
    """The features and weights of training examples, with the penalty that is best on held-out examples.

    Without validation examples, every tenth training example is held out while the penalty is chosen.
    """
    features = TextFeatures(train)  # features may use all examples: only labels are held out
    rows = features.rows(train)
    whole = valid or len(train) < FEWEST_TO_HOLD_OUT
    held_out = thin_out(valid or ([] if whole else train[::10]))
    chosen = thin_out([i for i in range(len(train)) if whole or i % 10])
    penalty, best = USUAL_PENALTY, None
    if held_out:
        matrix, objective = features.matrix([rows[i] for i in chosen]), make_objective([train[i] for i in chosen])
        held, held_loss = features.matrix(features.rows(held_out)), make_objective(held_out)
        fitted, lowest = None, math.inf
        for each in PENALTIES:
            fitted = fit_linear(matrix, objective, outputs=outputs, penalty=each / len(chosen), start=fitted)
            if (loss := float(held_loss(fitted.scores(held))[0])) < lowest:
                penalty, best, lowest = each, fitted, loss
        if len(chosen) == len(train) and best is not None:
            return features, best
    matrix, objective = features.matrix(rows), make_objective(train)
    return features, fit_linear(matrix, objective, outputs=outputs, penalty=penalty / len(train), start=best)
