"""Calibration: whether the confidence of a model equals its accuracy (Guo et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class ConfidenceBin(NamedTuple):
    """The predictions whose confidence lies above `low` and up to `high`."""

    low: float
    high: float
    size: int
    confidence: float  # their mean; not a number where there are none
    accuracy: float


def reliability_curve(confidences: Sequence[float], right: Sequence[bool], *, bins: int = 10) -> list[ConfidenceBin]:
    """The accuracy of predictions by their confidence, in bins of equal width."""
    given = np.asarray(confidences, dtype=np.float64).reshape(-1)
    correct = np.asarray(right, dtype=np.float64).reshape(-1)
    if len(given) != len(correct) or bins < 1:
        raise ValueError(f"{len(given)} confidences, {len(correct)} predictions, {bins} bins: give one each, and a bin")
    if len(given) and not (given.min() >= 0 and given.max() <= 1):
        raise ValueError("confidences must be probabilities, from 0 to 1")
    bin_of = np.searchsorted([(i + 1) / bins for i in range(bins)], given)
    counts = np.bincount(bin_of, minlength=bins)
    sums = (np.bincount(bin_of, weights=each, minlength=bins) for each in (given, correct))
    confidence, accuracy = (np.where(counts > 0, each / np.maximum(counts, 1), np.nan) for each in sums)
    return [
        ConfidenceBin(i / bins, (i + 1) / bins, int(counts[i]), float(confidence[i]), float(accuracy[i]))
        for i in range(bins)
    ]


def expected_calibration_error(confidences: Sequence[float], right: Sequence[bool], *, bins: int = 10) -> float:
    """The mean distance of confidence and accuracy, each bin weighted by its fraction of the predictions."""
    curve = [each for each in reliability_curve(confidences, right, bins=bins) if each.size]
    total = sum(each.size for each in curve)
    return sum(each.size * abs(each.confidence - each.accuracy) for each in curve) / total if total else float("nan")
