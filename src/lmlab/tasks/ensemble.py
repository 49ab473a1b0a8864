"""Several fine-tuned runs as one: the mean of what they say, as of a model that reads forwards and one backwards.

Howard & Ruder 2018, section 3.3: a classifier from each direction, and the average of their predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from lmlab.data.readers.examples import Example
from lmlab.progress import ReportProgress
from lmlab.tasks.predicting import Predictor
from lmlab.tasks.task import Prediction, Task

AVERAGED = ("classification", "regression")


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """Predictors of one task, whose probabilities (or scores) are averaged."""

    predictors: Sequence[Predictor]
    progress: ReportProgress | None = None

    def __post_init__(self) -> None:
        first, *others = (predictor.task for predictor in self.predictors)
        if first.name not in AVERAGED:
            raise ValueError(f"these runs do {first.name}; only {' and '.join(AVERAGED)} can be averaged over runs")
        for other in others:
            if other.name != first.name or other.config.labels != first.config.labels:
                raise ValueError(
                    f"runs of different tasks cannot be averaged: {_describe(first)}, and {_describe(other)}"
                )

    @property
    def task(self) -> Task:
        """That of the first; all have the same labels."""
        return self.predictors[0].task

    def predict(self, examples: Sequence[Example]) -> list[Prediction]:
        """What all say of each example together."""
        found = [replace(each, progress=self.progress).predict(examples) for each in self.predictors]
        return [average(each) for each in zip(*found, strict=True)]


def average(predictions: Sequence[Prediction]) -> Prediction:
    """The mean of several predictions for one example: of the probabilities of classes, or of scores."""
    first, left_out = predictions[0], max(each.left_out or 0 for each in predictions) or None
    if not first.scores:
        return Prediction(fmean(float(each.value) for each in predictions), left_out=left_out)
    scores = {label: fmean(each.scores[label] for each in predictions) for label in first.scores}
    best = max(scores, key=lambda label: scores[label])
    return Prediction(best, scores[best], scores, left_out=left_out)


def _describe(task: Task) -> str:
    labels = f" of {', '.join(task.config.labels)}" if task.config.labels else ""
    return f"{task.name}{labels}"
