"""Metrics of captions, each against one or more references: exact match, and BLEU as sacrebleu computes it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from lmlab.metrics.bleu import translation_metrics
from lmlab.metrics.metric import Floats, SummedMetric, divide

ORDERS = 4
"""The longest n-grams of BLEU."""


class ExactCaption(SummedMetric):
    """The fraction of captions that equal one of their references; only the number of spaces does not count."""

    name = "exact_match"
    is_proportion = True

    def statistics(self, predicted: Sequence[str], true: Sequence[Sequence[str]]) -> Floats:
        right = [said.split() in [each.split() for each in own] for said, own in zip(predicted, true, strict=True)]
        return np.array([[each, 1.0] for each in right], np.float64)

    def value(self, totals: Floats) -> Floats:
        mean: Floats = totals[..., 0] / totals[..., 1]
        return mean


class CaptionBleu(SummedMetric):
    """BLEU of all captions, from 0 to 100 (Papineni et al. 2002): n-grams and lengths are summed over the captions.

    The score of all captions is sacrebleu's own; resamples of the bootstrap are scored without its smoothing.
    """

    name = "bleu"
    bounds = (0.0, 100.0)

    @cached_property
    def bleu(self) -> Any:
        """sacrebleu's metric; a ValueError where it is not installed."""
        return translation_metrics(needs="BLEU needs")["bleu"]

    @property
    def signature(self) -> str:
        """What sacrebleu computes, to be quoted with the score."""
        return str(self.bleu.get_signature())

    def score(self, predicted: Sequence[str], true: Sequence[Sequence[str]]) -> float:
        if not len(true):
            return float("nan")
        most = max(map(len, true))
        references = [[own[number] if number < len(own) else None for own in true] for number in range(most)]
        return float(self.bleu.corpus_score(list(predicted), references).score)

    def statistics(self, predicted: Sequence[str], true: Sequence[Sequence[str]]) -> Floats:
        """The matched and all n-grams of each order, and the lengths of the caption and of its reference."""
        rows = []
        for said, own in zip(predicted, true, strict=True):
            found = self.bleu.corpus_score([said], [[each] for each in own])
            rows.append([*found.counts, *found.totals, found.sys_len, found.ref_len])
        return np.array(rows, np.float64)

    def value(self, totals: Floats) -> Floats:
        precisions = divide(totals[..., :ORDERS], totals[..., ORDERS : 2 * ORDERS], empty=0.0)
        ratio = divide(totals[..., -1], totals[..., -2], empty=np.inf)
        with np.errstate(divide="ignore"):
            mean = np.exp(np.log(precisions).mean(-1))
        score: Floats = 100.0 * mean * np.exp(np.minimum(0.0, 1.0 - ratio))
        return score
