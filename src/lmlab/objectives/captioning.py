"""Captioning: predict each token of a caption from its picture and from the caption's tokens before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from lmlab.config import Config
from lmlab.data.corpora.pictures.split import PictureSplit, TokenRows
from lmlab.data.loaders.pictures import PictureLoader, PictureRows
from lmlab.models.abilities import LearnsTarget, State, WritesCaptions, require
from lmlab.models.model import Model
from lmlab.objectives.objective import IGNORE, Batch, Loss
from lmlab.objectives.seq2seq import TargetLoss, evaluate_targets, target_batch
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame, pad_rows


class CaptioningConfig(Config):
    """How captions are taught."""

    coverage: float = Field(
        0.0, ge=0, description="weight λ of the doubly stochastic attention: each region is attended to about once"
    )


class PictureTargets(TargetLoss):
    """What objectives share that predict a text from a picture: the loader, the pixels, and the rows of the frame."""

    reads: ClassVar[tuple[str, ...]] = ("captions",)
    specials: ClassVar[tuple[str, ...]] = ()
    likelihood: ClassVar[bool] = False
    fields: ClassVar[tuple[str, ...]]
    """The texts of a row that it reads, by the names of their columns."""
    terms: ClassVar[tuple[str, ...]] = ()
    """Terms of the loss besides that of the target."""

    def __init__(self, frame: Frame | None) -> None:
        super().__init__(0.0)
        self.frame = frame

    def process_by(self, processor: Any) -> None:
        """Make inputs of pictures by this processor from now on."""
        self.processor = processor

    def loader(self, data: PictureSplit, *, batch: int, window: int, seed: int, streams: bool) -> PictureLoader:
        if self.frame is None:
            texts, name = f"{self.fields[-1]}s", type(self).__name__
            raise ValueError(f"{texts} need the frame of their model; give {name} frame_of(model, tokenizer)")
        tokens_of(data, self.fields)
        longest = window + 1  # the last token is predicted, and not read
        return PictureLoader(data, batch=batch, longest=longest, seed=seed)

    def parts(self, tokens: Mapping[str, TokenRows], row: int) -> dict[str, NDArray[np.uint32]]:
        """The texts of a row, by the letters of the frame: `b` is the target."""
        raise NotImplementedError

    def batch(self, raw: PictureRows, generator: np.random.Generator | None = None) -> Batch:
        """Pictures, sources x1 .. xn b if there are any, and target rows b y1 .. ym, to be followed by y1 .. ym b."""
        assert self.frame is not None, "the target is text"
        tokens = tokens_of(raw.split, self.fields)
        frame = replace(self.frame, window=raw.longest)
        rows = frame.rows([self.parts(tokens, row) for row in raw.rows.tolist()])
        target, lengths = pad_rows([row.inputs["tokens"].pieces for row in rows])
        sources = {"pixels": self.processor.normalise(raw.pixels)}
        if "source" in rows[0].inputs:
            sources["source"], sources["lengths"] = pad_rows([row.inputs["source"].pieces for row in rows])
        made = target_batch(target, lengths - 1, sources=sources, terms=self.terms)
        return made._replace(units={"images": len(rows)})


class Captioning(PictureTargets):
    """−log P(y | picture) + λ Σ_i (1 − Σ_t α_ti)², divided by the number of tokens (Xu et al. 2015, equation 14).

    The second term is reported as `coverage_loss`. Padding of a caption is in neither of them. With more regions than
    words it is smallest where attention is spread evenly, so λ is 0 unless it is asked for.
    """

    Config: ClassVar[type[Config]] = CaptioningConfig
    default_for: ClassVar[tuple[str, ...]] = ("captions",)
    fields: ClassVar[tuple[str, ...]] = ("caption",)
    terms: ClassVar[tuple[str, ...]] = ("coverage",)

    def __init__(
        self, config: CaptioningConfig | None = None, tokenizer: Tokenizer | None = None, frame: Frame | None = None
    ) -> None:
        super().__init__(frame)
        self.config = config or CaptioningConfig()
        if self.config.coverage:
            self.loss_weights = {"target": 1.0, "coverage": self.config.coverage}

    @classmethod
    def needs(cls, config: object) -> tuple[type, ...]:
        return (LearnsTarget, WritesCaptions)

    def parts(self, tokens: Mapping[str, TokenRows], row: int) -> dict[str, NDArray[np.uint32]]:
        return {"b": tokens["caption"].row(row)}

    def loss(self, model: Model, heads: Mapping[str, nn.Module], batch: Batch, state: State = None) -> Loss:
        writer, targets = require(model, LearnsTarget), batch.labels["targets"]
        hidden, weights = require(model, WritesCaptions).attend(batch.inputs["tokens"], pixels=batch.inputs["pixels"])
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


def tokens_of(split: PictureSplit, fields: Sequence[str]) -> Mapping[str, TokenRows]:
    """The tokens of a split's texts; a ValueError where one of these fields is missing."""
    found = split.tokens or {}
    if missing := [field for field in fields if field not in found]:
        there = ", ".join(split.fields) or "no texts"
        raise ValueError(
            f"these pictures have no {' and no '.join(f'{field}s' for field in missing)} ({there} were found): name "
            f"{'the columns' if len(missing) > 1 else 'the column'}, --columns "
            f"{','.join(f'{field}=NAME' for field in missing)}"
        )
    return found
