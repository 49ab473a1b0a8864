"""Rotary positions: queries and keys are turned by an angle that grows with their place (Su et al. 2021).

Each pair of dimensions is a point in the plane, turned by m·θᵢ at place m. The product of a query turned by m·θᵢ with a
key turned by n·θᵢ depends on the distance m − n alone: attention sees relative positions, and no vector is added.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lmlab.layers.cache import Slot
from lmlab.layers.positions import rows_from


def check_pairs(head_width: int) -> None:
    """A ValueError where the components of a head do not come in pairs."""
    if head_width % 2:
        raise ValueError(
            f"a head of width {head_width} cannot be turned in pairs; choose a width that is an even multiple of the "
            f"heads"
        )


class Rotary(nn.Module):
    """(x₁, x₂) -> (x₁ cos mθᵢ − x₂ sin mθᵢ, x₂ cos mθᵢ + x₁ sin mθᵢ) with θᵢ = base^(−2i/d), equation 34.

    The paper pairs the dimensions 2i and 2i + 1; here, as in the checkpoints that most people have, i and i + d/2 are a
    pair, which is the same function with the rows of the query and key matrices in another order. The table for the
    window is computed once, and not stored with the weights.
    """

    table: Tensor

    def __init__(self, window: int, head_width: int, *, base: float = 10000.0) -> None:
        super().__init__()
        check_pairs(head_width)
        frequencies = base ** (-torch.arange(0, head_width, 2) / head_width)
        angles = torch.arange(window)[:, None] * frequencies
        self.register_buffer("table", torch.cat((angles.cos(), angles.sin()), 1), persistent=False)  # [window, d]

    def at(self, length: int, slot: Slot | None) -> Tensor:
        """cos and sin [T, d] of the places of `length` new tokens, or [B, T, d] where texts differ in length."""
        if slot is None or slot.rows is None:
            return rows_from(self.table, 0 if slot is None else slot.start, length)
        return self.table[slot.rows.places]


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Queries or keys x [B, T, H, d] turned by the angles of their places, [T, d] or [B, T, d]."""
    cos, sin = angles.unsqueeze(-2).chunk(2, -1)  # [(B,) T, 1, d / 2]
    one, two = x.chunk(2, -1)
    return torch.cat((one * cos - two * sin, two * cos + one * sin), -1)
