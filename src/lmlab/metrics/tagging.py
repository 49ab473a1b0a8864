"""Metrics of tagged words: the spans that tags mark, found and scored as conlleval does, and single tags.

The rules are those of the shared tasks' script (Tjong Kim Sang & Buchholz 2000), which reads IOB1, IOB2 and IOBES alike
and makes spans of any sequence, legal or not: an I after an O begins a span, and so does a change of type. (The script
of 2000 knows no S, and E only before what is not B; E and S, and L and U of BILOU, are
read here as its later ports do.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lmlab.metrics.metric import Floats, SummedMetric, divide, harmonic

Tags = Sequence[str]


class Span(NamedTuple):
    """Words from `start` up to, not including, `end`, of one type."""

    type: str
    start: int
    end: int


class SpanScores(NamedTuple):
    """How well spans were found: as fractions, with the numbers that they come from."""

    precision: float
    recall: float
    f1: float
    correct: int
    predicted: int
    gold: int


def spans(tags: Tags) -> list[Span]:
    """The spans that tags mark, from left to right; BILOU's L and U are read as E and S."""
    found: list[Span] = []
    begun: int | None = None
    before, type_before = "O", ""
    for position, whole in enumerate((*tags, "O")):
        tag, _, type_ = whole.partition("-")
        tag = {"L": "E", "U": "S"}.get(tag, tag)
        other = type_ != type_before
        if begun is not None and (other or tag in ("O", "B", "S") or before in ("E", "S")):
            found.append(Span(type_before, begun, position))
            begun = None
        if tag != "O" and (other or tag in ("B", "S") or (tag in ("I", "E") and before in ("O", "E", "S"))):
            begun = position
        before, type_before = tag, type_
    return found


class SpanMetric(SummedMetric):
    """A metric of spans, which are right where type, first and last word are; over all types and sentences at once."""

    def statistics(self, predicted: Sequence[Tags], true: Sequence[Tags]) -> Floats:
        """Of each sentence, the number of spans that are correct, predicted and gold."""
        rows = np.zeros((len(true), 3))
        for row, tags in enumerate(zip(predicted, true, strict=True)):
            check_words(*tags)
            ours, gold = (set(spans(each)) for each in tags)
            rows[row] = len(ours & gold), len(ours), len(gold)
        return rows


class SpanF1(SpanMetric):
    """The harmonic mean of precision and recall; 0 where there are no spans at all."""

    name = "f1"

    def value(self, totals: Floats) -> Floats:
        return harmonic(totals[..., 0], totals[..., 1], totals[..., 2])


class SpanPrecision(SpanMetric):
    """The fraction of the predicted spans that are correct."""

    name = "precision"

    def value(self, totals: Floats) -> Floats:
        return divide(totals[..., 0], totals[..., 1], empty=0.0)


class SpanRecall(SpanMetric):
    """The fraction of the gold spans that are predicted."""

    name = "recall"

    def value(self, totals: Floats) -> Floats:
        return divide(totals[..., 0], totals[..., 2], empty=0.0)


class TagAccuracy(SummedMetric):
    """The fraction of words whose tag is right."""

    name = "accuracy"

    def statistics(self, predicted: Sequence[Tags], true: Sequence[Tags]) -> Floats:
        rows = np.zeros((len(true), 2))
        for row, (predicted_one, gold) in enumerate(zip(predicted, true, strict=True)):
            check_words(predicted_one, gold)
            rows[row] = sum(p == t for p, t in zip(predicted_one, gold, strict=True)), len(gold)
        return rows

    def value(self, totals: Floats) -> Floats:
        return divide(totals[..., 0], totals[..., 1], empty=float("nan"))


def scores_by_type(predicted: Sequence[Tags], true: Sequence[Tags]) -> dict[str, SpanScores]:
    """The table that conlleval prints: how well the spans of each type were found, in the order of the alphabet."""
    correct: Counter[str] = Counter()
    counts: dict[str, Counter[str]] = {"predicted": Counter(), "gold": Counter()}
    for ours, gold in zip(predicted, true, strict=True):
        check_words(ours, gold)
        counts["predicted"].update(span.type for span in spans(ours))
        counts["gold"].update(span.type for span in spans(gold))
        correct.update(span.type for span in set(spans(ours)) & set(spans(gold)))
    table = {}
    for type_ in sorted(counts["predicted"].keys() | counts["gold"].keys()):
        c, p, g = correct[type_], counts["predicted"][type_], counts["gold"][type_]
        table[type_] = SpanScores(c / p if p else 0.0, c / g if g else 0.0, 2 * c / (p + g), c, p, g)
    return table


def check_words(predicted: Tags, true: Tags) -> None:
    """Every word has one tag."""
    if len(predicted) != len(true):
        raise ValueError(f"{len(predicted)} tags for a sentence of {len(true)} words: give one for each word")
