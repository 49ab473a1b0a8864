"""What the predictions of one model show: confusions, mistakes, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lmlab.metrics.statistics import wilson
from lmlab.pages.figures import Agreement, Reliability, ReliabilityBin

UPRIGHT_ABOVE = 90
"""Letters in the head of a confusion matrix above which they are written upright."""
ENOUGH = 0.02
"""The least gap between confidence and accuracy that is called one."""


class EvidenceWord(NamedTuple):
    """A tagged word of a mistake."""

    text: str
    true: str
    predicted: str


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """One wrong prediction: texts with what was predicted and what is true, or words with their tags."""

    confidence: str = ""
    picture: str = ""
    """The address of an image, `data:…`, where the example is a picture."""
    texts: Sequence[str] = ()
    predicted: str = ""
    true: str | Sequence[str] = ""
    words: Sequence[EvidenceWord] = ()


class Confusion(NamedTuple):
    """Counts of each true class (rows) and predicted class (columns)."""

    labels: Sequence[str]
    counts: Sequence[Sequence[int]]

    @property
    def is_wide(self) -> bool:
        """Whether the labels above the matrix are written upright, to save space."""
        return sum(min(22, len(label)) + 3 for label in self.labels) > UPRIGHT_ABOVE

    def recall(self, number: int) -> float | None:
        """The fraction of a class that is predicted as such; None where it has no examples."""
        total = sum(self.counts[number])
        return self.counts[number][number] / total if total else None

    def precision(self, number: int) -> float | None:
        """The fraction of the predictions of a class that are right; None where there are none."""
        total = sum(row[number] for row in self.counts)
        return self.counts[number][number] / total if total else None


class TypeScores(NamedTuple):
    """How well the spans of one type are found."""

    type: str
    f1: float
    precision: float
    recall: float
    gold: int
    predicted: int
    correct: int


class Calibration(NamedTuple):
    """Confidence against accuracy; fractions, the bins in percent."""

    bins: Sequence[ReliabilityBin]
    error: float
    confidence: float
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the predictions of a model for labelled examples show; empty parts are left out of the page."""

    count: int
    wrong: int
    mistakes: Sequence[Mistake]
    title: str = "The worst mistakes"
    summary: str = ""
    """A sentence about all mistakes, before the worst of them."""
    counted: str = "examples"
    """What a confusion matrix counts."""
    confusion: Confusion | None = None
    confusions: Sequence[tuple[str, str, int]] = ()
    """(true, predicted, count), the most frequent first, where there are too many classes for a matrix."""
    types: Sequence[TypeScores] = ()
    scatter: Sequence[tuple[float, float]] = ()
    """(true, predicted)."""
    calibration: Calibration | None = None

    @property
    def agreement(self) -> Agreement | None:
        """The figure of predicted against true numbers."""
        return Agreement("Predicted against true numbers", self.scatter) if self.scatter else None

    @property
    def reliability(self) -> Reliability | None:
        """The figure of accuracy by confidence."""
        title = "Reliability: fraction of right predictions by confidence"
        return Reliability(title, self.calibration.bins) if self.calibration else None


def describe_calibration(found: Calibration) -> str:
    """Whether confidence is too high, too low or right, as far as the number of examples can show."""
    count, gap = sum(each.size for each in found.bins), found.confidence - found.accuracy
    _, low, high = wilson(round(found.accuracy * count), count)
    if low is not None and high is not None:
        if abs(gap) > ENOUGH and not low <= found.confidence <= high:
            return "overconfident" if gap > 0 else "underconfident"
        if high - low <= 2 * ENOUGH:
            return "well calibrated"
    return "no clear error in so few examples"
