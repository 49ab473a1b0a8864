"""Built-in pictures with written words (`builtin:signs`): shapes, names of shapes, and shapes with their name on them.

Where a training picture has a word, the word is in its caption, as on the web. So a model learns to read, and can be
fooled by a wrong word (Goh et al. 2021, "Multimodal Neurons in Artificial Neural Networks": typographic attacks).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data.readers.pictures.lettering import write_word
from lmlab.data.readers.pictures.scenes import COLOURS, SHAPES, VERSION, Scene, Thing, paint
from lmlab.data.readers.pictures.sources import LazyRows, PictureFiles, PictureRow

SIDE = 64
COUNTS = {"train": 3000, "valid": 300, "test": 300}
Kind = Literal["shape", "word", "named shape"]
KINDS: tuple[Kind, ...] = ("shape", "word", "named shape")


class Sign(NamedTuple):
    """A picture of one shape, of one word, or of both; lengths are fractions of the picture's width."""

    kind: Kind
    thing: Thing
    down: float  # place of the word, from the top

    @property
    def caption(self) -> str:
        """`a red circle`, or `the word circle` where nothing else is there."""
        if self.kind == "word":
            return f"the word {self.thing.shape}"
        return f"{'an' if self.thing.colour[0] in 'aeiou' else 'a'} {self.thing.colour} {self.thing.shape}"


@dataclass(frozen=True)
class SignSource:
    """The picture of a sign, which is painted when it is read."""

    part: str
    index: int

    @property
    def name(self) -> str:
        return f"builtin:signs/{self.part}/{self.index}"

    def digest(self) -> str:
        return hashlib.sha256(f"{VERSION} {SIDE} {self.name}".encode()).hexdigest()

    def size(self) -> tuple[int, int, int]:
        return SIDE, SIDE, 3

    def read(self) -> NDArray[np.uint8]:
        sign = make_sign(self.part, self.index)
        seed = (list(COUNTS).index(self.part), self.index, len(COUNTS))
        picture = paint(Scene(() if sign.kind == "word" else (sign.thing,), seed), SIDE)
        return picture if sign.kind == "shape" else write_word(picture, sign.thing.shape, down=sign.down)


def make_sign(part: str, index: int) -> Sign:
    """Sign number `index` of a split; those of the test have no words."""
    rng = np.random.default_rng([VERSION, 7, list(COUNTS).index(part), index])
    kind = KINDS[int(rng.integers(len(KINDS)))] if part != "test" else "shape"
    shape, colour = (list(names)[int(rng.integers(len(names)))] for names in (SHAPES, COLOURS))
    x, y = rng.uniform(0.35, 0.65, 2).tolist()
    thing = Thing(shape, colour, "large", x, y, float(rng.uniform(0.18, 0.26)))
    return Sign(kind, thing, float(rng.integers(2)))


@lru_cache
def find_signs(name: str) -> PictureFiles:
    """Return the rows of `builtin:signs`; the class of a picture is its shape, or the shape that its word names."""

    def rows(part: str) -> list[PictureRow]:
        found = []
        for index in range(COUNTS[part]):
            source, sign = SignSource(part, index), make_sign(part, index)
            found.append(PictureRow(source, sign.thing.shape, {"caption": sign.caption}, where=source.name))
        return found

    train, valid, test = (LazyRows(partial(rows, part)) for part in COUNTS)
    return PictureFiles(train=train, valid=valid, test=test, format="built-in signs")
