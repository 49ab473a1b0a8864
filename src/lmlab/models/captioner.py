"""Captioner: an LSTM writes the caption of a picture, and looks at a part of the picture for each word.

Xu et al. 2015, "Show, Attend and Tell: Neural Image Caption Generation with Visual Attention", section 3.1 and 4.2 (the
soft attention):

    a_1 … a_R = Encoder(picture)                   vectors of R regions: convolutions, or the patches of a ViT
    h_0 = tanh(W_h mean(a)),  c_0 = tanh(W_c mean(a))
    e_ti = vᵀ tanh(W₁ a_i + W₂ h_{t−1});  α_t = softmax(e_t)
    ẑ_t = β_t Σ_i α_ti a_i                         β_t = σ(w h_{t−1} + b), the gate of section 4.2.1
    h_t, c_t = LSTM([E y_t; ẑ_t], h_{t−1}, c_{t−1})
    P(y_{t+1} | y_1 … y_t, picture) = softmax(L_o(E y_t + L_h h_t + L_z ẑ_t))

The convolutions of a small net see a part of the picture only, so a learnt vector is added for the place of each
region. The objective, with its doubly stochastic attention, is in objectives/captioning.py. Shapes: B pictures, K
captions decoded for each (beams), R regions, T target tokens, D width of a region, H width of the decoder's state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from lmlab.config import build
from lmlab.layers.alignment import ALIGNMENTS
from lmlab.layers.convolution import RegionEncoder
from lmlab.layers.dropout import Dropout
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.positions import check_window
from lmlab.layers.recurrent import LSTMLayer
from lmlab.layers.softmax import Softmax
from lmlab.layers.watching import watching_layers
from lmlab.models import load_class
from lmlab.models.abilities import State
from lmlab.models.model import EncoderDecoder, Model, ModelConfig, Output, TokenModelConfig, by_depth
from lmlab.models.settings import PictureModelConfig
from lmlab.models.states import Decoding, map_state


class RegionsConfig(PictureModelConfig, TokenModelConfig):
    """Settings of models that read a picture as regions, and a text."""

    PLACEHOLDERS: ClassVar[Mapping[str, Any]] = {**PictureModelConfig.PLACEHOLDERS, **TokenModelConfig.PLACEHOLDERS}

    encoder: Literal["conv", "vit"] = Field("conv", description="regions: of a convolutional net, or a ViT's patches")
    convolutions: list[int] = Field(
        [32, 64, 128], min_length=1, max_length=6, description="conv: channels of each layer; each halves the sides"
    )
    patch: int | None = Field(None, ge=1, description="vit: side of a patch in pixels; none: at most 64 patches")
    patch_width: int = Field(128, ge=1, description="vit: hidden size")
    patch_heads: int = Field(4, ge=1, description="vit: attention heads; must divide its width")
    patch_layers: int = Field(4, ge=1, description="vit: Transformer blocks")
    attention: Literal["additive", "multiplicative", "none"] = Field(
        "additive", description="score of a region in attention; none: the mean of all regions, for comparison"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout probability, on embeddings and the last vector")


class CaptionerConfig(RegionsConfig):
    """The size of a captioner."""

    width: int = Field(128, ge=1, description="embedding size: width of the token vectors")
    hidden: int = Field(256, ge=1, description="hidden size: width of the decoder's states")
    gate: bool = Field(True, description="the gate β, by which the decoder can ignore the picture")
    window: int = Field(48, ge=2, description="the most tokens of a caption, with the start")


class PictureRegions(nn.Module):
    """Pictures [B, C, height, width] to the vectors of their regions [B, R, D], row by row."""

    def __init__(self, config: RegionsConfig) -> None:
        super().__init__()
        height, width = config.image
        self.shape = (config.channels, height, width)
        self.net: RegionEncoder | Model
        self.positions: nn.Parameter | None = None
        if config.encoder == "conv":
            self.net = RegionEncoder(config.channels, config.convolutions)
            self.grid, self.width = self.net.grid(height, width), self.net.width
            self.positions = nn.Parameter(torch.empty(math.prod(self.grid), self.width).normal_(std=0.5))
        else:
            self.net = _make_vit(config)
            self.grid, self.width = self.net.config.grid, config.patch_width

    def forward(self, pixels: Tensor, modulations: Sequence[Tensor] | None = None) -> Tensor:
        if pixels.shape[1:] != self.shape:
            raise ValueError(f"pixels of shape {list(pixels.shape)}: this model reads [B, {str(self.shape)[1:-1]}]")
        if self.positions is None:
            regions: Tensor = self.net(pixels).hidden[:, 1:]
            return regions
        regions = self.net(pixels, modulations).flatten(2).mT + self.positions
        return regions

    def flops(self) -> float:
        """Floating-point operations of one picture."""
        if isinstance(self.net, RegionEncoder):
            return self.net.flops(*self.shape[1:])
        return self.net.body_flops(1)


def _make_vit(config: RegionsConfig) -> Model:
    cls = load_class("vit")
    values = {"width": config.patch_width, "heads": config.patch_heads, "layers": config.patch_layers}
    own = {"image": config.image, "channels": config.channels, "patch": config.patch, "dropout": config.dropout}
    net: Model = cls(build(cls.Config, {**values, **own}, where="model"))
    return net


class EncodedPictures(NamedTuple):
    """What the decoder knows of the pictures."""

    regions: Tensor  # a [B, R, D]
    keys: Tensor  # W₁ a [B, R, H]; without attention a
    start: tuple[Tensor, Tensor]  # h_0 and c_0 [B, H]


class WrittenCaption(NamedTuple):
    """What the decoder gives for target tokens."""

    hidden: Tensor  # [B * K, T, width], from which the next tokens are scored
    weights: Tensor  # α [B * K, T, R]
    state: tuple[Tensor, Tensor]  # h and c after the last token


class Captioner(EncoderDecoder):
    """An encoder of pictures and a decoder of captions (`WritesCaptions`)."""

    Config: ClassVar[type[ModelConfig]] = CaptionerConfig
    main_input: ClassVar[str] = "pixels"

    config: CaptionerConfig
    output: Softmax

    def __init__(self, config: CaptionerConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = PictureRegions(config)
        D, H, width = self.encoder.width, config.hidden, config.width
        self.embedding = nn.Embedding(config.vocabulary, width)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.dropout = Dropout(config.dropout)
        self.first = nn.ModuleList((Linear(D, H), Linear(D, H)))
        self.alignment = None if config.attention == "none" else ALIGNMENTS[config.attention](H, D)
        self.gate = Linear(H, 1) if config.gate else None
        self.decoder = LSTMLayer(width + D, H)
        self.from_state = Linear(H, width, bias=False)
        self.from_picture = Linear(D, width, bias=False)
        self.output = Softmax(width, config.vocabulary)

    @property
    def window(self) -> int:
        return self.config.window

    @property
    def source_window(self) -> int | None:
        return None

    @property
    def grid(self) -> tuple[int, int]:
        """The number of regions from top to bottom, and from left to right."""
        return self.encoder.grid

    def blank_inputs(self, rows: int, window: int) -> dict[str, Tensor]:
        pixels = torch.zeros(rows, *self.encoder.shape, device=self.device)
        return {"pixels": pixels, "tokens": torch.zeros(rows, window, dtype=torch.long, device=self.device)}

    def encode(self, *, pixels: Tensor) -> EncodedPictures:
        regions = self.encoder(pixels)
        mean = regions.mean(1)
        h, c = (torch.tanh(part(mean)) for part in self.first)
        return EncodedPictures(regions, regions if self.alignment is None else self.alignment.keys(regions), (h, c))

    def forward(
        self,
        tokens: Tensor,
        *,
        pixels: Tensor | None = None,
        target_lengths: Tensor | None = None,
        state: State = None,
    ) -> Output:
        """Target tokens [B * K, T] -> vectors [B * K, T, width]. What follows a token does not change its vector."""
        if state is not None:
            written = self._write(tokens, state.encoded, state.decoder)
            return Output(written.hidden, Decoding(state.encoded, written.state))
        if pixels is None:
            raise ValueError("a captioner needs a picture: give pixels=, or a state from begin()")
        hidden, _ = self.attend(tokens, pixels=pixels)
        return Output(hidden)

    def attend(self, tokens: Tensor, *, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """The vectors of target tokens [B, T, width], and the attention α [B, T, R] with which each was computed."""
        encoded = self.encode(pixels=pixels)
        written = self._write(tokens, encoded, encoded.start)
        return written.hidden, written.weights

    def _write(self, tokens: Tensor, encoded: EncodedPictures, state: tuple[Tensor, Tensor]) -> WrittenCaption:
        check_window(0, tokens.shape[1], self.config.window)
        x = self.dropout(self.embedding(tokens))
        states, seen, weights = [], [], []
        for x_t in x.unbind(1):
            z, alpha = self._look(state[0], encoded)
            _, state = self.decoder.run(torch.cat([x_t, z], dim=-1)[:, None], state)
            states.append(state[0])
            seen.append(z)
            weights.append(alpha)
        hidden = x + self.from_state(torch.stack(states, 1)) + self.from_picture(torch.stack(seen, 1))
        return WrittenCaption(self.dropout(hidden), torch.stack(weights, 1), state)

    def _look(self, h: Tensor, encoded: EncodedPictures) -> tuple[Tensor, Tensor]:
        """State h [B * K, H] -> ẑ [B * K, D] and α [B * K, R]."""
        if self.alignment is None:
            beams, (_, R, _) = len(h) // len(encoded.regions), encoded.regions.shape
            z, alpha = encoded.regions.mean(1).repeat_interleave(beams, 0), h.new_full((len(h), R), 1 / R)
        else:
            found = self.alignment.read(h[:, None], encoded.keys, encoded.regions)
            z, alpha = found[0][:, 0], found[1][:, 0]
        return (z if self.gate is None else torch.sigmoid(self.gate(h)) * z), alpha

    def begin(self, encoded: EncodedPictures, *, beams: int = 1) -> Decoding:
        start = encoded.start
        return Decoding(encoded, start if beams == 1 else map_state(lambda s: s.repeat_interleave(beams, 0), start))

    def layers(self, **inputs: Any) -> list[Tensor]:
        """Those of the encoder alone: of a convolutional net the regions, of a ViT its layers without [CLS]."""
        with watching_layers() as layers:
            regions = self.encoder(inputs["pixels"])
        return [layer[:, 1:] for layer in layers] or [regions]

    def depths(self) -> list[list[nn.Parameter]]:
        """The decoder is above the encoder, whose vectors it reads."""
        read = (self.first, self.alignment, self.gate)
        return by_depth(self, (self.embedding,), (self.encoder,), (self.decoder, *read, self.from_state))

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        """FLOPs of encoding one picture: tasks use only the encoder."""
        return self.encoder.flops()

    def pair_flops(self, source: int, target: int) -> float:
        """Of a picture and a caption of `target` tokens; `source` is not used, since all pictures have one size."""
        D, H, width = self.encoder.width, self.config.hidden, self.config.width
        R = math.prod(self.grid)
        step = 2.0 * (4 * H * (width + D + H) + width * (H + D) + (H if self.config.gate else 0))
        look = 0.0 if self.alignment is None else self.alignment.flops(R, target)
        return self.encoder.flops() + 4.0 * D * H + target * step + look

    def pretraining_flops(self, window: int, *, predicted: float = 1.0) -> float:
        """Per picture, with a caption of `window` tokens."""
        return self.pair_flops(1, window) + window * self.head_flops()

    def reading_flops(
        self, inputs: Mapping[str, Tensor], *, positions: int | None = None, memory_length: int = 0
    ) -> float:
        if "tokens" in inputs:
            return self.writing_flops(inputs)
        return len(inputs["pixels"]) * self.encoder.flops()

    def writing_flops(self, inputs: Mapping[str, Tensor]) -> float:
        """Padding of captions is computed."""
        rows, target = inputs["tokens"].shape
        return rows * self.pair_flops(1, target)
