"""Baselines of picture classification: the nearest mean picture, and a linear model on the pixels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lmlab.baselines.baseline import Predictions, check_examples
from lmlab.baselines.linear import DenseFeatures, LinearModel, cross_entropy_to, fit_linear
from lmlab.data.readers.examples import Example
from lmlab.data.readers.media import Picture

MOST_PIXELS = 3072
"""Numbers of a picture that the linear model reads, at most: of larger ones, every second or third pixel."""
MOST_PICTURES = 20_000
"""Training pictures of the linear model, evenly spread, where there are more."""
PENALTY = 1e-3
BATCH = 1000


class NearestMean:
    """The class whose mean picture is nearest, by the Euclidean distance of the pixels."""

    name = "nearest mean"

    def fit(self, train: Sequence[Example], *, valid: Sequence[Example] | None = None) -> None:
        check_examples(train)
        self._labels = sorted({str(each.label) for each in train})
        numbers = {label: number for number, label in enumerate(self._labels)}
        sums, counts = None, torch.zeros(len(self._labels))
        for first in range(0, len(train), BATCH):
            part = train[first : first + BATCH]
            pixels = flatten_pixels(part)
            classes = torch.tensor([numbers[str(each.label)] for each in part])
            sums = torch.zeros(len(self._labels), pixels.shape[1]) if sums is None else sums
            sums.index_add_(0, classes, pixels)
            counts += classes.bincount(minlength=len(self._labels))
        assert sums is not None
        self._means = sums / counts[:, None]

    def predict(self, examples: Sequence[Example]) -> Predictions:
        parts = [examples[first : first + BATCH] for first in range(0, len(examples), BATCH)]
        nearest = [number for part in parts for number in torch.cdist(flatten_pixels(part), self._means).argmin(1)]
        return Predictions([self._labels[number] for number in nearest], np.full(len(examples), np.nan))


class LinearOnPixels:
    """Multinomial logistic regression on the pixels."""

    name = "linear on pixels"

    def fit(self, train: Sequence[Example], *, valid: Sequence[Example] | None = None) -> None:
        check_examples(train)
        self._labels = sorted({str(each.label) for each in train})
        sampled = [
            train[number] for number in np.linspace(0, len(train) - 1, min(len(train), MOST_PICTURES)).astype(int)
        ]
        pixels = thin(flatten_pixels(sampled))
        self._mean, self._std = pixels.mean(0), pixels.std(0, unbiased=False).clamp(min=1e-2)
        targets = torch.tensor([self._labels.index(str(each.label)) for each in sampled])
        features = DenseFeatures((pixels - self._mean) / self._std)
        self._model: LinearModel = fit_linear(
            features, cross_entropy_to(targets), outputs=len(self._labels), penalty=PENALTY, steps=40
        )

    def predict(self, examples: Sequence[Example]) -> Predictions:
        labels: list[str] = []
        probabilities: list[float] = []
        for first in range(0, len(examples), BATCH):
            pixels = thin(flatten_pixels(examples[first : first + BATCH]))
            best = self._model.scores(DenseFeatures((pixels - self._mean) / self._std)).softmax(1).max(1)
            labels += [self._labels[number] for number in best.indices]
            probabilities += best.values.tolist()
        return Predictions(labels, np.array(probabilities))


def flatten_pixels(examples: Sequence[Example]) -> Tensor:
    """The pixels of pictures as rows of numbers from 0 to 1."""
    found = []
    for example in examples:
        assert isinstance(example.media, Picture)
        found.append(example.media.pixels.reshape(-1))
    return torch.from_numpy(np.stack(found)).float() / 255


def thin(pixels: Tensor) -> Tensor:
    """At most MOST_PIXELS numbers of each row, evenly spread."""
    return pixels[:, :: -(-pixels.shape[1] // MOST_PIXELS)]
