"""Tags from the look of a word and of its neighbours, each word by itself: logistic regression, no language model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lmlab.data.reading.examples import Example
from lmlab.tasks.baseline import Predictions, check_examples

MOST_FEATURES = 100_000
PASSES = 3
RATE = 0.2
WORDS_AT_ONCE = 256
RUNS = re.compile(r"(.)\1+")


def shape_of(word: str) -> str:
    """Capitals as X, small letters as x, digits as 0, all else as it is; of runs the first: `Mc-90s` is `XxX-0x`."""
    signs = "".join(
        "0" if letter.isdigit() else "X" if letter.isupper() else "x" if letter.isalpha() else letter for letter in word
    )
    return RUNS.sub(r"\1", signs)


def look_of(word: str) -> list[str]:
    """The features of a word by itself."""
    low = word.lower()
    parts = [f"start={low[:size]}" for size in (1, 2, 3)] + [f"end={low[-size:]}" for size in (1, 2, 3, 4)]
    return [f"word={word}", f"low={low}", f"shape={shape_of(word)}", *parts]


def features_of(words: Sequence[str]) -> list[list[str]]:
    """The features of each word of a sentence: its look, and the words and shapes around it."""
    padded = ["<s>", "<s>", *words, "</s>", "</s>"]
    low, shapes = [word.lower() for word in padded], [shape_of(word) for word in padded]
    return [
        [
            *look_of(word),
            *(f"{place:+d}={low[at + place]}" for place in (-2, -1, 1, 2)),
            *(f"{place:+d}shape={shapes[at + place]}" for place in (-1, 1)),
            f"-1 0={low[at - 1]} {low[at]}",
            f"0 +1={low[at]} {low[at + 1]}",
        ]
        for at, word in enumerate(words, start=2)
    ]


class WordTagger:
    """Multinomial logistic regression over the features of each word."""

    name = "bag_of_words"

    def fit(self, train: Sequence[Example], *, valid: Sequence[Example] | None = None) -> None:
        """Three passes of AdaGrad (Duchi et al. 2011): few passes, not a penalty that is chosen, keep the weights small."""
        check_examples(train)
        self.tags: list[str] = sorted({tag for each in train for tag in each.label}) or ["O"]
        place = {tag: i for i, tag in enumerate(self.tags)}
        counts = Counter(name for each in train for word in features_of(each.a) for name in word)
        # a feature that one word alone has says nothing about others, unless there are few words at all
        kept = [name for name, count in counts.most_common(MOST_FEATURES) if count > 1 or len(counts) < 10_000]
        self._columns = {name: column for column, name in enumerate(kept)}
        self._weights = torch.zeros(len(kept) + 1, len(self.tags), requires_grad=True)
        self._bias = torch.zeros(len(self.tags), requires_grad=True)
        places = self._places(train)
        targets = torch.tensor([place[tag] for each in train for tag in each.label], dtype=torch.long)
        optimizer = torch.optim.Adagrad([self._weights, self._bias], lr=RATE)
        generator = torch.Generator().manual_seed(0)
        for _ in range(PASSES):
            for rows in torch.randperm(len(targets), generator=generator).split(WORDS_AT_ONCE):
                optimizer.zero_grad()
                F.cross_entropy(self._scores(places[rows]), targets[rows]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()

    def predict(self, examples: Sequence[Example]) -> Predictions:
        with torch.no_grad():
            sure, best = self._scores(self._places(examples)).softmax(1).max(1)
        ends = np.cumsum([len(each.a) for each in examples])[:-1] if examples else []
        tags = [tuple(self.tags[i] for i in row) for row in np.split(best.numpy(), ends)][: len(examples)]
        means = [row.mean() if len(row) else 1.0 for row in np.split(sure.double().numpy(), ends)][: len(examples)]
        return Predictions(tags, np.array(means, dtype=np.float64))

    def _places(self, examples: Sequence[Example]) -> Tensor:
        """The numbers of the features of each word of all examples, the last one for what is not known: [N, F]."""
        unknown = len(self._columns)
        rows = [
            [self._columns.get(name, unknown) for name in word] for each in examples for word in features_of(each.a)
        ]
        return torch.tensor(rows, dtype=torch.long).view(len(rows), -1)

    def _scores(self, places: Tensor) -> Tensor:
        """Of each tag: [N, C]."""
        if not len(places):
            return torch.zeros(0, len(self.tags))
        unknown = len(self._columns)
        return F.embedding_bag(places, self._weights, mode="sum", sparse=True, padding_idx=unknown) + self._bias
