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
from lmlab.tokenizers.processors.pictures import PixelArray
from lmlab.tokenizers.processors.pixels import Pixels

LONGEST_CAPTION = 64
"""Tokens of a caption that a model writes, at most."""


class Drawn(NamedTuple):
    """A picture that was drawn for a caption."""

    caption: str
    picture: PixelArray


@dataclass(frozen=True, kw_only=True)
class Painter:
    """A model that predicts the next token, with a tokenizer of pixels, or of captions with pixels."""

    model: PredictsNext
    tokenizer: Pixels | CaptionedPixels

    @property
    def captioned(self) -> CaptionedPixels | None:
        """The tokenizer, if it is one of captions with pixels."""
        return self.tokenizer if isinstance(self.tokenizer, CaptionedPixels) else None

    @property
    def pixels(self) -> Pixels:
        """The tokenizer of the pixels alone."""
        return self.tokenizer.pixels if isinstance(self.tokenizer, CaptionedPixels) else self.tokenizer

    def check(self, *, captions: bool, pictures: bool) -> None:
        """Raise a ValueError if the model cannot draw captions, or cannot complete pictures, where this is wanted."""
        if captions and self.captioned is None:
            raise ValueError(
                "this run has learnt pictures without captions: leave the caption out, or train a run with captions: "
                "lmlab train gpt2 captions=TABLE -o RUN"
            )
        if pictures and self.captioned is not None:
            raise ValueError("this run draws from captions, not from parts of pictures: give a caption, or nothing")

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
        self.check(captions=True, pictures=False)
        own, chosen = self.captioned, sampling or Sampling()
        assert own is not None, "checked"
        if any(not caption.strip() for caption in captions or ()):
            raise ValueError("the caption is empty: say what to draw, or leave it out: the model then writes one")
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
                tokens=self.pixels.length,
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
        caption: str | None = None,
        rows: int | None = None,
        count: int = 1,
        sampling: Sampling | None = None,
        report: Report = lambda done, total: None,
    ) -> list[PixelArray]:
        """Return `count` pictures [H, W, C]; with `given`, its first `rows` rows (half by default) are kept.

        A model of captions draws `caption`, or captions that it writes first (`draw_captions` returns these too).
        """
        self.check(captions=caption is not None, pictures=given is not None or rows is not None)
        if self.captioned is not None:
            captions = None if caption is None else [caption]
            drawn = self.draw_captions(captions, count=count, sampling=sampling, report=report)
            return [each.picture for each in drawn]
        own, chosen = self.pixels, sampling or Sampling()
        kept = [] if given is None else own.encode(given)[: self.given_tokens(rows)].tolist()
        inside = replace(chosen, logit_bias={**chosen.logit_bias, own.boundary: -math.inf})
        found = continue_tokens(
            self.model,
            kept,
            boundary=own.boundary,
            tokens=own.length - len(kept),
            sampling=inside,
            samples=count,
            report=report,
        )
        return [own.decode(each.ids) for each in found]

    def hide(self, picture: PixelArray, *, rows: int | None = None) -> PixelArray:
        """Return the first `rows` rows of a picture in the model's levels."""
        ids = self.pixels.encode(picture)[: self.given_tokens(rows)]
        background = np.full(self.pixels.pictures.shape, 128, np.uint8)
        shown = len(ids) // self.pixels.pictures.width
        background[:shown] = self.pixels.decode(ids)[:shown]
        return background

    def given_tokens(self, rows: int | None) -> int:
        """Return the number of tokens in the first `rows` rows; a ValueError if there are fewer rows than that."""
        height, width = self.pixels.pictures.height, self.pixels.pictures.width
        rows = height // 2 if rows is None else rows
        if not 0 <= rows < height:
            raise ValueError(f"rows = {rows}: pictures have {height} rows; give 0 to {height - 1}")
        return rows * width
