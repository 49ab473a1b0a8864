"""ViT: a Transformer encoder over the patches of a picture.

Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale", section 3.1:

z_0 = [x_cls; x_1 E; …; x_P E] + E_pos                    x_i the pixels of patch i                          (1)
z'_l = MSA(LN(z_{l−1})) + z_{l−1}                                                                            (2)
z_l = MLP(LN(z'_l)) + z'_l                                                                                   (3)
y = LN(z_L)                                               y_cls represents the picture                       (4)

Shapes: B pictures, C channels, H height, W width, p side of a patch, P patches, T = 1 + P, K chosen positions, D width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from lmlab.layers.attention.multi_head import BidirectionalAttention
from lmlab.layers.dropout import Dropout
from lmlab.layers.feedforward import FeedForward
from lmlab.layers.kernels.gelu import gelu
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.padding import NoPadding, gather_positions
from lmlab.layers.watching import is_watched, layers_watched, record_layer
from lmlab.models.abilities import State
from lmlab.models.gpt import initialise
from lmlab.models.model import Heads, Model, Output, by_depth
from lmlab.models.settings import PictureModelConfig

MOST_PATCHES = 64
"""Patches of a picture, at most, where the side of a patch is chosen here."""
WHOLE = NoPadding()
"""All pictures of a batch have the same number of patches."""


class ViTConfig(PictureModelConfig):
    """The size of a ViT."""

    patch: int | None = Field(
        None, ge=1, description="side of a patch in pixels; none: the smallest that gives at most 64 patches"
    )
    width: int = Field(128, ge=1, description="hidden size: width of the patch vectors")
    heads: Heads = 4
    layers: int = Field(4, ge=1, description="Transformer blocks")
    inner: int | None = Field(None, ge=1, description="width of the feed-forward layers; by default 4 times the width")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout probability, on embeddings and each sublayer")
    epsilon: float = Field(1e-6, gt=0, description="epsilon of LayerNorm")

    @model_validator(mode="after")
    def _check_patch(self) -> ViTConfig:
        check_patch(self.patch, *self.image)
        return self

    @property
    def patch_side(self) -> int:
        """The side of a patch in pixels."""
        return choose_patch(*self.image) if self.patch is None else self.patch

    @property
    def grid(self) -> tuple[int, int]:
        """The number of patches from top to bottom, and from left to right."""
        return self.image[0] // self.patch_side, self.image[1] // self.patch_side

    @property
    def inner_width(self) -> int:
        return 4 * self.width if self.inner is None else self.inner


def patch_sides(height: int, width: int) -> list[int]:
    """The sides of square patches that fill a picture, the smallest first."""
    common = math.gcd(height, width)
    return [side for side in range(1, common + 1) if common % side == 0]


def check_patch(patch: int | None, height: int, width: int) -> None:
    """A ValueError if patches with this side do not fill a picture."""
    if patch is not None and (height % patch or width % patch):
        fitting = ", ".join(str(side) for side in patch_sides(height, width))
        raise ValueError(
            f"patch = {patch} does not divide pictures of {height} × {width} pixels; choose one of {fitting}, "
            "or another data.size"
        )


def choose_patch(height: int, width: int) -> int:
    """The smallest side of a patch that gives a picture at most MOST_PATCHES patches."""
    sides = patch_sides(height, width)
    return next((side for side in sides if height * width <= MOST_PATCHES * side**2), sides[-1])


class Block(nn.Module):
    """z' = x + Attention(LN(x)); z = z' + FeedForward(LN(z'))."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.attention = BidirectionalAttention(config.width, config.heads, dropout=config.dropout)
        self.feed_forward_norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.feed_forward = FeedForward(config.width, config.inner_width, activation=gelu)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, at: Tensor | None = None) -> Tensor:
        """x [B, T, D] -> [B, T, D]; with `at` [B, K] the vectors at these positions alone, [B, K, D]."""
        y = self.attention_norm(x)
        if at is None:
            x = x + self.dropout(self.attention(y, WHOLE))
        else:
            x = gather_positions(x, at) + self.dropout(self.attention.attend_from(gather_positions(y, at), y, WHOLE))
        z: Tensor = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return z


class ViT(Model):
    """Patches to vectors, a class vector before them, learnt positions, pre-norm blocks, a last norm."""

    Config: ClassVar[type[Any]] = ViTConfig
    main_input: ClassVar[str] = "pixels"

    config: ViTConfig

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        rows, columns = config.grid
        self.patches = Linear(config.channels * config.patch_side**2, config.width)
        self.cls = nn.Parameter(torch.zeros(config.width))
        self.positions = nn.Parameter(torch.empty(1 + rows * columns, config.width).normal_(std=0.02))
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, eps=config.epsilon)
        self.apply(initialise)

    def blank_inputs(self, rows: int, window: int) -> dict[str, Tensor]:
        height, width = self.config.image
        return {"pixels": torch.zeros(rows, self.config.channels, height, width, device=self.device)}

    def embed(self, pixels: Tensor) -> Tensor:
        """Pixels [B, C, H, W] -> the vectors [B, T, D] for the first block, equation 1."""
        side = self.config.patch_side
        batch, channels, height, width = pixels.shape
        if channels != self.config.channels or height % side or width % side:
            raise ValueError(
                f"pixels of shape {list(pixels.shape)} do not fit: this model reads {self.config.channels} channels, "
                f"and a height and a width that are multiples of {side}"
            )
        grid = (height // side, width // side)
        cut = pixels.view(batch, channels, grid[0], side, grid[1], side).permute(0, 2, 4, 1, 3, 5)
        vectors = self.patches(cut.reshape(batch, grid[0] * grid[1], -1))  # [B, P, D]
        z = torch.cat([self.cls.expand(batch, 1, -1), vectors], dim=1)
        x: Tensor = self.dropout(z + resize_positions(self.positions, self.config.grid, grid))
        return x

    def forward(self, pixels: Tensor, *, at: Tensor | None = None, state: State = None) -> Output:
        """Normalised pixels [B, C, H, W] -> hidden [B, T, D], the class vector first.

        Pictures of another size than that of training get interpolated positions. With `at` [B, K] only the vectors at
        these positions are returned, [B, K, D], and the last block computes no others.
        """
        x = self.embed(pixels)
        *blocks, last = self.blocks
        for block in blocks:
            record_layer(x)
            x = block(x)
        if at is not None and not (is_watched() or layers_watched()):
            return Output(self.norm(last(x, at)), None)
        record_layer(x)
        hidden = self.norm(last(x))
        record_layer(hidden)
        return Output(hidden if at is None else gather_positions(hidden, at), None)

    def vectors(self, *, at: Tensor | None = None, **inputs: Any) -> Tensor:
        hidden: Tensor = self(**inputs, at=at).hidden
        return hidden

    def depths(self) -> list[list[nn.Parameter]]:
        *below, last = self.blocks
        first = (self.patches, self.cls, self.positions)
        return by_depth(self, first, *((block,) for block in below), (last, self.norm))

    @classmethod
    def changeable(cls, begun: Mapping[str, Any]) -> tuple[str, ...]:
        """The size of the pictures: positions are interpolated."""
        return ("image",)

    def adapt(self, tensors: dict[str, Tensor], fresh: Mapping[str, Tensor]) -> dict[str, Tensor]:
        old, new = tensors["positions"], fresh["positions"]
        if old.shape == new.shape or old.shape[1:] != new.shape[1:]:
            return tensors
        side = math.isqrt(len(old) - 1)
        if side**2 != len(old) - 1:
            raise ValueError("the positions of a run can be interpolated only where its pictures are square")
        return {**tensors, "positions": resize_positions(old, (side, side), self.config.grid)}

    def patch_flops(self) -> float:
        """FLOPs of the patch embedding of one picture: 2 per weight and patch."""
        return 2.0 * self.patches.weight.numel() * math.prod(self.config.grid)

    def body_flops(self, window: int, *, fraction: float = 1.0, memory_length: int = 0) -> float:
        """FLOPs of one picture: 2 per weight and position, and 4·T·D per layer and position for attention.

        The last layer computes keys and values, 2·D² weights, at all positions, and the rest at a fraction of them.
        """
        width, positions = self.config.width, 1 + math.prod(self.config.grid)
        weights = sum(module.weight.numel() for module in self.blocks[0].modules() if isinstance(module, nn.Linear))
        layer = 2.0 * weights + 4.0 * positions * width
        spared = (1 - fraction) * (layer - 4.0 * width**2)
        return self.patch_flops() + positions * (self.config.layers * layer - spared)

    def reading_flops(
        self, inputs: Mapping[str, Tensor], *, positions: int | None = None, memory_length: int = 0
    ) -> float:
        fraction = 1.0 if positions is None else positions / (1 + math.prod(self.config.grid))
        return len(inputs["pixels"]) * self.body_flops(1, fraction=fraction)


def resize_positions(table: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """Positions [1 + P, D] of a grid of patches for another grid: the first as it is, the others interpolated (3.2)."""
    if old == new:
        return table
    patches = table[1:].T.reshape(1, -1, *old)
    resized = F.interpolate(patches.float(), size=new, mode="bicubic", align_corners=False).to(table.dtype)
    return torch.cat([table[:1], resized.flatten(2)[0].T])
