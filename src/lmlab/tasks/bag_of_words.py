"""Bags of words: logistic regression or ridge regression over the words and word pairs of a text, by TF-IDF.

What Wang & Manning (2012, "Baselines and Bigrams") found hard to beat on small sets. Of a pair of texts there are the words
of each, the words of both, and how much of one is in the other.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch

from lmlab.data.reading.examples import Example
from lmlab.tasks.baseline import Predictions, check_examples, split_off
from lmlab.tasks.linear import Linear, Objective, SparseFeatures, cross_entropy_to, fit_linear, squared_error_to

WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
MOST_FEATURES = 100_000
PENALTIES = (1.0, 0.1, 0.01)
"""On the squared weights, against the sum of the losses; the strongest first, and each fit begins where the last ended."""
USUAL_PENALTY = 0.1


def words_of(text: str) -> list[str]:
    """Words and single punctuation marks, in small letters."""
    return WORD.findall(text.lower())


def bag(text: str) -> Counter[str]:
    """Words and pairs of neighbours with their counts."""
    words = words_of(text)
    return Counter([*words, *(f"{one} {two}" for one, two in pairwise(words))])


class TextFeatures:
    """What of a text, or of a pair of texts, is looked at: TF-IDF of length 1, then numbers of how much is shared."""

    SHARED = ("of_both", "of_a", "of_b", "pairs", "cosine", "lengths")

    def __init__(self, examples: Sequence[Example]) -> None:
        """The features of training examples: the most frequent ones, and in how many examples each is."""
        self._pairs = any(each.b is not None for each in examples)
        documents = Counter(name for each in examples for name in self._names(each))
        kept = documents.most_common(MOST_FEATURES)
        self._columns = {name: column for column, (name, _) in enumerate(kept)}
        self._weight = {name: math.log((1 + len(examples)) / (1 + count)) + 1 for name, count in kept}
        self._shared_at = len(kept)
        self.width = len(kept) + (len(self.SHARED) if self._pairs else 0)

    def matrix(self, examples: Sequence[Example]) -> SparseFeatures:
        """The features of examples, those not seen in training left out."""
        return SparseFeatures((self._row(each) for each in examples), width=self.width)

    def _names(self, example: Example) -> Mapping[str, int]:
        a = bag(_text(example.a))
        if not self._pairs:
            return a
        b = bag(example.b or "")
        parts = (("a", a), ("b", b), ("both", a & b))
        return {f"{part}:{name}": count for part, names in parts for name, count in names.items()}

    def _row(self, example: Example) -> dict[int, float]:
        row = {}
        for name, count in self._names(example).items():
            if (column := self._columns.get(name)) is not None:
                row[column] = (1 + math.log(count)) * self._weight[name]
        length = math.sqrt(sum(value * value for value in row.values())) or 1.0
        row = {column: value / length for column, value in row.items()}
        if self._pairs:
            row.update(enumerate(self._shared(_text(example.a), example.b or ""), start=self._shared_at))
        return row

    def _shared(self, a: str, b: str) -> tuple[float, ...]:
        """How much of two texts is the same: each from 0 to 1, in the order of `SHARED`."""
        one, two = Counter(words_of(a)), Counter(words_of(b))
        both = (one & two).total()
        pairs = [{name for name in bag(text) if " " in name} for text in (a, b)]
        weights = [
            {name: count * self._weight.get(f"{part}:{name}", 1.0) for name, count in names.items()}
            for part, names in (("a", one), ("b", two))
        ]
        product = sum(value * weights[1].get(name, 0.0) for name, value in weights[0].items())
        sizes = [math.sqrt(sum(value * value for value in each.values())) for each in weights]
        longest = max(one.total(), two.total(), 1)
        return (
            both / max((one | two).total(), 1),
            both / max(one.total(), 1),
            both / max(two.total(), 1),
            len(pairs[0] & pairs[1]) / max(len(pairs[0] | pairs[1]), 1),
            product / (sizes[0] * sizes[1] or 1.0),
            min(one.total(), two.total()) / longest,
        )


class WordClassifier:
    """Multinomial logistic regression over the words of a text or a pair."""

    name = "bag_of_words"

    def fit(self, train: Sequence[Example], *, valid: Sequence[Example] | None = None) -> None:
        check_examples(train)
        self.labels: list[str] = sorted({each.label for each in train})
        place = {label: i for i, label in enumerate(self.labels)}

        def objective(examples: Sequence[Example]) -> Objective:
            return cross_entropy_to(torch.tensor([place[each.label] for each in examples]))

        part, held_out = split_off(train, valid)
        held_out = [each for each in held_out if each.label in place]
        self._features, self._linear = fit_texts(
            train, part, held_out, make_objective=objective, outputs=len(self.labels)
        )

    def predict(self, examples: Sequence[Example]) -> Predictions:
        sure, best = self.probabilities(examples).max(1)
        return Predictions([self.labels[i] for i in best.tolist()], sure.double().numpy())

    def probabilities(self, examples: Sequence[Example]) -> torch.Tensor:
        """Of each class, in the order of `labels`: [N, C]."""
        return self._linear.scores(self._features.matrix(examples)).softmax(1)


class WordRegression:
    """Ridge regression over the words of a text or a pair."""

    name = "bag_of_words"

    def fit(self, train: Sequence[Example], *, valid: Sequence[Example] | None = None) -> None:
        check_examples(train)
        scores = np.array([each.label for each in train], dtype=np.float64)
        self._mean, self._spread = float(scores.mean()), float(scores.std()) or 1.0

        def objective(examples: Sequence[Example]) -> Objective:
            scores = np.array([each.label for each in examples], dtype=np.float64)
            return squared_error_to(torch.from_numpy((scores - self._mean) / self._spread).float())

        part, held_out = split_off(train, valid)
        self._features, self._linear = fit_texts(train, part, held_out, make_objective=objective, outputs=1)

    def predict(self, examples: Sequence[Example]) -> Predictions:
        scores = self._linear.scores(self._features.matrix(examples))[:, 0].double() * self._spread + self._mean
        return Predictions(scores.tolist(), np.full(len(examples), np.nan))


def fit_texts(
    train: Sequence[Example],
    part: Sequence[Example],
    held_out: Sequence[Example],
    *,
    make_objective: Callable[[Sequence[Example]], Objective],
    outputs: int,
) -> tuple[TextFeatures, Linear]:
    """The features and weights of training examples, with the penalty that is best on what is held out."""
    features = TextFeatures(train)  # which words there are is no secret: only labels are held out
    penalty, best = USUAL_PENALTY, None
    if held_out:
        matrix, objective = features.matrix(part), make_objective(part)
        judged, judge = features.matrix(held_out), make_objective(held_out)
        fitted, lowest = None, math.inf
        for each in PENALTIES:
            fitted = fit_linear(matrix, objective, outputs=outputs, penalty=each / len(part), start=fitted)
            if (loss := float(judge(fitted.scores(judged))[0])) < lowest:
                penalty, best, lowest = each, fitted, loss
        if part is train and best is not None:
            return features, best
    matrix, objective = features.matrix(train), make_objective(train)
    return features, fit_linear(matrix, objective, outputs=outputs, penalty=penalty / len(train), start=best)


def _text(a: str | tuple[str, ...]) -> str:
    return a if isinstance(a, str) else " ".join(a)
