"""Sinusoidal positions without an end."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from lmlab.layers.positions import sinusoids

Order = Literal["pairs", "halves"]
FIRST = 512
"""Positions for which a new table has vectors; it doubles when a longer text comes."""


class Waves(nn.Module):
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
