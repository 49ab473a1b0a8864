"""Positions, because attention does not see order: vectors that are added to the token embeddings (learnt, sinusoidal,
axial), and rotary angles by which queries and keys are turned."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.layers.cache import LayerCache

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

    Vaswani et al. 2017, section 3.5. `order` is the order of the dimensions: sine and cosine in `pairs` as in the
    paper, or all sines before all cosines (`halves`) as in tensor2tensor and Marian; a learnt net does not care.
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
        positions = torch.arange(length, device=self.rows.device)
        positions = positions + (start if isinstance(start, int) else start[:, None])
        columns = len(self.columns)
        row = F.embedding(positions.div(columns, rounding_mode="floor"), self.rows)
        return torch.cat((row, F.embedding(positions % columns, self.columns)), -1)

    def extra_repr(self) -> str:
        return f"{len(self.rows)} x {len(self.columns)}, {self.rows.shape[1]} + {self.columns.shape[1]}"


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

    def at(self, length: int, layer_cache: LayerCache | None) -> Tensor:
        """cos and sin [T, d] of the positions of `length` new tokens, or [B, T, d] where texts differ in length."""
        if layer_cache is None or layer_cache.rows is None:
            return rows_from(self.table, 0 if layer_cache is None else layer_cache.start, length)
        return self.table[layer_cache.rows.positions]


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Queries or keys x [B, T, H, d] turned by the angles of their places, [T, d] or [B, T, d]."""
    cos, sin = angles.unsqueeze(-2).chunk(2, -1)  # [(B,) T, 1, d / 2]
    one, two = x.chunk(2, -1)
    return torch.cat((one * cos - two * sin, two * cos + one * sin), -1)
