"""Choices and answers by the words that they, or their context, share with the question.

They follow the baselines of the data sets: a sliding window (Richardson et al. 2013, MCTest) and a logistic
regression over candidate spans (Rajpurkar et al. 2016, SQuAD), here with a few features and no parser.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from lmlab.baselines.bag_of_words import words_of
from lmlab.baselines.baseline import Floats, Predictions, check_examples
from lmlab.baselines.linear import DenseFeatures, LinearModel, choice_among, fit_linear, grouped_log_softmax
from lmlab.data.readers.examples import Answer, Example

PENALTY = 1e-4
MOST_QUESTIONS = 2000
"""Training questions used at most: enough for a few dozen weights."""
LONGEST = 6
CONTEXT_WORDS = 10
PIECE = re.compile(r"\w+(?:[.,'’:-]\w+)*|[^\w\s]")
QUESTIONS = (
    re.compile(r"\bwho(m|se)?\b"),
    re.compile(r"\b(when|what (year|date|day|month|time|century)|which year)\b"),
    re.compile(r"\bwhere\b|\b(what|which) (country|city|state|place)\b"),
    re.compile(r"\bhow (many|much|long|old|far|big|large|often)\b|\b(percent|percentage|number)\b"),
    re.compile(r"\b(why|how)\b"),
)
STOP_WORDS = frozenset(
    words_of(
        """
    a an the of in on at to for from by with and or but as is are was were be been being has have had do does did
    that this these those it its he she they his her their who which what when where how than then not no
    """
    )
)


class Rarity:
    """Inverse document frequency of a word."""

    def __init__(self, texts: Sequence[str]) -> None:
        counts = Counter(word for text in texts for word in set(words_of(text)))
        self._weight = {word: math.log((1 + len(texts)) / (1 + count)) + 0.1 for word, count in counts.items()}
        self._unseen = math.log(1 + len(texts)) + 0.1

    def __call__(self, word: str) -> float:
        return self._weight.get(word, self._unseen) if word[0].isalnum() else 0.0

    def total(self, words: set[str]) -> float:
        return sum(map(self, sorted(words)))


class ChoiceOverlap:
    """Chooses by words shared with the question and context, and by the length and position of correct choices."""

    name = "bag_of_words"
    POSITIONS = 8

    def fit(self, train: Sequence[Example], *, valid: Sequence[Example] | None = None) -> None:
        check_examples(train)
        self._rarity = Rarity([text for each in train for text in (str(each.a), each.b or "", *each.choices)])
        features, groups = self._rows(train)
        starts = np.cumsum([0, *(len(each.choices) for each in train)])[:-1]
        self._linear = fit_choice(features, groups, right=starts + np.array([int(each.label) for each in train]))

    def predict(self, examples: Sequence[Example]) -> Predictions:
        best, confidence = best_of_groups(self._linear, *self._rows(examples), count=len(examples))
        starts = np.cumsum([0, *(len(each.choices) for each in examples)])[:-1]
        return Predictions((best - starts).tolist(), confidence)

    def _rows(self, examples: Sequence[Example]) -> tuple[Floats, NDArray[np.int64]]:
        rows, groups = [], []
        for number, each in enumerate(examples):
            question, context = set(words_of(str(each.a))), set(words_of(each.b or ""))
            longest = max((len(choice) for choice in each.choices), default=1) or 1
            for position, choice in enumerate(each.choices):
                words = set(words_of(choice))
                total = self._rarity.total(words) or 1.0
                fractions = [self._rarity.total(words & other) / total for other in (question, context)]
                at = [float(position == i) for i in range(self.POSITIONS)]
                rows.append([*fractions, len(choice) / longest, math.log1p(len(words)), *at])
                groups.append(number)
        return np.array(rows, dtype=np.float64).reshape(len(rows), 4 + self.POSITIONS), np.array(groups, dtype=np.int64)


class CandidateSpans(NamedTuple):
    """Spans of a context that may answer a question, with their features."""

    positions: list[tuple[int, int]]  # characters from, to; (0, 0): there is no answer
    features: Floats


class AnswerOverlap:
    """Chooses a span of up to six words by the question words around it and by its look."""

    name = "bag_of_words"

    def fit(self, train: Sequence[Example], *, valid: Sequence[Example] | None = None) -> None:
        check_examples(train)
        self._rarity = Rarity([*dict.fromkeys(each.b or "" for each in train)])
        self._may_be_none = any(not each.label for each in train)
        groups: list[NDArray[np.int64]] = []
        right: list[int] = []
        features: list[Floats] = []
        count = 0
        for each in train[:: -(-len(train) // MOST_QUESTIONS)]:
            candidates = self._candidates(each)
            if (position := nearest(candidates.positions, each.label)) is None:
                continue
            groups.append(np.full(len(candidates.positions), len(right)))
            right.append(count + position)
            features.append(candidates.features)
            count += len(candidates.positions)
        if not right:
            raise ValueError("no answer of the training examples is found in its context")
        self._linear = fit_choice(np.concatenate(features), np.concatenate(groups), right=np.array(right))

    def predict(self, examples: Sequence[Example]) -> Predictions:
        answers, probabilities = [], np.ones(len(examples))
        for number, each in enumerate(examples):
            candidates = self._candidates(each)
            if not candidates.positions:
                answers.append("")
                continue
            one_group = np.zeros(len(candidates.positions), dtype=np.int64)
            best, confidence = best_of_groups(self._linear, candidates.features, one_group, count=1)
            start, end = candidates.positions[best[0]]
            answers.append((each.b or "")[start:end])
            probabilities[number] = confidence[0]
        return Predictions(answers, probabilities)

    def _candidates(self, example: Example) -> CandidateSpans:
        context, question = example.b or "", str(example.a)
        asked = set(words_of(question))
        pieces = list(PIECE.finditer(context))
        texts = [piece[0] for piece in pieces]
        low = [text.lower() for text in texts]
        is_word = np.array([text[0].isalnum() for text in texts], dtype=bool)
        known = np.array([word in asked and word not in STOP_WORDS for word in low], dtype=bool)
        weight = np.array([self._rarity(word) for word in low]).reshape(-1)
        is_stop_word = np.array([word in STOP_WORDS for word in low], dtype=bool)
        sums = {
            "known": _running(known),
            "hits": _running(known * weight),
            "capital": _running([text[0].isupper() for text in texts]),
            "digit": _running([any(letter.isdigit() for letter in text) for text in texts]),
            "rare": _running(weight),
        }
        sentence = _running([text in ".!?" for text in texts])[:-1]
        in_sentence = np.bincount(sentence.astype(int), weights=known * weight) if len(texts) else np.zeros(1)
        start, end = short_spans(is_word, is_stop_word=is_stop_word, sentence=sentence)
        size = (end - start).astype(np.float64)
        total = self._rarity.total({word for word in asked if word not in STOP_WORDS}) or 1.0
        inside = {name: each[end] - each[start] for name, each in sums.items()}
        around = (
            sums["hits"][np.minimum(end + CONTEXT_WORDS, len(texts))]
            - sums["hits"][np.maximum(start - CONTEXT_WORDS, 0)]
        )
        near = (around - inside["hits"]) / total
        capital, digit = inside["capital"] / size, inside["digit"] / size
        kind = next((i for i, pattern in enumerate(QUESTIONS) if pattern.search(question.lower())), len(QUESTIONS))
        looks = np.stack([capital, digit, (capital == 0) & (digit == 0)], axis=1)
        by_kind = np.zeros((len(start), len(QUESTIONS) + 1, 3))
        by_kind[:, kind] = looks
        columns = [
            near,
            in_sentence[sentence[start].astype(int)] / total,
            inside["known"] / size,
            inside["known"] > 0,
            inside["rare"] / size / 5,
            ~np.append(is_word, False)[end],  # followed by punctuation or the end
            is_stop_word[np.maximum(start - 1, 0)] & (start > 0),
            is_stop_word[start],
            *(size == each for each in range(1, LONGEST + 1)),
        ]
        features = np.concatenate(
            [
                np.stack(columns, axis=1).astype(np.float64),
                by_kind.reshape(len(start), by_kind.shape[1] * by_kind.shape[2]),
            ],
            axis=1,
        )
        positions = [
            (pieces[i].start(), pieces[j - 1].end()) for i, j in zip(start.tolist(), end.tolist(), strict=True)
        ]
        if self._may_be_none:
            none = np.zeros((1, features.shape[1]))  # no features: it wins if all other candidates score low
            features, positions = np.concatenate([features, none]), [*positions, (0, 0)]
        return CandidateSpans(positions, features)


def short_spans(
    is_word: NDArray[np.bool_], *, is_stop_word: NDArray[np.bool_], sentence: Floats
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Word ranges that an answer may have: within a sentence, not ending with a stop word."""
    start, length = (each.reshape(-1) for each in np.mgrid[0 : len(is_word), 1 : LONGEST + 1])
    fits = start + length <= len(is_word)
    start, end = start[fits], (start + length)[fits]
    keep = is_word[start] & is_word[end - 1] & ~is_stop_word[end - 1] & (sentence[start] == sentence[end - 1])
    return start[keep], end[keep]


def _running(values: Sequence[bool] | NDArray[np.generic]) -> Floats:
    """Cumulative sums, beginning with 0."""
    return np.append(0.0, np.cumsum(np.asarray(values, dtype=np.float64)))


def nearest(positions: Sequence[tuple[int, int]], answers: Sequence[Answer]) -> int | None:
    """The candidate that equals the first answer or overlaps it most; None without overlap."""
    if not answers:
        return positions.index((0, 0)) if (0, 0) in positions else None
    low, high = answers[0].start, answers[0].start + len(answers[0].text)
    fractions = [max(0, min(end, high) - max(start, low)) / max(end - start, high - low, 1) for start, end in positions]
    return int(np.argmax(fractions)) if fractions and max(fractions) > 0 else None


def fit_choice(features: Floats, groups: NDArray[np.int64], *, right: NDArray[np.int64]) -> LinearModel:
    """Fit weights that make the correct row of each group the most probable one."""
    rows = DenseFeatures(torch.from_numpy(features).float())
    objective = choice_among(torch.from_numpy(groups), torch.from_numpy(right))
    return fit_linear(rows, objective, outputs=1, penalty=PENALTY)


def best_of_groups(
    linear: LinearModel, features: Floats, groups: NDArray[np.int64], *, count: int
) -> tuple[NDArray[np.int64], Floats]:
    """The most probable row of each group, and its probability."""
    scores = linear.scores(DenseFeatures(torch.from_numpy(features).float()))[:, 0]
    probabilities = grouped_log_softmax(scores, torch.from_numpy(groups)).exp().double().numpy()
    order = np.lexsort(
        (-np.arange(len(groups)), probabilities, groups)
    )  # the best of each group last; ties go to the first
    last = np.searchsorted(groups[order], np.arange(count), side="right") - 1
    best = order[last]
    return best, probabilities[best]
