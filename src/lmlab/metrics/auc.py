"""The area under the ROC curve of many scores at once: how well each separates positive from negative examples.

AUC = P(score of a true one > score of a false one) + ½ P(equal): the statistic of Mann & Whitney 1947.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmlab.metrics.metric import Floats


def areas(scores: NDArray[Any], labels: NDArray[np.bool_]) -> Floats:
    """Scores [N, C] and labels [N] -> the area of each column [C]; NaN where one of the two classes is not there."""
    positive, negative = scores[labels], scores[~labels]
    if not len(positive) or not len(negative):
        return np.full(scores.shape[1], np.nan)
    found = np.empty(scores.shape[1])
    for column in range(scores.shape[1]):
        ranked = np.sort(negative[:, column])
        below = np.searchsorted(ranked, positive[:, column], side="left")
        not_above = np.searchsorted(ranked, positive[:, column], side="right")
        found[column] = (below + not_above).mean() / (2 * len(ranked))
    return found
