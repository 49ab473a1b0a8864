"""Painters draw pictures pixel by pixel: new ones, or completions of the upper rows of a picture."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from lmlab.decoding.generate import Report, continue_tokens
from lmlab.decoding.sampling import Sampling
from lmlab.models.abilities import PredictsNext
from lmlab.tokenizers.processors.pictures import Pixels as PixelArray
from lmlab.tokenizers.processors.pixels import Pixels


@dataclass(frozen=True, kw_only=True)
class Painter:
    """A model that predicts the next token, with a tokenizer of pixels."""

    model: PredictsNext
    tokenizer: Pixels

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
