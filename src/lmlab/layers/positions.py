"""Marking positions: vectors that are added to the token embeddings, because attention does not see order."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Order = Literal["pairs", "halves"]
FIRST = 512
"""Positions for which a new unbounded table has vectors; it doubles for longer texts."""


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d)), as [..., width].

    Vaswani et al. 2017, section 3.5: each pair of dimensions turns at its own speed, so PE(pos + k) is a rotation of
    PE(pos), the same for every pos.
    """
    frequencies = 10000.0 ** (-torch.arange(0, width, 2, device=positions.device) / width)
    angles = positions[..., None].float() * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[..., :width]


class LearnedPositions(nn.Module):
    """One vector per position of the window, learnt like the token embeddings."""

    def __init__(self, window: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(window, width).normal_(std=0.02))

    def forward(self, start: int | Tensor, length: int) -> Tensor:
        """The vectors [length, width] of the positions from `start`, or [B, length, width] from each of [B]."""
        return rows_from(self.weight, start, length)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, {self.weight.shape[1]}"


class SinusoidalPositions(nn.Module):
    """Fixed sine waves, computed once for the window and not stored with the weights."""

    table: Tensor

    def __init__(self, window: int, width: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoids(torch.arange(window), width), persistent=False)

    def forward(self, start: int | Tensor, length: int) -> Tensor:
        """The vectors [length, width] of the positions from `start`, or [B, length, width] from each of [B]."""
        return rows_from(self.table, start, length)


def rows_from(table: Tensor, start: int | Tensor, length: int) -> Tensor:
    """Rows [length, D] of a table from `start` on, or [B, length, D] where each of B texts starts elsewhere."""
    if isinstance(start, int):
        return table.narrow(0, start, length)
    return F.embedding(start[:, None] + torch.arange(length, device=start.device), table)


def check_window(read: int, more: int, window: int) -> None:
    """A ValueError where `more` tokens after the `read` ones do not fit into the window."""
    if read + more > window:
        raise ValueError(
            f"{more} tokens after the {read} already read do not fit into a window of {window}: "
            f"start a new state with the last {window} tokens or fewer, or train a model with a longer window"
        )


class UnboundedSinusoidalPositions(nn.Module):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(…), for as many positions as are asked for.

    Vaswani et al. 2017, section 3.5. `order` tells how the dimensions lie: sine and cosine in `pairs` as in the paper,
    or all sines before all cosines (`halves`) as in tensor2tensor and Marian; a learnt net does not care.
    """

    table: Tensor

    def __init__(self, width: int, *, order: Order = "pairs") -> None:
        super().__init__()
        self.width, self.order = width, order
        self.register_buffer("table", self._make(FIRST), persistent=False)

    def forward(self, start: int, length: int) -> Tensor:
        """The vectors [length, width] of the positions from `start`."""
        table = self.table
        if start + length > len(table):
            with torch.inference_mode(False):
                table = self._make(max(start + length, 2 * len(table))).to(table.device, table.dtype)
            if len(table) > len(self.table):  # another thread may have needed a longer one meanwhile
                self.table = table
        return table.narrow(0, start, length)

    def _make(self, count: int) -> Tensor:
        table = sinusoids(torch.arange(count), self.width)
        return torch.cat([table[:, 0::2], table[:, 1::2]], dim=1) if self.order == "halves" else table

    def extra_repr(self) -> str:
        return f"{self.width}, order={self.order}"
