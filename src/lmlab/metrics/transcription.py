"""Metrics of transcribed texts: word error rate and character error rate, where lower is better.

Both are (substitutions + deletions + insertions) / length of the reference, summed over all texts: the Levenshtein
distance of words or characters. They may be above 1.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from lmlab.metrics.metric import Direction, Floats, SummedMetric, divide


class ErrorRate(SummedMetric):
    """Edits that turn the predicted texts into the true ones, divided by the length of the true ones."""

    better: Direction = "lower"
    bounds = (0.0, math.inf)

    @abstractmethod
    def split(self, text: str) -> Sequence[str]:
        """The pieces of a text that are compared."""

    def statistics(self, predicted: Sequence[str], true: Sequence[str]) -> Floats:
        rows = np.zeros((len(true), 2))
        for row, (predicted_one, reference) in enumerate(zip(predicted, true, strict=True)):
            pieces = self.split(reference)
            rows[row] = edit_distance(self.split(predicted_one), pieces), len(pieces)
        return rows

    def value(self, totals: Floats) -> Floats:
        return divide(totals[..., 0], totals[..., 1], empty=float("nan"))


class WordErrorRate(ErrorRate):
    """The error rate of words, which are separated by white space; case and punctuation count."""

    name = "word_error_rate"

    def split(self, text: str) -> Sequence[str]:
        return text.split()


class CharacterErrorRate(ErrorRate):
    """The error rate of characters; runs of white space count as one space."""

    name = "character_error_rate"

    def split(self, text: str) -> Sequence[str]:
        return " ".join(text.split())


def normalise(text: str) -> str:
    """Text in lower case without punctuation, its words separated by single spaces; apostrophes within words stay.

    So "Don't  WAIT!" and "don't wait" are equal. Numbers and abbreviations are left as they are written.
    """
    kept = re.sub(r"(?<=\w)[’'](?=\w)", "'", text.lower())
    return " ".join(re.sub(r"(?!(?<=\w)'(?=\w))[^\w\s]|_", " ", kept).split())


def edit_distance(one: Sequence[str], other: Sequence[str]) -> int:
    """The least number of substitutions, deletions and insertions that turn one sequence into the other."""
    distances = list(range(len(other) + 1))
    for row, piece in enumerate(one, start=1):
        diagonal, distances[0] = distances[0], row
        for column, wanted in enumerate(other, start=1):
            substituted = diagonal + (piece != wanted)
            diagonal = distances[column]
            distances[column] = min(substituted, diagonal + 1, distances[column - 1] + 1)
    return distances[-1]
