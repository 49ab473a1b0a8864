"""Denoising: write a text from a damaged copy of it, as BART is pre-trained."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from lmlab.config import Config
from lmlab.data.batches.bucketing import gather_rows
from lmlab.data.batches.loaders import Loader
from lmlab.data.batches.passages import PassageRows, Passages
from lmlab.data.corpora.corpus import Split
from lmlab.models.model import Model
from lmlab.objectives import noise
from lmlab.objectives.noise import Ragged
from lmlab.objectives.objective import Batch, reading_flops
from lmlab.objectives.seq2seq import TargetLoss, pair_batch
from lmlab.tokenizers import Tokenizer
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
    is the source and ends with the boundary; the text itself is the target, and begins and ends with it.
    """

    Config: ClassVar[type[Config]] = DenoisingConfig
    reads: ClassVar[tuple[str, ...]] = ("text", "languages")
    roles: ClassVar[tuple[str, ...]] = ("mask", "pad")
    likelihood: ClassVar[bool] = False

    def __init__(self, config: DenoisingConfig, tokenizer: Tokenizer) -> None:
        super().__init__(config.smoothing)
        self.config = config
        self.boundary, self.padding, self.token = tokenizer.boundary, tokenizer.role("pad"), tokenizer.role("mask")
        self.pieces = describe_pieces(tokenizer) if config.permute else None

    def loader(self, data: Split, *, batch: int, window: int, seed: int, streams: bool) -> Passages:
        """Batches of at most `batch` × `window` tokens; a row has at most `window`, the boundary included."""
        return Passages(data, tokens=batch * window, longest=window, seed=seed, pieces=self.pieces)

    def batch(self, raw: PassageRows, generator: np.random.Generator) -> Batch:
        """Source rows are damaged copies of the target rows; where noise makes one too long for a row, it is cut."""
        text = Ragged(raw.tokens, raw.lengths)
        source, lengths = self._pad(self._damage(text, raw.begins, generator), longest=int(raw.lengths.max()))
        target, target_lengths = self._pad(text, longest=int(raw.lengths.max()))
        target = np.concatenate([np.full((len(target), 1), self.boundary), target], axis=1)
        return pair_batch(source, lengths, target, target_lengths, tokens=int(target_lengths.sum()))

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

    def _pad(self, rows: Ragged, *, longest: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of at most `longest` tokens, each ended by the boundary, as [B, T] and their lengths."""
        lengths = np.minimum(rows.lengths, longest)
        padded = gather_rows(rows.tokens, rows.starts, lengths, fill=self.padding)
        padded = np.concatenate([padded, np.full((len(padded), 1), self.padding)], axis=1)
        padded[np.arange(len(padded)), lengths] = self.boundary
        return padded, lengths + 1

    def flops(self, model: Model, loader: Loader) -> float:
        """The damaged source is counted as long as the text."""
        return reading_flops(model, loader)
