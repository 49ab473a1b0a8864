"""Policy: a Transformer that reads a picture and a command, and writes an action as words.

Brohan et al. 2023, "RT-2: Vision-Language-Action Models Transfer Web Knowledge to Robotic Control". An action is a few
words of the same vocabulary as all other text, one for the bin of each of its numbers (section 3.2). So one model
learns to act, to describe pictures and to answer questions, from the same loss (co-fine-tuning):

    x = [W a_1 + P_1; …; W a_R + P_R; √d E(command) + PE]       a_i the vectors of R regions of the picture
    P(action) = Π_t P(y_t | y_1 … y_{t−1}, Encoder(x))            by the decoder of the Transformer

As in PaLI, one of the two models of the paper, an encoder reads picture and words together. Encoder, decoder and the
writing are those of transformer.py, with pre-norm blocks; the regions those of captioner.py. Without pretraining such
an encoder is slow to learn which region a command means, so the command also scales and shifts the channels of the
convolutions (FiLM), as in RT-1, the model before it (Brohan et al. 2022): a_i = Convolutions(picture, c) with
c = Σ_s √d E(command_s) / √S.
Shapes: B pictures, R regions, S words of a command, D width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from lmlab.layers.attention.multi_head import Encoded
from lmlab.layers.convolution import FeatureModulation
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.kernels.packing import pack_tokens
from lmlab.layers.watching import record_layer
from lmlab.models.captioner import PictureRegions, RegionsConfig
from lmlab.models.flops import row_lengths
from lmlab.models.model import ModelConfig
from lmlab.models.transformer import Transformer, TransformerConfig


class PolicyConfig(RegionsConfig, TransformerConfig):
    """The size of a policy."""

    PLACEHOLDERS: ClassVar[Mapping[str, Any]] = RegionsConfig.PLACEHOLDERS

    width: int = Field(128, ge=1, description="hidden size: width of the vectors of regions and tokens")
    inner: int = Field(512, ge=1, description="width of the feed-forward layers (intermediate size)")
    norm: Literal["post", "pre"] = Field("pre", description="pre-norm or post-norm blocks")
    film: bool = Field(True, description="conv: the command scales and shifts the channels of the convolutions (FiLM)")
    window: int = Field(32, ge=2, description="the most tokens of an action or answer, with the start")


class Policy(Transformer):
    """A Transformer whose sources are pictures with commands (`FollowsCommands`)."""

    Config: ClassVar[type[ModelConfig]] = PolicyConfig
    main_input: ClassVar[str] = "pixels"

    config: PolicyConfig

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(config)
        self.regions = PictureRegions(config)
        self.film: FeatureModulation | None = None
        if config.film and config.encoder == "conv":
            self.film = FeatureModulation(config.width, config.convolutions)
        self.projection = Linear(self.regions.width, config.width)
        self.region_positions = nn.Parameter(torch.empty(math.prod(self.grid), config.width).normal_(std=0.5))

    @property
    def window(self) -> int:
        return self.config.window

    @property
    def source_window(self) -> int | None:
        return None

    @property
    def grid(self) -> tuple[int, int]:
        """The number of regions from top to bottom, and from left to right."""
        return self.regions.grid

    def blank_inputs(self, rows: int, window: int) -> dict[str, Tensor]:
        tokens = torch.zeros(rows, window, dtype=torch.long, device=self.device)
        pixels = torch.zeros(rows, *self.regions.shape, device=self.device)
        return {"pixels": pixels, "source": tokens, "tokens": tokens}

    def read_source(self, **inputs: Any) -> Encoded:
        return self.read_command(**inputs)

    def read_command(self, *, pixels: Tensor, source: Tensor, lengths: Tensor | None = None) -> Encoded:
        """The encoder's vectors of the regions of pictures [B, C, height, width] and of commands [B, S]."""
        words = self.embedding(source) * self.scale  # [B, S, D]
        modulations = None if self.film is None else self.film(_sum_words(words, lengths))
        regions = self.projection(self.regions(pixels, modulations)) + self.region_positions  # [B, R, D]
        words = words + self.encoder.positions(0, source.shape[1])
        both = torch.cat([regions, words], dim=1)
        padding = pack_tokens(both[..., 0], None if lengths is None else lengths + regions.shape[1])
        x = cast(Tensor, self.encoder.dropout(padding.pack(both)))
        for block in self.encoder.blocks:
            record_layer(x, unpack=padding.unpack)
            x = block(x, padding)
        x = self.encoder.norm(x)
        record_layer(x, unpack=padding.unpack)
        return Encoded(x, padding)

    def embedding_parts(self) -> list[nn.Module | nn.Parameter | None]:
        return [*super().embedding_parts(), self.regions, self.film, self.projection, self.region_positions]

    def writing_flops(self, inputs: Mapping[str, Tensor]) -> float:
        """Attention computes padding (pack_tokens), the rest does not."""
        (rows, S), T, R = inputs["source"].shape, inputs["tokens"].shape[1], math.prod(self.grid)
        source = rows * R + sum(row_lengths(inputs, "source"))
        target = sum(row_lengths(inputs, lengths="target_lengths"))
        body = self.config.encoder_flops(source, rows * (R + S) ** 2)
        return self._picture_flops(rows) + body + self.config.decoder_flops(source, target, rows * T * (T + R + S))

    def reading_flops(
        self, inputs: Mapping[str, Tensor], *, positions: int | None = None, memory_length: int = 0
    ) -> float:
        if "tokens" in inputs:
            return self.writing_flops(inputs)
        (rows, S), R = inputs["source"].shape, math.prod(self.grid)
        source = rows * R + sum(row_lengths(inputs, "source"))
        return self._picture_flops(rows) + self.config.encoder_flops(source, rows * (R + S) ** 2)

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        """Of the encoder, for one picture with a command of `window` tokens."""
        length = math.prod(self.grid) + window
        return self._picture_flops(1) + self.config.encoder_flops(length, length * length)

    def pretraining_flops(self, window: int, *, predicted: float = 1.0) -> float:
        """Per picture, with a command and an action of `window` tokens each."""
        length = math.prod(self.grid) + window
        decoder = self.config.decoder_flops(length, window, window * (window + length))
        return self.body_flops(window) + decoder + window * self.head_flops()

    def _picture_flops(self, rows: int) -> float:
        """Of the regions of pictures, and of their projection."""
        film = 0 if self.film is None else sum(weight.numel() for weight in self.film.parameters() if weight.dim() == 2)
        regions = math.prod(self.grid) * self.projection.weight.numel()
        return rows * (self.regions.flops() + 2.0 * (regions + film))


def _sum_words(words: Tensor, lengths: Tensor | None) -> Tensor:
    """The vectors of words [B, S, D] in one [B, D]: their sum, divided by the square root of their number."""
    if lengths is None:
        return words.sum(1) / math.sqrt(words.shape[1])
    real = torch.arange(words.shape[1], device=words.device) < lengths[:, None]
    return (words * real[..., None]).sum(1) / lengths[:, None].clamp(min=1).sqrt()
