"""What a baseline is: something that does a task without a language model, for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from lmlab.data.readers.examples import Example

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


def check_examples(train: Sequence[Example]) -> None:
    """A baseline learns from labelled examples."""
    if not train:
        raise ValueError("there are no training examples: a baseline needs at least one")
    if (bare := next((each for each in train if each.label is None), None)) is not None:
        raise ValueError(f"{bare.where or 'an example'} has no label: a baseline learns from labelled examples")
