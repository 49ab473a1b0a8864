"""The interface of a baseline: it does a task without a language model, for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from lmlab.data.readers.examples import Example

Floats = NDArray[np.float64]


class Predictions(NamedTuple):
    """A label for each example, and its probability.

    Labels have the form of `Example.label`: the name of a class, a score, the number of a choice (for guessing, the
    probability of each), or the tags of the words. For a question it is the text of one answer, empty for "no answer".
    """

    labels: list[Any]
    probabilities: Floats
    """[N]; the mean over the words for tags; NaN for scores."""


class Baseline(Protocol):
    """Learns from labelled examples in seconds; deterministic."""

    name: str

    def fit(self, train: Sequence[Example], *, valid: Sequence[Example] | None = None) -> None:
        """Learn from `train`; settings are chosen on `valid`, or on a tenth of `train` without it."""

    def predict(self, examples: Sequence[Example]) -> Predictions:
        """Predict the labels of examples; their own labels are ignored."""


def check_examples(train: Sequence[Example]) -> None:
    """Raise a ValueError unless there are examples and all have labels."""
    if not train:
        raise ValueError("there are no training examples: a baseline needs at least one")
    if (bare := next((each for each in train if each.label is None), None)) is not None:
        raise ValueError(f"{bare.where or 'an example'} has no label: a baseline learns from labelled examples")
