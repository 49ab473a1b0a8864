"""Majority baselines: the most frequent answer, whatever the input."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from lmlab.baselines.baseline import Predictions, check_examples
from lmlab.data.readers.examples import Example


class MajorityLabel:
    """The most frequent class; ties go to the first seen."""

    name = "majority"

    def fit(self, train: Sequence[Example], *, valid: Sequence[Example] | None = None) -> None:
        check_examples(train)
        self._label, self._fraction = most_frequent(Counter(each.label for each in train))

    def predict(self, examples: Sequence[Example]) -> Predictions:
        return Predictions([self._label] * len(examples), np.full(len(examples), self._fraction))


class MeanScore:
    """The mean of the scores, which minimises the squared error of a constant. Its correlation is undefined."""

    name = "majority"

    def fit(self, train: Sequence[Example], *, valid: Sequence[Example] | None = None) -> None:
        check_examples(train)
        self._mean = float(np.mean([each.label for each in train]))

    def predict(self, examples: Sequence[Example]) -> Predictions:
        return Predictions([self._mean] * len(examples), np.full(len(examples), np.nan))


class ChanceChoice:
    """Random guessing: every choice of a question has the same probability, which is the expected accuracy."""

    name = "chance"

    def fit(self, train: Sequence[Example], *, valid: Sequence[Example] | None = None) -> None:
        check_examples(train)

    def predict(self, examples: Sequence[Example]) -> Predictions:
        even = [1 / len(each.choices) for each in examples]
        labels = [[fraction] * len(each.choices) for fraction, each in zip(even, examples, strict=True)]
        return Predictions(labels, np.array(even, dtype=np.float64))


class MajorityChoice:
    """The position among the choices that is correct most often, out of those that a question has."""

    name = "majority"

    def fit(self, train: Sequence[Example], *, valid: Sequence[Example] | None = None) -> None:
        check_examples(train)
        self._counts = Counter(int(each.label) for each in train)

    def predict(self, examples: Sequence[Example]) -> Predictions:
        found = []
        for each in examples:
            found.append(
                most_frequent(Counter({position: self._counts[position] for position in range(len(each.choices))}))
            )
        return Predictions(
            [label for label, _ in found], np.array([fraction for _, fraction in found], dtype=np.float64)
        )


class MajorityTag:
    """The most frequent tag of each word; for unseen words the most frequent of all."""

    name = "majority"

    def fit(self, train: Sequence[Example], *, valid: Sequence[Example] | None = None) -> None:
        check_examples(train)
        tags: defaultdict[str, Counter[str]] = defaultdict(Counter)
        overall: Counter[str] = Counter()
        for each in train:
            overall.update(each.label)
            for word, tag in zip(each.a, each.label, strict=True):
                tags[word][tag] += 1
        self._best = {word: most_frequent(counts) for word, counts in tags.items()}
        self._other = most_frequent(overall) if overall else ("O", 1.0)

    def predict(self, examples: Sequence[Example]) -> Predictions:
        found = [[self._best.get(word, self._other) for word in each.a] for each in examples]
        confidence = [np.mean([fraction for _, fraction in row]) if row else 1.0 for row in found]
        return Predictions([tuple(tag for tag, _ in row) for row in found], np.array(confidence, dtype=np.float64))


class MajorityAnswer:
    """The most frequent text among the first answers. "No answer" counts too, and is the result on SQuAD 2.0."""

    name = "majority"

    def fit(self, train: Sequence[Example], *, valid: Sequence[Example] | None = None) -> None:
        check_examples(train)
        self._answer, self._fraction = most_frequent(
            Counter(each.label[0].text if each.label else "" for each in train)
        )

    def predict(self, examples: Sequence[Example]) -> Predictions:
        return Predictions([self._answer] * len(examples), np.full(len(examples), self._fraction))


def most_frequent(counts: Counter[Any]) -> tuple[Any, float]:
    """The most frequent item (ties go to the first) and its fraction."""
    label, count = counts.most_common(1)[0]
    total = counts.total()
    return label, count / total if total else 1 / len(counts)
