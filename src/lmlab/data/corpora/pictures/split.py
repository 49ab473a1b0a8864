"""A split of pictures: memory-mapped pixels, with classes, texts and regions row by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from lmlab.data.corpora.corpus import Dataset
from lmlab.data.readers.examples import Example
from lmlab.data.readers.media import Picture
from lmlab.data.readers.pictures.regions import width_of
from lmlab.data.readers.pictures.sources import Regions


class TokenRows(NamedTuple):
    """The tokens of a text field, row after row, without special tokens."""

    tokens: NDArray[np.uint32]
    starts: NDArray[np.int64]  # [N]
    lengths: NDArray[np.int64]  # [N]

    def row(self, number: int) -> NDArray[np.uint32]:
        """Return the tokens of a row."""
        start = int(self.starts[number])
        return self.tokens[start : start + int(self.lengths[number])]


@dataclass(frozen=True)
class PictureSplit(Dataset):
    """A split of rows, each with a picture; several rows may share one."""

    pixels: NDArray[np.uint8]
    """[P, H, W, C], memory-mapped: the pictures of the split, each once."""
    pictures: NDArray[np.int64]
    """[N] the number of each row's picture."""
    labels: Sequence[str | None]
    """[N] the class of each row; of a question its answer, of a sentence true or false."""
    names: Sequence[str]
    """[N] the path of each row's picture."""
    fields: Mapping[str, Sequence[str]]
    """Texts of the rows by field: caption, question, sentence."""
    regions: Sequence[Regions] | None = None
    """[N] parts of the pictures, if they are known."""
    tokens: Mapping[str, TokenRows] | None = None
    """The tokens of `fields`, where there is a tokenizer."""

    @property
    def size(self) -> int:
        return len(self.pictures)

    @property
    def examples(self) -> PictureExamples:
        """The rows as examples of a task, made when they are asked for."""
        return PictureExamples(self)

    def picture(self, row: int) -> Picture:
        """Return the picture of a row, with its regions if they are known."""
        return Picture(self.pixels[self.pictures[row]], None if self.regions is None else self.regions[row])

    @property
    def region_width(self) -> int:
        """The length of the vectors that regions are read as (data/readers/pictures/regions.py)."""
        return width_of(self.picture(0).regions, self.pixels.shape[1:])

    def caption(self, row: int) -> NDArray[np.uint32]:
        """Return the tokens of the caption of a row, without special tokens."""
        assert self.tokens is not None, "captions have a tokenizer"
        return self.tokens["caption"].row(row)

    def captions(self) -> dict[int, list[str]]:
        """The captions of each picture, by its number."""
        found: dict[int, list[str]] = {}
        for picture, text in zip(self.pictures.tolist(), self.fields["caption"], strict=True):
            found.setdefault(picture, []).append(text)
        return found

    def texts(self) -> Iterator[str]:
        """Yield the texts of each row."""
        return (" ".join(texts) for texts in zip(*self.fields.values(), strict=True)) if self.fields else iter(())

    def describe(self) -> str:
        return f"{self.size:,} pictures"


@dataclass(frozen=True)
class PictureExamples(Sequence[Example]):
    """The rows of a split as examples: the picture, the question, sentence or caption, and the class."""

    split: PictureSplit

    def __len__(self) -> int:
        return self.split.size

    @overload
    def __getitem__(self, number: int) -> Example: ...

    @overload
    def __getitem__(self, number: slice) -> list[Example]: ...

    def __getitem__(self, number: int | slice) -> Example | list[Example]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        split, row = self.split, range(len(self))[number]
        text = next(
            (split.fields[name][row] for name in ("question", "sentence", "caption") if name in split.fields), ""
        )
        media = split.picture(row)
        return Example(text, label=split.labels[row], source=split.names[row], media=media)
