"""Painters draw pictures pixel by pixel: new ones, or completions of the upper rows of a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from lmlab.decoding.generate import Report, continue_tokens
from lmlab.decoding.sampling import Sampling
from lmlab.models.abilities import PredictsNext
from lmlab.tokenizers.processors.captioned_pixels import CaptionedPixels
from lmlab.tokenizers.processors.pictures import Pixels as PixelArray
from lmlab.tokenizers.processors.pixels import Pixels

LONGEST_CAPTION = 64
"""Tokens of a caption that a model writes, at most."""


class Drawn(NamedTuple):
    """A picture that was drawn for a caption."""

    caption: str
    picture: PixelArray


@dataclass(frozen=True, kw_only=True)
class Painter:
    """A model that predicts the next token, with a tokenizer of pixels."""

    model: PredictsNext
    tokenizer: Pixels
    captioned: CaptionedPixels | None = None
    """The tokenizer of captions with pictures, if the model has learnt these."""

    def draw_captions(
        self,
        captions: Sequence[str] | None,
        *,
        count: int = 1,
        sampling: Sampling | None = None,
        report: Report = lambda done, total: None,
    ) -> list[Drawn]:
        """Return `count` pictures for each caption; without captions, `count` pictures whose captions the model writes.

        Only pixels are sampled after a caption, so every picture is whole.
        """
        own, chosen = self.captioned, sampling or Sampling()
        if own is None:
            raise ValueError("this run has learnt pictures without captions; leave the captions out")
        given = [own.encode_caption(caption) for caption in captions or ()]
        if captions is None:
            given, count = self._write_captions(own, count, chosen), 1
        words = dict.fromkeys([*range(own.first_pixel), own.boundary], -math.inf)
        inside = replace(chosen, logit_bias={**chosen.logit_bias, **words})
        drawn: list[Drawn] = []
        for number, caption in enumerate(given):
            found = continue_tokens(
                self.model,
                caption,
                boundary=own.boundary,
                tokens=self.tokenizer.length,
                sampling=replace(inside, seed=(chosen.seed or 0) + number),
                samples=count,
                report=report,
            )
            drawn += [Drawn(*own.decode(each.ids)) for each in found]
        return drawn

    def _write_captions(self, own: CaptionedPixels, count: int, sampling: Sampling) -> list[list[int]]:
        """Return the tokens of captions that the model writes."""
        found = continue_tokens(
            self.model, [], boundary=own.boundary, tokens=LONGEST_CAPTION, sampling=sampling, samples=count
        )
        first = [next((n for n, token in enumerate(each.ids) if token >= own.first_pixel), None) for each in found]
        return [list(each.ids[:end]) for each, end in zip(found, first, strict=True)]

    def draw(
        self,
        given: PixelArray | None = None,
        *,
        rows: int | None = None,
        count: int = 1,
        sampling: Sampling | None = None,
        report: Report = lambda done, total: None,
    ) -> list[PixelArray]:
        """Return `count` pictures [H, W, C]; with `given`, its first `rows` rows (half by default) are kept."""
        kept = [] if given is None else self.tokenizer.encode(given)[: self.given_tokens(rows)].tolist()
        chosen = sampling or Sampling()
        inside = replace(chosen, logit_bias={**chosen.logit_bias, self.tokenizer.boundary: -math.inf})
        found = continue_tokens(
            self.model,
            kept,
            boundary=self.tokenizer.boundary,
            tokens=self.tokenizer.length - len(kept),
            sampling=inside,
            samples=count,
            report=report,
        )
        return [self.tokenizer.decode(each.ids) for each in found]

    def hide(self, picture: PixelArray, *, rows: int | None = None) -> PixelArray:
        """Return the first `rows` rows of a picture in the model's levels."""
        ids = self.tokenizer.encode(picture)[: self.given_tokens(rows)]
        background = np.full(self.tokenizer.pictures.shape, 128, np.uint8)
        shown = len(ids) // self.tokenizer.pictures.width
        background[:shown] = self.tokenizer.decode(ids)[:shown]
        return background

    def given_tokens(self, rows: int | None) -> int:
        """Return the number of tokens in the first `rows` rows; a ValueError if there are fewer rows than that."""
        height, width = self.tokenizer.pictures.height, self.tokenizer.pictures.width
        rows = height // 2 if rows is None else rows
        if not 0 <= rows < height:
            raise ValueError(f"rows = {rows}: pictures have {height} rows; give 0 to {height - 1}")
        return rows * width
