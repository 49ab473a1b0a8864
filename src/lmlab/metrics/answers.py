"""Metrics of answers to questions: exact match and F1 of words, as the scripts of SQuAD 1.1 and 2.0 compute them.

Rajpurkar et al. 2016, 2018. An example's score is the best over its answers. The scripts print percentages; these are
fractions. Where some question has no answer, the rules of 2.0 hold for all: no answer is the empty text, and right only
there; answers of nothing but articles and punctuation do not count.
"""

from __future__ import annotations

import re
import string
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from lmlab.metrics.metric import Floats, SummedMetric

ARTICLES = re.compile(r"\b(a|an|the)\b")
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normal_words(text: str) -> list[str]:
    """The words of an answer that count: lowercase, without punctuation and articles."""
    return ARTICLES.sub(" ", text.lower().translate(WITHOUT_PUNCTUATION)).split()


class AnswerMetric(SummedMetric):
    """The mean over questions of how well the predicted text agrees with the nearest of the answers."""

    @abstractmethod
    def agreement(self, predicted: list[str], true: list[str], *, may_be_none: bool) -> float:
        """Of the normal words of a prediction and an answer."""

    def statistics(self, predicted: Sequence[str], true: Sequence[Sequence[Any]]) -> Floats:
        """`true` has the answers of each question: texts, or tuples that begin with one; it may have none."""
        may_be_none = any(not answers for answers in true)
        rows = np.ones((len(true), 2))
        for row, (given, answers) in enumerate(zip(predicted, true, strict=True)):
            texts = [normal_words(each if isinstance(each, str) else each[0]) for each in answers]
            if may_be_none:
                texts = [text for text in texts if text] or [[]]
            words = normal_words(given)
            rows[row, 0] = max(self.agreement(words, text, may_be_none=may_be_none) for text in texts)
        return rows

    def value(self, totals: Floats) -> Floats:
        mean: Floats = totals[..., 0] / totals[..., 1]
        return mean


class ExactMatch(AnswerMetric):
    """The fraction of questions whose answer is right to the word."""

    name = "exact_match"
    is_proportion = True

    def agreement(self, predicted: list[str], true: list[str], *, may_be_none: bool) -> float:
        return float(predicted == true)


class AnswerF1(AnswerMetric):
    """The mean F1 of the words of the answer, repeated words counted."""

    name = "f1"

    def agreement(self, predicted: list[str], true: list[str], *, may_be_none: bool) -> float:
        if may_be_none and not (predicted and true):
            return float(predicted == true)
        both = sum((Counter(predicted) & Counter(true)).values())
        return 2 * both / (len(predicted) + len(true)) if both else 0.0
