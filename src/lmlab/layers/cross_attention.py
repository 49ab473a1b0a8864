"""Attention from one text to another that is there as a whole: from the target to the source.

Shapes: B sources, K texts in the writing for each, H heads, T queries, S keys, D width, d = D / H width of a head.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from lmlab.layers.attention import attend, attention_weights, head_width
from lmlab.layers.dropout import dropout as drop
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.padding import NoPadding, Padding
from lmlab.layers.watching import is_watched

FULL = NoPadding()
FEW = 16
"""Up to so many queries the weights are computed in the open when nothing is learnt: a kernel would copy all keys."""


class CrossAttention(nn.Module):
    """Queries from the decoder, keys and values from the encoder (Vaswani et al. 2017, section 3.2.3).

    Keys and values are made once for each source by `remember`. All K texts in the writing for it share them: their
    queries stand beside each other, as if they were one longer text. Who watches `probabilities` sees the weights
    [B * K, H, T, S]; otherwise they need not be computed.
    """

    def __init__(self, width: int, heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.head_width, self.dropout = heads, head_width(width, heads), dropout
        self.query = Linear(width, width)
        self.key_value = Linear(width, 2 * width)
        self.projection = Linear(width, width)
        self.probabilities = nn.Identity()

    def remember(self, x: Tensor, padding: Padding = FULL) -> Tensor:
        """Encoded sources [B, S, D], or packed, -> keys and values [B, H, 2, S, d]."""
        parts = padding.unpack(self.key_value(x))
        return parts.view(*parts.shape[:2], 2, self.heads, self.head_width).permute(0, 3, 2, 1, 4)

    def forward(self, y: Tensor, keys_values: Tensor, mask: Tensor | None = None, padding: Padding = FULL) -> Tensor:
        """y [B * K, T, D] or packed, keys and values [B, H, 2, S, d], mask [B, 1, 1, S] False at padding -> as y."""
        q = padding.unpack(self.query(y))
        rows, length, width = q.shape
        q = q.view(len(keys_values), -1, self.heads, self.head_width).transpose(1, 2)  # [B, H, K * T, d]
        k, v = keys_values.unbind(2)
        dropout = self.dropout if self.training else 0.0
        few = q.shape[2] <= FEW and not torch.is_grad_enabled()
        if is_watched(self.probabilities):
            z = drop(self._show(attention_weights(q, k, mask=mask), length), dropout) @ v
        elif few and q.device.type == "cpu":
            z = attention_weights(q, k, mask=mask) @ v
        else:
            z = attend(q, k, v, mask=mask, dropout=dropout)
        return cast(Tensor, self.projection(padding.pack(z.transpose(1, 2).reshape(rows, length, width))))

    def _show(self, weights: Tensor, length: int) -> Tensor:
        """Pass weights [B, H, K * T, S] through `probabilities`, each text as a row of its own."""
        sources, heads, _, keys = weights.shape
        rows = weights.view(sources, heads, -1, length, keys).transpose(1, 2).flatten(0, 1)  # [B * K, H, T, S]
        seen: Tensor = self.probabilities(rows)
        return seen.view(sources, -1, heads, length, keys).transpose(1, 2).reshape(weights.shape)
