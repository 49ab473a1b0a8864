"""The real tokens of padded texts, gathered: what works on each token by itself spares the padding.

Attention takes the padded rows, in one piece. `Packed` cuts out texts of one length instead, which suits an encoder
alone; a decoder attends to texts of other lengths, and there would be as many pieces as pairs of lengths.
Shapes: B rows, T the places of each, N the real tokens of all, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from lmlab.layers.packing import Attend, Masked, Whole, check_lengths


class Gathered(Masked):
    """The real tokens [N] of rows [B, T] of which row i has lengths[i]."""

    def __init__(self, lengths: Tensor, longest: int) -> None:
        super().__init__(lengths, longest)
        self.places = self.real.flatten().nonzero()[:, 0]  # [N], of [B * T]

    def pack(self, padded: Tensor) -> Tensor:
        return padded.flatten(0, 1).index_select(0, self.places)

    def place(self, table: Tensor) -> Tensor:
        return F.embedding(self.places % self.real.shape[1], table)

    def unpack(self, x: Tensor) -> Tensor:
        padded = x.new_zeros(self.real.numel(), x.shape[1]).index_copy(0, self.places, x)
        return padded.view(*self.real.shape, -1)

    def each_text(self, function: Attend, x: Tensor) -> Tensor:
        return self.pack(super().each_text(function, self.unpack(x)))


def texts_of(tokens: Tensor, lengths: Tensor | None, *, gather: bool) -> Whole:
    """How tokens [B, T], of which row i has lengths[i], are to be worked on; gathering pays on a CPU."""
    if lengths is None or not check_lengths(lengths, *tokens.shape):
        return Whole()
    lengths = lengths.to(tokens.device)
    gather = gather and tokens.device.type == "cpu" and not torch.compiler.is_compiling()
    return (Gathered if gather else Masked)(lengths, tokens.shape[1])
