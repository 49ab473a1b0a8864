"""Convolutions over pictures: a small residual network (He et al. 2016) that gives vectors of regions.

    y = ReLU(x + GN(W₂ * ReLU(GN(W₁ * x))))

Group normalisation (Wu & He 2018) in place of batch normalisation: the vectors of a picture depend on that picture
alone, in training as well. Shapes: B pictures, C channels, height and width.
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

    def forward(self, x: Tensor) -> Tensor:
        """x [B, C, height, width] -> [B, C', height / stride, width / stride]."""
        y = torch.relu(self.one_norm(self.one(x)))
        return torch.relu(self.around(x) + self.two_norm(self.two(y)))


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

    def forward(self, pixels: Tensor) -> Tensor:
        """pixels [B, C, height, width] -> regions [B, D, rows, columns]."""
        x = torch.relu(self.first_norm(self.first(pixels)))
        for block in self.blocks:
            x = block(x)
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
