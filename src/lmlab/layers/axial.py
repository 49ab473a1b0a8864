"""Axial positions: a position is a row and a column, each with a vector of its own (Kitaev et al. 2020, appendix).

For 64k positions of width 256 that is 2 · 256 short vectors in place of 65,536 long ones.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def choose_shape(window: int) -> tuple[int, int]:
    """Rows and columns for `window` positions: about its root each, and rounded up, so that any window will do."""
    columns = 2 ** max(0, round(math.log2(window) / 2))
    return -(-window // columns), columns


class AxialPositions(nn.Module):
    """P(p) = [row(p div columns); column(p mod columns)], learnt."""

    def __init__(self, shape: tuple[int, int], widths: tuple[int, int], *, std: float = 0.02) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.empty(shape[0], widths[0]).normal_(std=std))
        self.columns = nn.Parameter(torch.empty(shape[1], widths[1]).normal_(std=std))

    def forward(self, start: int | Tensor, length: int) -> Tensor:
        """The vectors [length, D] of the positions from `start`, or [B, length, D] from each of [B]."""
        places = torch.arange(length, device=self.rows.device)
        places = places + (start if isinstance(start, int) else start[:, None])
        columns = len(self.columns)
        row = F.embedding(places.div(columns, rounding_mode="floor"), self.rows)
        return torch.cat((row, F.embedding(places % columns, self.columns)), -1)

    def extra_repr(self) -> str:
        return f"{len(self.rows)} x {len(self.columns)}, {self.rows.shape[1]} + {self.columns.shape[1]}"
