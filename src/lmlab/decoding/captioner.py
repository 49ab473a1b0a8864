"""Captioners: pictures to captions by beam search, and where the model looked for each word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmlab.decoding.beam_search import Hypothesis, beam_search
from lmlab.messages import ArgumentError
from lmlab.models.abilities import WritesCaptions
from lmlab.progress import ReportProgress, check_cancelled
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame
from lmlab.tokenizers.processors.pictures import PictureProcessor, PixelArray


class Caption(NamedTuple):
    """A caption that the search ended with."""

    text: str
    tokens: list[int]  # without what ends it
    log_probability: float
    score: float  # log_probability / length penalty
    finished: bool


class Look(NamedTuple):
    """A word of a caption, and the attention over the picture with which it was written."""

    word: str
    weights: NDArray[np.float64]  # [rows, columns] of regions; they sum to 1


@dataclass(frozen=True, kw_only=True)
class PictureCaptioner:
    """A model that writes captions, with its tokenizer, frame and picture processor."""

    model: WritesCaptions
    tokenizer: Tokenizer
    frame: Frame
    processor: PictureProcessor

    @cached_property
    def start(self) -> list[int]:
        """The tokens that begin a caption."""
        return [int(token) for token in self.frame.row()["tokens"]]

    @cached_property
    def end(self) -> int:
        """The token that ends a caption."""
        return int(self.frame.row(b=[])["tokens"][-1])

    def caption(
        self,
        pictures: PixelArray | Sequence[PixelArray],
        *,
        beams: int = 1,
        length_penalty: float = 0.0,
        tokens: int | None = None,
        batch: int = 32,
        progress: ReportProgress | None = None,
    ) -> list[list[Caption]]:
        """The best captions of each picture [H, W, C], best first, up to `beams`; one beam is greedy search.

        A caption has at most `tokens` tokens, by default as many as the model can write. Pictures of any size are
        resized as in training.
        """
        if batch < 1:
            raise ArgumentError("batch", batch, "give 1 or more")
        given = [pictures] if isinstance(pictures, np.ndarray) and pictures.ndim == 3 else list(pictures)
        room = (self.model.window or 1000) - len(self.start) + 1
        found: list[list[Caption]] = []
        for first in range(0, len(given), batch):
            check_cancelled()
            pixels = self.read(given[first : first + batch])
            prompt = torch.tensor([self.start] * len(pixels), device=self.model.device)
            results = beam_search(
                self.model,
                prompt,
                tokens=room if tokens is None else min(tokens, room),
                beams=beams,
                boundary=self.end,
                length_penalty=length_penalty,
                state=self.model.begin(self.model.encode(pixels=pixels)),
            )
            found += [[self._caption(each) for each in hypotheses] for hypotheses in results]
            if progress is not None:
                progress(len(found), len(given))
        return found

    def _caption(self, found: Hypothesis) -> Caption:
        text = self.tokenizer.decode(found.written).strip()
        return Caption(text, found.written, found.log_probability, found.score, found.finished)

    def read(self, pictures: Sequence[PixelArray]) -> Tensor:
        """Pictures [H, W, C] of any size as the input of the model [B, C, H, W]."""
        return self.processor.normalise(self.resize(pictures)).to(self.model.device)

    def resize(self, pictures: Sequence[PixelArray]) -> PixelArray:
        """Pictures in the size that the model reads, [B, H, W, C]."""
        for picture in pictures:
            if not isinstance(picture, np.ndarray) or picture.ndim != 3 or picture.dtype != np.uint8:
                raise ValueError("a picture is an array of bytes (uint8) with the shape [height, width, channels]")
        return np.stack([self.processor.process(picture) for picture in pictures])

    @torch.inference_mode()
    def attention(self, picture: PixelArray, caption: str | Caption) -> list[Look]:
        """Where the model looked in a picture for each word of a caption: its own, or one that is given as text.

        The weights of a word are the mean over its tokens.
        """
        tokens = self.tokenizer.encode(caption) if isinstance(caption, str) else caption.tokens
        if not tokens:
            return []
        row = [*self.start, *tokens][: self.model.window]
        _, weights = self.model.attend(torch.tensor([row], device=self.model.device), pixels=self.read([picture]))
        rows = weights[0, len(self.start) - 1 :].double().cpu().numpy()  # the step that predicts a token looks for it
        words = self.tokenizer.decode(tokens[: len(rows)]).split()
        numbers = [len(self.tokenizer.decode(tokens[: end + 1]).split()) - 1 for end in range(len(tokens))]
        found = []
        for number, word in enumerate(words):
            own = [position for position, each in enumerate(numbers[: len(rows)]) if max(0, each) == number]
            if own:
                found.append(Look(word, rows[own].mean(0).reshape(self.model.grid)))
        return found
