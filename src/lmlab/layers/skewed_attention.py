"""Relative self-attention of the Music Transformer: Huang et al. 2018, section 3.4, with the memory-efficient skewing.

Shapes: B batch, H heads, T queries, S keys, L distances, D width, d = D / H.
"""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.layers.attention import causal_mask, head_width
from lmlab.layers.cache import Slot
from lmlab.layers.dropout import Dropout
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.relative_attention import align
from lmlab.layers.watching import is_watched


class SkewedAttention(nn.Module):
    """softmax((QKᵀ + Sʳᵉˡ)/√d)V with Sʳᵉˡ_ij = q_i · E_{i−j}: a learnt vector for each distance and head.

    Distances of `distances` or more share the last vector. Watching `probabilities` gives the weights [B, H, T, S].
    """

    def __init__(self, width: int, heads: int, *, distances: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.head_width = heads, head_width(width, heads)
        self.query_key_value = Linear(width, 3 * width)
        self.projection = Linear(width, width)
        self.distances = nn.Parameter(torch.empty(heads, distances, self.head_width).normal_(std=0.02))  # E
        self.probabilities = nn.Identity()
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, slot: Slot | None = None) -> Tensor:
        """x [B, T, D] -> [B, T, D]; with a slot of the cache, which holds the tokens before x."""
        batch, length, width = x.shape
        parts = self.query_key_value(x).view(batch, length, 3, self.heads, self.head_width)
        q, k, v = (part.transpose(1, 2) for part in parts.unbind(2))
        if slot is not None:
            k, v = slot.extend(parts[:, :, 1:].permute(0, 3, 2, 1, 4)).unbind(2)
        span = k.shape[2]
        if slot is None or slot.rows is None:
            relative, mask = skewed_scores(q, self.distances, span), causal_mask(length, span, device=x.device)
        else:
            relative, mask = gathered_scores(q, self.distances, span, slot.rows.positions), slot.rows.mask
        scores = (q @ k.mT + relative) / math.sqrt(self.head_width)
        weights = scores.masked_fill(~mask, -math.inf).softmax(-1)
        if is_watched(self.probabilities):
            weights = self.probabilities(weights)
        z = self.dropout(weights) @ v
        return cast(Tensor, self.projection(z.transpose(1, 2).reshape(batch, length, width)))


def skewed_scores(q: Tensor, distances: Tensor, span: int) -> Tensor:
    """Sʳᵉˡ [B, H, T, S] of the last T of S positions, in memory O(TS): one product QEᵀ, skewed (figure 3).

    q [B, H, T, d], distances [H, L, d] from near to far. Where the key comes later, the numbers mean nothing.
    """
    batch, heads, length, _ = q.shape
    near = min(span, distances.shape[1])
    by_distance = q @ distances[:, :near].flip(1).mT  # [B, H, T, near], the farthest first
    farther = by_distance[..., :1].expand(-1, -1, -1, span - near)  # clipped: they share the last vector
    columns = F.pad(torch.cat((farther, by_distance), -1), (1, 0)).reshape(-1, length, span + 1)
    return align(columns).view(batch, heads, length, span)


def gathered_scores(q: Tensor, distances: Tensor, span: int, positions: Tensor) -> Tensor:
    """The same for texts of different lengths, whose queries are at `positions` [B, T]."""
    batch, heads, length, _ = q.shape
    by_distance = q @ distances.mT  # [B, H, T, L]
    apart = positions[..., None] - torch.arange(span, device=q.device)  # [B, T, S]
    index = apart.clamp(0, distances.shape[1] - 1)[:, None].expand(batch, heads, length, span)
    return by_distance.gather(-1, index)
