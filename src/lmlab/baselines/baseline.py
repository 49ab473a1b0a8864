"""What a baseline is: a way to do a task without a language model, to hold the score of one against."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from lmlab.data.readers.examples import TASKS, Example

Floats = NDArray[np.float64]


class Predictions(NamedTuple):
    """A label for each example, and how sure the baseline is of it.

    Labels are as an `Example` has them: the name of a class, a score, the number of a choice (of guessing, the
    probability of each), the tags of the words; of a question the text of one answer, empty where it is said to have
    none.
    """

    labels: list[Any]
    probabilities: Floats
    """[N]; of tags the mean over the words; not numbers where a score is predicted."""


class Baseline(Protocol):
    """Learns from labelled examples in seconds; the same examples give the same predictions."""

    name: str

    def fit(self, train: Sequence[Example], *, valid: Sequence[Example] | None = None) -> None:
        """Learn from `train`; settings are chosen on `valid`, or on a tenth of `train` where there is none."""

    def predict(self, examples: Sequence[Example]) -> Predictions:
        """What the labels of examples are; those that they have are not looked at."""


BASELINES: dict[str, dict[str, str]] = {
    "chance": {"choice": "lmlab.baselines.majority:ChanceChoice"},
    "majority": {
        "classification": "lmlab.baselines.majority:MajorityLabel",
        "regression": "lmlab.baselines.majority:MeanScore",
        "choice": "lmlab.baselines.majority:MajorityChoice",
        "tagging": "lmlab.baselines.majority:MajorityTag",
        "spans": "lmlab.baselines.majority:MajorityAnswer",
    },
    "bag_of_words": {
        "classification": "lmlab.baselines.bag_of_words:WordClassifier",
        "regression": "lmlab.baselines.bag_of_words:WordRegression",
        "choice": "lmlab.baselines.span_baselines:ChoiceOverlap",
        "tagging": "lmlab.baselines.word_tagger:WordTagger",
        "spans": "lmlab.baselines.span_baselines:AnswerOverlap",
    },
    "hand_features": {"classification": "lmlab.baselines.hand_features:HandFeatures"},
}
"""Baselines by name, and by task the class that does it."""


def make_baseline(name: str, *, task: str) -> Baseline:
    """A baseline for a task, not yet fitted."""
    if name not in BASELINES:
        raise ValueError(f"no baseline is named {name!r}; there are {', '.join(BASELINES)}")
    if task not in BASELINES[name]:
        known = ", ".join(BASELINES[name]) if task in TASKS else ", ".join(TASKS)
        raise ValueError(f"{name} does not do the task {task!r}; it does {known}")
    module, _, kind = BASELINES[name][task].partition(":")
    baseline: Baseline = getattr(import_module(module), kind)()
    return baseline


def check_examples(train: Sequence[Example]) -> None:
    """A baseline learns from labelled examples."""
    if not train:
        raise ValueError("there are no training examples: a baseline needs at least one")
    if (bare := next((each for each in train if each.label is None), None)) is not None:
        raise ValueError(f"{bare.where or 'an example'} has no label: a baseline learns from labelled examples")
