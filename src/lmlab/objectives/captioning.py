"""Captioning: predict each token of a caption from its picture and from the caption's tokens before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from lmlab.config import Config
from lmlab.data.corpora.pictures.images import PictureSplit, TokenRows
from lmlab.data.loaders.pictures import PictureLoader, PictureRows
from lmlab.models.abilities import Captions, LearnsTarget, State, require
from lmlab.models.model import Model
from lmlab.objectives.objective import IGNORE, Batch, Loss
from lmlab.objectives.seq2seq import TargetLoss, evaluate_targets
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame, pad_rows


class CaptioningConfig(Config):
    """How captions are taught."""

    coverage: float = Field(
        0.0, ge=0, description="weight λ of the doubly stochastic attention: each region is attended to about once"
    )


class Captioning(TargetLoss):
    """−log P(y | picture) + λ Σ_i (1 − Σ_t α_ti)², divided by the number of tokens (Xu et al. 2015, equation 14).

    The second term is reported as `coverage_loss`. Padding of a caption is in neither of them. With more regions than
    words it is smallest where attention is spread evenly, so λ is 0 unless it is asked for.
    """

    Config: ClassVar[type[Config]] = CaptioningConfig
    reads: ClassVar[tuple[str, ...]] = ("captions",)
    default_for: ClassVar[tuple[str, ...]] = ("captions",)
    specials: ClassVar[tuple[str, ...]] = ()
    likelihood: ClassVar[bool] = False

    def __init__(
        self, config: CaptioningConfig | None = None, tokenizer: Tokenizer | None = None, frame: Frame | None = None
    ) -> None:
        super().__init__(0.0)
        self.config, self.frame = config or CaptioningConfig(), frame
        if self.config.coverage:
            self.loss_weights = {"target": 1.0, "coverage": self.config.coverage}

    @classmethod
    def needs(cls, config: object) -> tuple[type, ...]:
        return (LearnsTarget, Captions)

    def process_by(self, processor: Any) -> None:
        """Make inputs of pictures by this processor from now on."""
        self.processor = processor

    def loader(self, data: PictureSplit, *, batch: int, window: int, seed: int, streams: bool) -> PictureLoader:
        if self.frame is None:
            raise ValueError("captions need the frame of their model; give Captioning frame_of(model, tokenizer)")
        self.frame = replace(self.frame, window=window + 1)  # the last token is predicted, and not read
        captions_of(data)
        return PictureLoader(data, batch=batch, seed=seed)

    def batch(self, raw: PictureRows, generator: np.random.Generator | None = None) -> Batch:
        """Pictures, and target rows b y1 .. ym, to be followed by y1 .. ym b."""
        assert self.frame is not None, "captions are text"
        captions = captions_of(raw.split)
        rows = self.frame.rows([{"b": captions.row(row)} for row in raw.rows.tolist()])
        target, lengths = pad_rows([row.inputs["tokens"].pieces for row in rows])
        lengths = lengths - 1
        predicted = torch.arange(target.shape[1] - 1) < lengths[:, None]
        count = int(predicted.sum())
        return Batch(
            {
                "tokens": target[:, :-1].contiguous(),
                "pixels": self.processor.normalise(raw.pixels),
                "target_lengths": lengths,
            },
            {"targets": target[:, 1:].masked_fill(~predicted, IGNORE)},
            {"target": count, "coverage": count, "nats": count},
            {"images": len(rows)},
        )

    def loss(self, model: Model, heads: Mapping[str, nn.Module], batch: Batch, state: State = None) -> Loss:
        writer, targets = require(model, LearnsTarget), batch.labels["targets"]
        hidden, weights = require(model, Captions).attend(batch.inputs["tokens"], pixels=batch.inputs["pixels"])
        predicted = targets != IGNORE
        coverage = {"coverage": coverage_of(weights, predicted)} if self.config.coverage else {}
        hidden, targets = hidden[predicted], targets[predicted]
        if model.training:
            return Loss({"target": writer.total_nll(hidden, targets), **coverage})
        plain, right = evaluate_targets(writer, hidden, targets)
        return Loss({"target": plain, "nats": plain, **coverage}, watched={"accuracy": right})


def coverage_of(weights: Tensor, predicted: Tensor) -> Tensor:
    """Σ_i (1 − Σ_t α_ti)² of all pictures: α [B, T, R]; only the tokens `predicted` [B, T] count."""
    return (1 - (weights * predicted[..., None]).sum(1)).square().sum()


def captions_of(split: PictureSplit) -> TokenRows:
    """The tokens of a split's captions; a ValueError where its texts are something else."""
    if split.tokens is None or "caption" not in split.tokens:
        there = ", ".join(split.fields) or "no texts"
        raise ValueError(
            f"these pictures have no captions ({there} were found): name their column, --columns caption=NAME"
        )
    return split.tokens["caption"]
