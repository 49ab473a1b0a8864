"""Tags by logistic regression on features of each word and its neighbours, without a language model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lmlab.baselines.baseline import Predictions, check_examples
from lmlab.data.readers.examples import Example

FEW_FEATURES = 10_000
PASSES = 3
RATE = 0.2
WORDS_AT_ONCE = 256
RUNS = re.compile(r"(.)\1+")


def shape_of(word: str) -> str:
    """The shape of a word: X for capitals, x for lowercase, 0 for digits, runs shortened: `Mc-90s` is `Xx-0x`."""
    signs = "".join(
        "0" if letter.isdigit() else "X" if letter.isupper() else "x" if letter.isalpha() else letter for letter in word
    )
    return RUNS.sub(r"\1", signs)


def word_features(word: str) -> list[str]:
    """The features of a word without its context."""
    low = word.lower()
    parts = [f"start={low[:size]}" for size in (1, 2, 3)] + [f"end={low[-size:]}" for size in (1, 2, 3, 4)]
    return [f"word={word}", f"low={low}", f"shape={shape_of(word)}", *parts]


def features_of(words: Sequence[str]) -> list[list[str]]:
    """The features of each word of a sentence: its own, and the words and shapes around it."""
    padded = ["<s>", "<s>", *words, "</s>", "</s>"]
    low, shapes = [word.lower() for word in padded], [shape_of(word) for word in padded]
    return [
        [
            *word_features(word),
            *(f"{offset:+d}={low[at + offset]}" for offset in (-2, -1, 1, 2)),
            *(f"{offset:+d}shape={shapes[at + offset]}" for offset in (-1, 1)),
            f"-1 0={low[at - 1]} {low[at]}",
            f"0 +1={low[at]} {low[at + 1]}",
        ]
        for at, word in enumerate(words, start=2)
    ]


FEATURES = len(features_of(["word"])[0])


def all_features(examples: Sequence[Example]) -> Iterator[list[str]]:
    """The features of each word of all sentences."""
    for each in examples:
        yield from features_of(each.a)


class WordTagger:
    """Multinomial logistic regression over the features of each word."""

    name = "bag_of_words"

    def fit(self, train: Sequence[Example], *, valid: Sequence[Example] | None = None) -> None:
        """Train with a few epochs of AdaGrad (Duchi et al. 2011), which keeps weights small; `valid` is unused."""
        check_examples(train)
        self.tags: list[str] = sorted({tag for each in train for tag in each.label}) or ["O"]
        number = {tag: i for i, tag in enumerate(self.tags)}
        targets = torch.tensor([number[tag] for each in train for tag in each.label], dtype=torch.long)
        positions = self._number_features(train)
        self._weights = torch.zeros(len(self._columns) + 1, len(self.tags))
        self._bias = torch.zeros(len(self.tags))
        squares = torch.full_like(self._weights, 1e-10), torch.full_like(self._bias, 1e-10)
        generator = torch.Generator().manual_seed(0)
        for _ in range(PASSES):
            for rows in torch.split(torch.randperm(len(targets), generator=generator), WORDS_AT_ONCE):
                here = positions[rows]
                gradient = self._scores(here).softmax(1)
                gradient[torch.arange(len(rows)), targets[rows]] -= 1
                gradient /= len(rows)
                touched, where = torch.unique(here, return_inverse=True)
                by_feature = gradient.new_zeros(len(touched), len(self.tags))
                by_feature.index_add_(0, where.view(-1), gradient.repeat_interleave(here.shape[1], dim=0))
                squares[0].index_add_(0, touched, by_feature.square())
                self._weights.index_add_(0, touched, by_feature / squares[0][touched].sqrt(), alpha=-RATE)
                squares[1].add_(gradient.sum(0).square())
                self._bias -= RATE * gradient.sum(0) / squares[1].sqrt()

    def predict(self, examples: Sequence[Example]) -> Predictions:
        confidence, best = self._scores(self._positions(examples)).softmax(1).max(1)
        ends = np.cumsum([len(each.a) for each in examples], dtype=int)[:-1]
        tags = [tuple(self.tags[i] for i in row) for row in np.split(best.numpy(), ends)][: len(examples)]
        means = [row.mean() if len(row) else 1.0 for row in np.split(confidence.double().numpy(), ends)][
            : len(examples)
        ]
        return Predictions(tags, np.array(means, dtype=np.float64))

    def _number_features(self, train: Sequence[Example]) -> Tensor:
        """Number the features of training words, and give those of each word, as `_positions` does."""
        numbers: dict[str, int] = {}
        rows = [[numbers.setdefault(name, len(numbers)) for name in word] for word in all_features(train)]
        positions = torch.tensor(rows, dtype=torch.long).view(len(rows), FEATURES)
        counts = torch.bincount(positions.view(-1), minlength=len(numbers))
        # drop features that only one word has, unless there are few words
        least = 2 if len(numbers) > FEW_FEATURES else 1
        kept = (counts >= least).nonzero()[:, 0]
        new = torch.full((len(numbers) + 1,), len(kept))
        new[kept] = torch.arange(len(kept))
        names = list(numbers)
        self._columns = {names[old]: column for column, old in enumerate(kept.tolist())}
        return new[positions]

    def _positions(self, examples: Sequence[Example]) -> Tensor:
        """The feature numbers of each word of all examples; the last number is for unknown features: [N, F]."""
        unknown = len(self._columns)
        rows = [[self._columns.get(name, unknown) for name in word] for word in all_features(examples)]
        return torch.tensor(rows, dtype=torch.long).view(len(rows), FEATURES)

    def _scores(self, positions: Tensor) -> Tensor:
        """Scores of each tag: [N, C]."""
        if not len(positions):
            return torch.zeros(0, len(self.tags))
        unknown = len(self._columns)
        return F.embedding_bag(positions, self._weights, mode="sum", padding_idx=unknown) + self._bias
