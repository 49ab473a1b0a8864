"""Batches of texts with pictures: every epoch visits each pair once, in a new order; every second text is another's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from lmlab.data.loaders.loader import Loader
from lmlab.data.readers.media import Picture

TRUE = ("true", "1", "yes")
"""Labels of sentences that are true."""
TRIES = 20
"""Other texts that are looked at, at most, for one that differs."""


class TokenRow(Protocol):
    """The tokens of a text field (data/corpora/pictures/split.py)."""

    def row(self, number: int) -> NDArray[np.uint32]:
        """Return the tokens of a row, without special tokens."""


class DescribedPictures(Protocol):
    """A split of pictures with texts (data/corpora/pictures/split.py)."""

    @property
    def size(self) -> int: ...

    @property
    def labels(self) -> Sequence[str | None]: ...

    @property
    def tokens(self) -> Mapping[str, TokenRow] | None: ...

    def picture(self, row: int) -> Picture: ...


class DescribedBatch(NamedTuple):
    """Some texts with pictures."""

    texts: list[NDArray[np.uint32]]  # tokens, without special tokens
    pictures: list[Picture]
    matches: NDArray[np.bool_]  # [B] whether the text is that of the picture
    window: int  # the most tokens of a text, special tokens included


class DescribedLoader(Loader):
    """Numbered batches of pairs of a text and a picture; batch k is a pure function of the data, the seed and k.

    An epoch is divided evenly, into batches of at least two pairs. With `mismatched` every second pair has the text of
    another picture. Of sentences that are true or false, those
    that are true are read: the others describe no picture.
    """

    def __init__(self, data: DescribedPictures, *, batch: int, window: int, seed: int, mismatched: bool) -> None:
        self.data, self.window, self.seed, self.mismatched = data, window, seed, mismatched
        self.texts, self.rows = find_descriptions(data)
        if not len(self.rows):
            raise ValueError("no sentence is true of its picture: give captions, or sentences that are true")
        self.batch_size = min(max(2, batch), len(self.rows))
        self.count = len(self.rows) // self.batch_size
        self.steps_per_epoch = float(self.count)
        self._orders = lru_cache(2)(self._make_orders)

    @property
    def units_per_step(self) -> dict[str, float]:
        return {"pairs": len(self.rows) / self.count}

    def batch(self, step: int) -> DescribedBatch:
        epoch, position = divmod(step, self.count)
        own, other = (np.array_split(each, self.count)[position] for each in self._orders(epoch))
        pictures = [self.data.picture(row) for row in own.tolist()]
        texts = [self.texts.row(row) for row in other.tolist()]
        return DescribedBatch(texts, pictures, own == other, self.window)

    def _make_orders(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows of an epoch in order, and for each the row whose text it gets: every second one another's."""
        generator = np.random.default_rng([self.seed, epoch])
        own = generator.permutation(self.rows)
        other = own.copy()
        for place in range(1, len(own), 2) if self.mismatched else ():
            for candidate in generator.choice(self.rows, TRIES):
                if not np.array_equal(self.texts.row(int(candidate)), self.texts.row(int(own[place]))):
                    other[place] = candidate
                    break
        return own, other


def find_descriptions(data: DescribedPictures) -> tuple[TokenRow, NDArray[np.int64]]:
    """The texts that describe pictures, captions or true sentences, and the rows that have one."""
    fields = data.tokens or {}
    if "caption" in fields:
        return fields["caption"], np.arange(data.size)
    if "sentence" in fields:
        true = [row for row, label in enumerate(data.labels) if label is None or label.lower() in TRUE]
        return fields["sentence"], np.array(true, np.int64)
    raise ValueError(
        f"these pictures have {' and '.join(fields) or 'no text'}s: give captions (--columns caption=NAME), or true "
        "sentences; questions are learnt by lmlab finetune"
    )
