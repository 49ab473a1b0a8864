"""Replaced token detection: a small masked model fills blanks, another model tells which tokens are not the author's.

Clark et al. 2020 (ELECTRA), section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from lmlab.config import Config
from lmlab.data.loaders.rows import Rows
from lmlab.layers.padding import flat_positions
from lmlab.metrics.metric import StreamingMetric, accuracy
from lmlab.models.abilities import Detects, FillsMasks, State, require
from lmlab.models.flops import PASSES
from lmlab.models.model import Model
from lmlab.objectives.masked import MaskedRows, MaskedRowsConfig, at_masks, is_right, make_batch
from lmlab.objectives.objective import Batch, Loss
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame


class ReplacedConfig(MaskedRowsConfig):
    """Settings of the masks, and the weight of the discriminator's loss."""

    weight: float = Field(50.0, ge=0, description="weight of the discriminator's loss relative to the generator's")
    mask_fraction: float = Field(
        0.85, ge=0, le=1, description="fraction of the chosen tokens replaced by [MASK]; the rest are unchanged"
    )


class Replaced(MaskedRows):
    """L = L_MLM(x, θ_G) + λ L_Disc(x, θ_D), λ = 50.

    The generator sees [MASK] at most of the chosen tokens; the authors' code leaves 15% as they are, without which a
    small generator hardly begins to learn. Samples from its distribution replace the masks in the text that the
    discriminator reads, which predicts for every token whether it was replaced. A sample that equals the original
    counts as original. No gradient passes through the sampling. The main term is the generator's nats per mask.
    """

    Config: ClassVar[type[Config]] = ReplacedConfig
    watched_metrics: ClassVar[Mapping[str, Callable[[], StreamingMetric]]] = {
        "accuracy": accuracy,
        "detection_accuracy": accuracy,
        "detection_recall": accuracy,
        "original_share": accuracy,
    }
    config: ReplacedConfig

    def __init__(self, config: ReplacedConfig, tokenizer: Tokenizer, frame: Frame) -> None:
        super().__init__(config, tokenizer, frame)
        self.loss_weights: Mapping[str, float] = {"masked": 1.0, "detection": config.weight}

    @classmethod
    def needs(cls, config: ReplacedConfig) -> tuple[type, ...]:
        return (FillsMasks, Detects)

    def batch(self, raw: Rows, generator: np.random.Generator) -> Batch:
        corrupted, draws = self._corrupt(raw, generator, mask_fraction=self.config.mask_fraction, random_fraction=0.0)
        sample = np.take_along_axis(draws.sample, corrupted.positions, axis=1)
        batch = make_batch(raw, corrupted, sample=sample.astype(np.float32))
        return batch._replace(counts={**batch.counts, "detection": batch.units["tokens"]})

    def loss(self, model: Model, heads: Mapping[str, nn.Module], batch: Batch, state: State = None) -> Loss:
        """Both losses; accuracies, and how many tokens were original, are watched in evaluation only."""
        generator, detector = require(model, FillsMasks), require(model, Detects)
        chosen, targets = at_masks(batch, generator.read(**batch.inputs, at=batch.labels["positions"]))
        scores = generator.logits(chosen).float()
        sums = {"masked": F.cross_entropy(scores, targets, reduction="sum")}

        tokens, replaced = self._fill(scores.detach(), targets, batch)
        detected = detector.detect(**{**batch.inputs, "tokens": tokens}).float()
        losses = F.binary_cross_entropy_with_logits(detected, replaced.float(), reduction="none")
        real = _real(batch)
        sums["detection"] = losses.sum() if real is None else (losses * real).sum()
        watched: dict[str, Tensor] = {}
        if not model.training:
            right = (detected > 0) == replaced
            if real is not None:
                right, replaced = right[real], replaced[real]
            watched = {
                "accuracy": is_right(scores, targets),
                "detection_accuracy": right,
                "detection_recall": right[replaced],
                "original_share": ~replaced,
            }
        return Loss(sums, watched=watched)

    def _fill(self, scores: Tensor, targets: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The rows [B, T] with sampled tokens at the masks, and which of their tokens are not the original ones."""
        kept = batch.labels.get("kept", slice(None))
        drawn = sample_tokens(scores, batch.labels["sample"].flatten()[kept])
        shape = batch.inputs["tokens"].shape
        tokens = batch.inputs["tokens"].flatten()
        positions = flat_positions(batch.labels["positions"], shape[1])[kept]
        filled = tokens.index_copy(0, positions, drawn)
        replaced = torch.zeros_like(tokens, dtype=torch.bool).index_copy(0, positions, drawn != targets)
        return filled.view(shape), replaced.view(shape)

    def batch_flops(self, model: Model, batch: Batch, *, memory_length: int = 0) -> float:
        """Those of the generator, of its output layer at the chosen tokens, and of the discriminator."""
        detecting = require(model, Detects).detection_flops(batch.inputs)
        return PASSES * (self.filling_flops(require(model, FillsMasks), batch) + detecting)


def sample_tokens(scores: Tensor, numbers: Tensor) -> Tensor:
    """One token [N] from softmax(scores [N, V]) for each even number [N] in [0, 1), by the inverse of its distribution.

    One random number for each token, made with the batch, rather than one for each token and word: drawing N · V
    numbers costs more than the scores themselves on a CPU.
    """
    reached = scores.softmax(-1).cumsum(-1)
    drawn = torch.searchsorted(reached, (numbers * reached[:, -1])[:, None], right=True)[:, 0]
    return drawn.clamp_(max=scores.shape[-1] - 1)


def _real(batch: Batch) -> Tensor | None:
    """Which tokens [B, T] are not padding; None where none is."""
    lengths = batch.inputs.get("lengths")
    if lengths is None:
        return None
    return torch.arange(batch.inputs["tokens"].shape[1], device=lengths.device) < lengths[:, None]
