"""Convolutions over pictures: a small residual network (He et al. 2016) that gives vectors of regions.

    y = ReLU(x + GN(W₂ * ReLU(GN(W₁ * x))))

Group normalisation (Wu & He 2018) in place of batch normalisation: the vectors of a picture depend on that picture
alone, in training as well. A command can change what the convolutions look for (FiLM, Perez et al. 2018): from its
vector c come a factor and a summand of each channel,

    y = ReLU(x + (1 + W_γ c) ⊙ GN(W₂ * ReLU(GN(W₁ * x))) + W_β c)

Shapes: B pictures, C channels, height and width.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

GROUP = 8
"""Channels that are normalised together."""


class ResidualBlock(nn.Module):
    """Two convolutions of 3 × 3 and a connection around them; a stride of 2 halves height and width."""

    def __init__(self, below: int, channels: int, *, stride: int = 1) -> None:
        super().__init__()
        self.one = nn.Conv2d(below, channels, 3, stride, padding=1, bias=False)
        self.one_norm = _norm(channels)
        self.two = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.two_norm = _norm(channels)
        self.around = nn.Identity() if (below, stride) == (channels, 1) else nn.Conv2d(below, channels, 1, stride)

    def forward(self, x: Tensor, modulation: Tensor | None = None) -> Tensor:
        """x [B, C, height, width] -> [B, C', height / stride, width / stride]; `modulation` as in `modulate`."""
        y = torch.relu(self.one_norm(self.one(x)))
        return torch.relu(self.around(x) + modulate(self.two_norm(self.two(y)), modulation))


def modulate(x: Tensor, modulation: Tensor | None) -> Tensor:
    """x [B, C, height, width] with its channels scaled and shifted by `modulation` [B, 2C]."""
    if modulation is None:
        return x
    scale, shift = modulation[..., None, None].chunk(2, dim=1)
    return x * (1 + scale) + shift


class FeatureModulation(nn.Module):
    """FiLM: a vector [B, D] to the `modulation` of each layer of a `RegionEncoder`."""

    def __init__(self, width: int, channels: Sequence[int]) -> None:
        super().__init__()
        maps = [nn.Linear(width, 2 * each) for each in channels]
        for layer in maps:
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
        self.maps = nn.ModuleList(maps)

    def forward(self, x: Tensor) -> list[Tensor]:
        return [layer(x) for layer in self.maps]


class RegionEncoder(nn.Module):
    """A picture as a grid of vectors: a first convolution, then a residual block for each further width.

    Each of them halves height and width: three widths make regions of 8 × 8 pixels.
    """

    def __init__(self, channels: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, widths[0], 3, stride=2, padding=1, bias=False)
        self.first_norm = _norm(widths[0])
        self.blocks = nn.ModuleList(ResidualBlock(below, width, stride=2) for below, width in pairwise(widths))
        self.width = widths[-1]

    def forward(self, pixels: Tensor, modulations: Sequence[Tensor] | None = None) -> Tensor:
        """pixels [B, C, height, width] -> regions [B, D, rows, columns]; `modulations` one of each layer, or none."""
        given: Sequence[Tensor | None] = modulations or [None] * (1 + len(self.blocks))
        first, *others = given
        x = torch.relu(modulate(self.first_norm(self.first(pixels)), first))
        for block, modulation in zip(self.blocks, others, strict=True):
            x = block(x, modulation)
        return x

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the regions of a picture: every halving rounds up."""
        for _ in range(1 + len(self.blocks)):
            height, width = (height + 1) // 2, (width + 1) // 2
        return height, width

    def flops(self, height: int, width: int) -> float:
        """Floating-point operations of the convolutions for one picture."""
        total = 0.0
        for part in (self.first, *self.blocks):
            height, width = (height + 1) // 2, (width + 1) // 2
            total += 2.0 * height * width * sum(weight.numel() for weight in part.parameters() if weight.dim() == 4)
        return total


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(max(1, channels // GROUP), channels)
