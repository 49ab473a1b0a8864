"""Denoising: write a text from a damaged copy of it, as BART is pre-trained."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from lmlab.config import Config
from lmlab.data.corpora.corpus import TextSplit
from lmlab.data.loaders.framing import FlatTexts
from lmlab.data.loaders.pairs import frame_pairs, pair_overhead
from lmlab.data.loaders.passages import PassageRows, Passages
from lmlab.objectives import noise
from lmlab.objectives.noise import Ragged
from lmlab.objectives.objective import Batch
from lmlab.objectives.seq2seq import TargetLoss, pair_batch
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame
from lmlab.tokenizers.pieces import describe_pieces


class DenoisingConfig(Config):
    """Noising functions, applied in this order; the defaults are BART's own choice."""

    permute: bool = Field(True, description="sentence permutation: shuffle the sentences of a row")
    rotate: float = Field(
        0.0, ge=0, le=1, description="document rotation: fraction of rows that start at a random token"
    )
    delete: float = Field(0.0, ge=0, lt=1, description="token deletion: fraction of the tokens")
    infill: float = Field(
        0.3, ge=0, le=1, description="text infilling: fraction of the tokens in spans, each replaced by one mask"
    )
    mask: float = Field(0.0, ge=0, le=1, description="token masking: fraction of the tokens replaced by a mask")
    smoothing: float = Field(0.0, ge=0, lt=1, description="label smoothing, in training only")

    @model_validator(mode="after")
    def _something_is_damaged(self) -> DenoisingConfig:
        if not (self.permute or self.rotate or self.delete or self.infill or self.mask):
            raise ValueError("no noising function is active; set at least one of mask, delete, infill, permute, rotate")
        return self


class Denoising(TargetLoss):
    """−log P(text | damaged text) (Lewis et al. 2020, "BART", section 2.2).

    A row is a document, or a piece of a long one: so sentences change places only within a document. The damaged text
    is the source, the text itself the target; the frame adds the special tokens.
    """

    Config: ClassVar[type[Config]] = DenoisingConfig
    reads: ClassVar[tuple[str, ...]] = ("text", "languages")
    specials: ClassVar[tuple[str, ...]] = ("mask", "pad")
    likelihood: ClassVar[bool] = False

    def __init__(self, config: DenoisingConfig, tokenizer: Tokenizer, frame: Frame) -> None:
        super().__init__(config.smoothing)
        self.config, self.frame = config, frame
        self.padding, self.token = tokenizer.special("pad"), tokenizer.special("mask")
        self.pieces = describe_pieces(tokenizer) if config.permute else None

    def loader(self, data: TextSplit, *, batch: int, window: int, seed: int, streams: bool) -> Passages:
        """Batches of at most `batch` × `window` tokens; a row has at most `window`, special tokens included."""
        around = max(pair_overhead(self.frame))
        return Passages(data, around=around, tokens=batch * window, longest=window, seed=seed, pieces=self.pieces)

    def batch(self, raw: PassageRows, generator: np.random.Generator) -> Batch:
        """Source rows are damaged copies of the target rows; where noise makes one too long for a row, it is cut."""
        text = Ragged(raw.tokens, raw.lengths)
        damaged = self._damage(text, raw.begins, generator)
        source = FlatTexts(damaged.tokens, damaged.starts, np.minimum(damaged.lengths, raw.lengths.max()))
        target = FlatTexts(text.tokens, text.starts, text.lengths)
        rows = frame_pairs(self.frame, source, target, pads=(self.padding, self.padding))
        return pair_batch(*rows, tokens=int(rows.target_lengths.sum()))

    def _damage(self, rows: Ragged, begins: NDArray[np.bool_] | None, generator: np.random.Generator) -> Ragged:
        config = self.config
        if config.permute:
            assert begins is not None, "a loader for permutation says where sentences begin"
            rows = noise.permute_sentences(rows, begins, generator)
        if config.rotate:
            rows = noise.rotate(rows, config.rotate, generator)
        if config.delete:
            rows = noise.delete(rows, config.delete, generator)
        if config.infill:
            rows = noise.infill(rows, config.infill, generator, token=self.token)
        if config.mask:
            rows = noise.mask(rows, config.mask, generator, token=self.token)
        return rows
