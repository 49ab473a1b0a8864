"""CLIP: an encoder of pictures and an encoder of texts that give both vectors in one space.

Radford et al. 2021, "Learning Transferable Visual Models From Natural Language Supervision", section 2 and figure 3.

    pictures:  x = LN([c; E p_1; …; E p_N] + P);  blocks;  u = W_p LN(x_0)      c is a learnt class vector, p_i a patch
    texts:     y = E[w] + P;  blocks, each token sees those before it;  v = W_t LN(y_end)
    similarity of picture i and text j:  exp(τ) · cos(u_i, v_j),  exp(τ) at most 100

The blocks are GPT-2's with another GELU. What is learnt from pairs is in objectives/contrastive.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from lmlab.layers.attention.multi_head import FULL, BidirectionalAttention, head_width
from lmlab.layers.feedforward import FeedForward
from lmlab.layers.kernels.gelu import gelu, quick_gelu
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.kernels.packing import pack_by_length
from lmlab.layers.padding import Padding, gather_positions
from lmlab.layers.positions import LearnedPositions, check_window
from lmlab.layers.watching import is_watched, layers_watched, record_layer
from lmlab.models.abilities import State
from lmlab.models.flops import row_lengths
from lmlab.models.model import Heads, Model, ModelConfig, Output, TokenModelConfig, by_depth
from lmlab.models.settings import PictureModelConfig
from lmlab.models.vit import check_patch, choose_patch

GELU: dict[str, Callable[[Tensor], Tensor]] = {"quick": quick_gelu, "exact": gelu}
LARGEST_SCALE = 100.0
"""Similarities are multiplied by at most this number (section 2.5)."""


class ClipConfig(PictureModelConfig, TokenModelConfig):
    """The sizes of both encoders."""

    PLACEHOLDERS: ClassVar[Mapping[str, Any]] = {**TokenModelConfig.PLACEHOLDERS, **PictureModelConfig.PLACEHOLDERS}

    patch: int | None = Field(
        None, ge=1, description="side of a patch in pixels; none: the smallest that gives at most 64 patches"
    )
    width: int = Field(128, ge=1, description="hidden size of the picture encoder")
    heads: Heads = 4
    layers: int = Field(4, ge=1, description="Transformer blocks of the picture encoder")
    text_width: int = Field(128, ge=1, description="hidden size of the text encoder")
    text_heads: int = Field(4, ge=1, description="attention heads of the text encoder; must divide its width")
    text_layers: int = Field(4, ge=1, description="Transformer blocks of the text encoder")
    window: int = Field(32, ge=2, description="context length: the most tokens of a text, start and end included")
    space: int = Field(128, ge=1, description="width of the space that pictures and texts share")
    temperature: float = Field(0.07, gt=0, description="initial temperature: similarities are divided by it")
    gelu: Literal["quick", "exact"] = Field("quick", description="GELU: x σ(1.702 x) as published, or the exact one")
    epsilon: float = Field(1e-5, gt=0, description="epsilon of LayerNorm")

    @field_validator("image", mode="before")
    @classmethod
    def _square(cls, image: Any) -> Any:
        """One number is the height and the width."""
        return [image, image] if isinstance(image, int) else image

    @model_validator(mode="after")
    def _check_shapes(self) -> Self:
        head_width(self.text_width, self.text_heads)
        check_patch(self.patch, *self.image)
        if self.temperature * LARGEST_SCALE < 1:
            raise ValueError(f"temperature = {self.temperature}: give at least {1 / LARGEST_SCALE}")
        return self

    @property
    def patch_side(self) -> int:
        """The side of a patch in pixels."""
        return choose_patch(*self.image) if self.patch is None else self.patch

    @property
    def patches(self) -> int:
        """Patches of a picture."""
        return (self.image[0] // self.patch_side) * (self.image[1] // self.patch_side)


class EncoderSize(NamedTuple):
    """The size of one encoder's blocks."""

    width: int
    heads: int
    layers: int
    causal: bool
    gelu: str
    epsilon: float

    def flops(self, length: int) -> float:
        """FLOPs of a row of this length if one of its vectors is used: the last block computes keys and values alone.

        At that place the rest of the last block is computed: 10 of its 12 · width² weights, and one row of attention.
        """
        block = 2.0 * 12 * self.width**2 + 4.0 * length * self.width
        last = length * 4.0 * self.width**2 + 20.0 * self.width**2 + 4.0 * length * self.width
        return (self.layers - 1) * length * block + last


class Block(nn.Module):
    """z = x + Attention(LN(x)); h = z + FeedForward(LN(z)): pre-norm, as GPT-2."""

    def __init__(self, stack: EncoderSize) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(stack.width, eps=stack.epsilon)
        self.attention = BidirectionalAttention(stack.width, stack.heads, causal=stack.causal)
        self.feed_forward_norm = nn.LayerNorm(stack.width, eps=stack.epsilon)
        self.feed_forward = FeedForward(stack.width, 4 * stack.width, activation=GELU[stack.gelu])
        self._initialise(stack.width, stack.layers)

    def forward(self, x: Tensor, padding: Padding, at: Tensor | None = None) -> Tensor:
        """x [B, T, D] or packed -> the same; with `at` [B, 1] only what comes out at that place of each row, [B, 1, D].

        In a causal block that place must be the last of its row, which sees the whole row.
        """
        if at is None:
            x = x + self.attention(self.attention_norm(x), padding)
        else:
            y = self.attention_norm(x)
            x = padding.gather_positions(x, at) + self.attention.attend_from(
                padding.gather_positions(y, at), y, padding
            )
        x = x + self.feed_forward(self.feed_forward_norm(x))
        return x

    def _initialise(self, width: int, layers: int) -> None:
        """The published code's: N(0, 1/D), smaller where a layer writes into the residual sum."""
        nn.init.normal_(self.attention.query_key_value.weight, std=width**-0.5)
        nn.init.normal_(self.attention.projection.weight, std=(2 * layers * width) ** -0.5)
        nn.init.normal_(self.feed_forward.expand.weight, std=(2 * width) ** -0.5)
        nn.init.normal_(self.feed_forward.contract.weight, std=(2 * layers * width) ** -0.5)
        for part in (self.attention.query_key_value, self.attention.projection):
            nn.init.zeros_(part.bias)


class Encoder(nn.Module):
    """A stack of blocks and a last LayerNorm, over whatever vectors enter it."""

    def __init__(self, stack: EncoderSize) -> None:
        super().__init__()
        self.stack = stack
        self.blocks = nn.ModuleList(Block(stack) for _ in range(stack.layers))
        self.norm = nn.LayerNorm(stack.width, eps=stack.epsilon)

    def run(self, x: Tensor, padding: Padding, at: Tensor | None) -> Tensor:
        """The vectors after the last LayerNorm: all [B, T, D], or those at one place `at` [B, 1] of each row."""
        *below, last = self.blocks
        for block in below:
            record_layer(x, unpack=padding.unpack)
            x = block(x, padding)
        if at is not None and not (is_watched() or layers_watched()):
            return cast(Tensor, self.norm(last(x, padding, at)))
        record_layer(x, unpack=padding.unpack)
        hidden = padding.unpack(self.norm(last(x, padding)))
        record_layer(hidden)
        return hidden if at is None else gather_positions(hidden, at)


class PictureEncoder(Encoder):
    """A Vision Transformer with one more LayerNorm, before the first block (section 2.4)."""

    def __init__(self, config: ClipConfig) -> None:
        width = config.width
        super().__init__(EncoderSize(width, config.heads, config.layers, False, config.gelu, config.epsilon))
        self.shape = (config.channels, *config.image)
        self.patches = nn.Conv2d(config.channels, width, config.patch_side, stride=config.patch_side, bias=False)
        self.class_vector = nn.Parameter(torch.empty(width).normal_(std=width**-0.5))
        self.positions = LearnedPositions(1 + config.patches, width)
        nn.init.normal_(self.positions.weight, std=width**-0.5)
        self.entry_norm = nn.LayerNorm(width, eps=config.epsilon)

    def forward(self, pixels: Tensor, at: Tensor | None = None) -> Tensor:
        """pixels [B, C, H, W] -> vectors [B, 1 + N, D], the class vector's first; or one of them [B, 1, D]."""
        if pixels.shape[1:] != self.shape:
            raise ValueError(
                f"pictures of shape {list(pixels.shape[1:])}: this model reads {list(self.shape)}, channels first"
            )
        x = self.patches(pixels).flatten(2).transpose(1, 2)  # [B, N, D]
        x = torch.cat([self.class_vector.expand(len(x), 1, -1), x], dim=1)
        return self.run(self.entry_norm(x + self.positions(0, x.shape[1])), FULL, at)


class TextEncoder(Encoder):
    """GPT-2 without its output layer: each token sees those before it (section 2.4)."""

    def __init__(self, config: ClipConfig) -> None:
        width = config.text_width
        super().__init__(EncoderSize(width, config.text_heads, config.text_layers, True, config.gelu, config.epsilon))
        self.embedding = nn.Embedding(config.vocabulary, width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.positions = LearnedPositions(config.window, width)
        nn.init.normal_(self.positions.weight, std=0.01)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None, at: Tensor | None = None) -> Tensor:
        """tokens [B, T], lengths[i] of them in row i -> vectors [B, T, D]; or that of the last token [B, 1, D]."""
        longest = tokens.shape[1]
        check_window(0, longest, len(self.positions.weight))
        padding = pack_by_length(tokens, lengths)
        x = self.embedding(padding.pack(tokens)) + padding.position_vectors(self.positions(0, longest))
        return self.run(x, padding, at)


class Clip(Model):
    """Two encoders and a linear map of each into one space (`MatchesPictures`)."""

    Config: ClassVar[type[ModelConfig]] = ClipConfig
    main_input: ClassVar[str] = "pixels"

    config: ClipConfig

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.config = config
        self.picture_encoder = PictureEncoder(config)
        self.text_encoder = TextEncoder(config)
        self.picture_projection = Linear(config.width, config.space, bias=False)
        self.text_projection = Linear(config.text_width, config.space, bias=False)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(config.temperature)))
        nn.init.normal_(self.picture_projection.weight, std=config.width**-0.5)
        nn.init.normal_(self.text_projection.weight, std=config.text_width**-0.5)

    @property
    def vocabulary(self) -> int:
        return self.config.vocabulary

    @property
    def window(self) -> int:
        return self.config.window

    def blank_inputs(self, rows: int, window: int) -> dict[str, Tensor]:
        return {"pixels": torch.zeros(rows, *self.picture_encoder.shape, device=self.device)}

    def forward(
        self,
        pixels: Tensor | None = None,
        *,
        tokens: Tensor | None = None,
        lengths: Tensor | None = None,
        state: State = None,
    ) -> Output:
        """The vectors of pictures [B, 1 + N, D], or of the tokens of texts [B, T, D], whichever is given."""
        if (pixels is None) == (tokens is None):
            raise ValueError("give either pictures (pixels) or texts (tokens): CLIP reads them separately")
        if pixels is not None:
            return Output(self.picture_encoder(pixels))
        return Output(self.text_encoder(tokens, lengths))

    def embed_pictures(self, pixels: Tensor) -> Tensor:
        """pixels [B, C, H, W] -> unit vectors [B, space], from that of the class vector."""
        first = torch.zeros(len(pixels), 1, dtype=torch.long, device=pixels.device)
        return F.normalize(self.picture_projection(self.picture_encoder(pixels, first)[:, 0]), dim=-1)

    def embed_texts(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """tokens [B, T], lengths[i] of them in row i -> unit vectors [B, space], from that of the last token."""
        full = torch.full((len(tokens),), tokens.shape[1], device=tokens.device)
        last = (full if lengths is None else lengths.to(tokens.device))[:, None] - 1
        return F.normalize(self.text_projection(self.text_encoder(tokens, lengths, last)[:, 0]), dim=-1)

    def scale(self) -> Tensor:
        """exp(τ), by which cosines are multiplied. In training τ itself is clipped, so that it can fall again."""
        if self.training and torch.is_grad_enabled():
            with torch.no_grad():
                self.log_scale.clamp_(max=math.log(LARGEST_SCALE))
        return self.log_scale.clamp(max=math.log(LARGEST_SCALE)).exp()

    def depths(self) -> list[list[nn.Parameter]]:
        """Of both encoders, from their inputs up; the shorter one begins higher, so that both end together."""
        pictures, texts = self.picture_encoder, self.text_encoder
        entry = (pictures.patches, pictures.class_vector, pictures.positions, pictures.entry_norm)
        tables = (texts.embedding, texts.positions)
        return by_depth(self, (*entry, *tables), *self._stages())

    def _stages(self) -> Iterator[tuple[nn.Module, ...]]:
        """The blocks of both encoders, by their distance from the top."""
        encoders = (self.picture_encoder, self.text_encoder)
        for below in range(max(len(each.blocks) for each in encoders), 0, -1):
            stage = [each.blocks[-below] for each in encoders if below <= len(each.blocks)]
            yield (*stage, *(each.norm for each in encoders)) if below == 1 else tuple(stage)

    def picture_flops(self) -> float:
        """Floating-point operations of `embed_pictures` for one picture."""
        config, encoder = self.config, self.picture_encoder
        entry = 2.0 * config.patches * encoder.patches.weight.numel()
        return entry + encoder.stack.flops(1 + config.patches) + 2.0 * config.width * config.space

    def text_flops(self, length: int) -> float:
        """Floating-point operations of `embed_texts` for one text of this length."""
        return self.text_encoder.stack.flops(length) + 2.0 * self.config.text_width * self.config.space

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        """Per pair of a picture and a text of `window` tokens."""
        return self.picture_flops() + self.text_flops(window)

    def matching_flops(self, inputs: Mapping[str, Tensor]) -> float:
        """Of a batch of pictures and texts; padding of texts is not computed (pack_by_length)."""
        texts = Counter(row_lengths(inputs))
        pictures = len(inputs["pixels"]) * self.picture_flops()
        return pictures + sum(count * self.text_flops(length) for length, count in texts.items())
