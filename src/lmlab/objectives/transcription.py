"""Transcription: predict each token of a text from the spectrogram of its recording and the tokens before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from lmlab.config import Config
from lmlab.data.corpora.recordings import SpeechSplit
from lmlab.data.loaders.recordings import SpeechBatches, SpeechRows
from lmlab.layers.watching import watching_layers
from lmlab.models.abilities import LearnsTarget, State, Transcribes, require
from lmlab.models.flops import PASSES
from lmlab.models.model import Model
from lmlab.objectives.objective import IGNORE, Batch, Loss
from lmlab.objectives.seq2seq import TargetLoss, target_batch
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.frames import Frame


class TranscriptionConfig(Config):
    """How transcription is taught."""

    smoothing: float = Field(
        0.0, ge=0, lt=1, description="label smoothing: probability mass spread evenly over all tokens, in training only"
    )
    ctc: float = Field(
        0.0, ge=0, le=10, description="weight of the alignment loss (CTC) of the encoder, which needs no decoder"
    )
    masks: int = Field(
        2, ge=0, le=20, description="bands of frequencies, and of times, that are set to zero in training; 0: none"
    )
    mask_bands: int = Field(12, ge=1, description="the most mel bands of one mask")
    mask_frames: int = Field(20, ge=1, description="the most frames of one mask")
    token_noise: float = Field(
        0.0, ge=0, lt=1, description="probability that a token that the decoder reads is a random one, in training only"
    )
    silent: bool = Field(False, description="replace every recording by silence: the control that ignores the sound")


class Transcription(TargetLoss):
    """−log P(text | sound) = −Σ_t log P(y_t | y_1 .. y_t-1, sound) (Radford et al. 2022, section 2.2).

    In training, bands of each spectrogram are masked (SpecAugment; Park et al. 2019, section 2). With `token_noise`
    some of the earlier tokens are replaced by random ones: few texts are learnt by heart, and a decoder that cannot
    trust the text so far has to use the sound. With `ctc`, the loss has a second term: −log of the sum over all ways to
    write the text along the encoder's positions, blanks between its tokens (CTC; Graves et al. 2006). With little data
    it teaches the encoder to read from left to right, after which the decoder finds its place (Watanabe et al. 2017,
    "Hybrid CTC/attention architecture"). Both terms use the same output layer, and the boundary is the blank, so the
    model has no further weights.
    """

    Config: ClassVar[type[Config]] = TranscriptionConfig
    reads: ClassVar[tuple[str, ...]] = ("speech",)
    default_for: ClassVar[tuple[str, ...]] = ("speech",)
    specials: ClassVar[tuple[str, ...]] = ()
    likelihood: ClassVar[bool] = False

    def __init__(
        self, config: TranscriptionConfig | None = None, tokenizer: Tokenizer | None = None, frame: Frame | None = None
    ) -> None:
        self.config, self.frame = config or TranscriptionConfig(), frame
        super().__init__(self.config.smoothing)
        if self.config.ctc:
            self.loss_weights = {**self.loss_weights, "ctc": self.config.ctc}

    @classmethod
    def needs(cls, config: object) -> tuple[type, ...]:
        return (LearnsTarget, Transcribes)

    def loader(self, data: SpeechSplit, *, batch: int, window: int, seed: int, streams: bool) -> SpeechBatches:
        if self.frame is None:
            raise ValueError("transcripts need the frame of their model; give Transcription frame_of(model, tokenizer)")
        return SpeechBatches(data, frame=self.frame, batch=batch, window=window, seed=seed)

    def batch(self, raw: SpeechRows, generator: np.random.Generator | None = None) -> Batch:
        """Spectrograms, and target rows b y1 .. ym, to be followed by y1 .. ym b."""
        sound = np.zeros_like(raw.sound) if self.config.silent else raw.sound
        made = target_batch(
            torch.from_numpy(raw.target),
            torch.from_numpy(raw.target_lengths),
            sources={"sound": torch.from_numpy(sound), "lengths": torch.from_numpy(raw.lengths)},
            given=raw.prompt,
            terms=("ctc",),
        )
        return made._replace(units={"tokens": made.counts["target"], "frames": int(raw.lengths.sum())})

    def loss(self, model: Model, heads: Mapping[str, nn.Module], batch: Batch, state: State = None) -> Loss:
        if model.training and self.config.masks and not self.config.silent:
            batch = batch._replace(inputs={**batch.inputs, "sound": self.mask(**_sounds(batch.inputs))})
        if model.training and self.config.token_noise:
            vocabulary = require(model, Transcribes).vocabulary
            noisy = self.replace_tokens(batch.inputs["tokens"], batch.labels["targets"], vocabulary=vocabulary)
            batch = batch._replace(inputs={**batch.inputs, "tokens": noisy})
        if not self.config.ctc:
            return super().loss(model, heads, batch, state)
        with watching_layers() as layers:
            found = super().loss(model, heads, batch, state)
        if not layers:
            raise ValueError(
                "objective.ctc reads the encoder's vectors, which a compiled model does not give: set it to 0"
            )
        return found._replace(sums={**found.sums, "ctc": self.alignment_loss(model, layers[-1], batch)})

    def alignment_loss(self, model: Model, vectors: Tensor, batch: Batch) -> Tensor:
        """The sum over all rows of −log P(text | positions) by CTC; `vectors` [B, S, D] are the encoder's."""
        targets = batch.labels["targets"]
        blank = int(targets[0][targets[0] != IGNORE][-1])  # the boundary ends every text, and is in none
        written = targets.masked_fill((targets == IGNORE) | (targets == blank), 0)
        lengths = ((targets != IGNORE) & (targets != blank)).sum(1)
        first = (targets != IGNORE).long().argmax(1, keepdim=True)  # where the text begins, after the marks before it
        places = (first + torch.arange(targets.shape[1], device=targets.device)).clamp(max=targets.shape[1] - 1)
        logs = require(model, LearnsTarget).logits(vectors).float().log_softmax(-1).transpose(0, 1)
        heard = (batch.inputs["lengths"] + 1) // 2
        return F.ctc_loss(
            logs, written.gather(1, places), heard, lengths, blank=blank, reduction="sum", zero_infinity=True
        )

    def batch_flops(self, model: Model, batch: Batch, *, memory_length: int = 0) -> float:
        usual = super().batch_flops(model, batch, memory_length=memory_length)
        rows, _, frames = batch.inputs["sound"].shape
        scores = rows * ((frames + 1) // 2) if self.config.ctc else 0
        return usual + PASSES * scores * require(model, LearnsTarget).head_flops()

    def replace_tokens(self, tokens: Tensor, targets: Tensor, *, vocabulary: int) -> Tensor:
        """Tokens [B, T] with random ones among them; the marks before a text stay."""
        text = (targets != IGNORE).cummax(1).values.roll(1, 1)  # a token of the text follows another target
        text[:, 0] = False
        replaced = text & (torch.rand(tokens.shape, device=tokens.device) < self.config.token_noise)
        return torch.where(replaced, torch.randint(vocabulary, tokens.shape, device=tokens.device), tokens)

    def mask(self, sound: Tensor, lengths: Tensor) -> Tensor:
        """Spectrograms [B, M, F] with random bands of frequencies and of times set to zero, near their mean."""
        rows, bands, frames = sound.shape
        widest = lengths.clamp(max=4 * self.config.mask_frames) / 4
        for _ in range(self.config.masks):
            size, at = torch.rand(2, rows, 1, 1, device=sound.device) * torch.tensor([self.config.mask_bands, bands])[
                :, None, None, None
            ].to(sound.device)
            band = torch.arange(bands, device=sound.device)[:, None]
            hidden = (band >= at) & (band < at + size.round())
            size, at = torch.rand(2, rows, 1, 1, device=sound.device) * torch.stack((widest, lengths))[:, :, None, None]
            frame = torch.arange(frames, device=sound.device)
            hidden = hidden | ((frame >= at) & (frame < at + size.round()))
            sound = sound.masked_fill(hidden, 0)
        return sound


def _sounds(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: inputs[name] for name in ("sound", "lengths")}
