"""Pictures with captions as tokens: the words of the caption, then the pixels of the picture.

The caption comes first, so a model that predicts the next token draws what a text says. The ids are those of the text,
then those of the pixels, and the boundary last.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lmlab.tokenizers.processors.pictures import PixelArray
from lmlab.tokenizers.processors.pixels import Pixels
from lmlab.tokenizers.processors.sequences import SequenceTokenizer
from lmlab.tokenizers.tokenizer import Tokenizer

Ids = NDArray[np.int64]


class CaptionedPixels(SequenceTokenizer):
    """Encodes pictures of one size with their captions; a part of a `JoinedTokenizer`, which keeps its settings."""

    kind: ClassVar[str] = "captioned"
    reads: ClassVar[str] = "captions"
    unit: ClassVar[str] = "token"
    item: ClassVar[str] = "picture"
    forms: ClassVar[str] = Pixels.forms
    commands: ClassVar[tuple[str, ...]] = ('lmlab draw {run} --caption "…" -o samples.png',)

    def __init__(self, text: Tokenizer, pixels: Pixels) -> None:
        self.text, self.pixels = text, pixels
        self.first_pixel = text.vocabulary

    @classmethod
    def from_spec(cls, options: str) -> Self:
        raise ValueError("captions with pixels have no spec of their own: give captions=pixels:16 to a mixture")

    @property
    def spec(self) -> str:
        return self.pixels.spec

    def settings(self) -> Mapping[str, Any]:
        return {"pixels": self.pixels.settings(), "text": self.text.fingerprint}

    @property
    def vocabulary(self) -> int:
        return self.first_pixel + self.pixels.vocabulary

    def encode(self, caption: NDArray[Any], picture: PixelArray) -> Ids:
        """Return the ids of a caption, given as tokens, and of a picture."""
        return np.concatenate([caption.astype(np.int64), self.first_pixel + self.pixels.encode(picture)])

    def encode_caption(self, caption: str) -> list[int]:
        """Return the ids of a caption."""
        return self.text.encode(caption)

    def decode(self, ids: Iterable[int]) -> tuple[str, PixelArray]:
        """Return the caption and the picture of ids."""
        found = [int(token) for token in ids]
        caption = self.text.decode(token for token in found if token < self.first_pixel)
        return caption, self.pixels.decode(token - self.first_pixel for token in found if token >= self.first_pixel)

    def show(self, token: int) -> str:
        return self.text.show(token) if token < self.first_pixel else self.pixels.show(token - self.first_pixel)

    def scores(self, nats: float) -> dict[str, float]:
        return {"nats_per_token": nats}

    def totals(self, ids: Ids, nats: NDArray[np.float64]) -> dict[str, tuple[float, float]]:
        """Bits per dimension of the picture, given its caption; and bits per byte of the caption.

        A lossy tokenizer does not tell how many bytes a caption had: then nats per token of the caption.
        """
        drawn = ids >= self.first_pixel
        picture = (float(nats[drawn].sum()) / math.log(2), float(drawn.sum()))
        caption = float(nats[~drawn].sum())
        if self.text.lossy:
            return {"bits_per_dimension": picture, "caption_nats_per_token": (caption, float((~drawn).sum()))}
        size = len(self.text.decode(ids[~drawn].tolist()).encode())
        return {"bits_per_dimension": picture, "caption_bits_per_byte": (caption / math.log(2), float(size))}
