"""Attention with relative positions: of Transformer-XL (Dai et al. 2019, section 3.3) and of the Music Transformer.

Shapes: B batch, H heads, T tokens, M tokens in the memory, S = M + T keys, L distances, D width, d = D / H.
"""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.layers.attention.multi_head import causal_mask, head_width
from lmlab.layers.cache import LayerCache
from lmlab.layers.dropout import Dropout
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.positions import sinusoids
from lmlab.layers.watching import is_watched


class Distances:
    """What all layers share: the sinusoids R of the distances `longest`, …, 1, 0, and the biases u and v.

    Without gradients it also caches the product W_R R of each layer, so that reading a text token by token computes it
    once.
    """

    def __init__(self, longest: int, *, content_bias: Tensor, position_bias: Tensor) -> None:
        self.longest = longest
        self.content_bias, self.position_bias = content_bias, position_bias  # u, v, each [H, d]
        distances = torch.arange(longest, -1, -1, device=content_bias.device)
        self.sinusoids = sinusoids(distances, content_bias.numel())  # [longest + 1, D]
        self._products: dict[nn.Module, Tensor] = {}

    def project(self, matrix: nn.Module, count: int) -> Tensor:
        """W_R R [count, D] of the distances `count` − 1, …, 1, 0, with W_R = `matrix`."""
        if torch.is_grad_enabled():
            product: Tensor = matrix(self.sinusoids[-count:])
            return product
        if matrix not in self._products:
            self._products[matrix] = matrix(self.sinusoids)
        return self._products[matrix][-count:]


class RelativeAttention(nn.Module):
    """softmax(A / √d) V, then the projection Wᴼ.

        A_ij = q_iᵀ k_j + q_iᵀ W_R R_{i−j} + uᵀ k_j + vᵀ W_R R_{i−j}
             = (q_i + u)ᵀ k_j + (q_i + v)ᵀ W_R R_{i−j}

    The four terms of the paper: content, content-dependent position, global content bias, global position bias. Queries
    are those of the current segment; keys and values are those of the memory, too. Watching `probabilities` gives the
    attention weights [B, H, T, S].
    """

    def __init__(self, width: int, heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.head_width = heads, head_width(width, heads)
        self.query = Linear(width, width, bias=False)
        self.key_value = Linear(width, 2 * width, bias=False)
        self.distance = Linear(width, width, bias=False)  # W_R
        self.projection = Linear(width, width, bias=False)  # Wᴼ
        self.probabilities = nn.Identity()
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, keys_values: Tensor, distances: Distances, mask: Tensor | None = None) -> Tensor:
        """x [B, T, D], keys and values [B, S, 2D] of the memory and x -> [B, T, D].

        `mask` [B, S] is False where a row has no key. The heads are the first dimension, because W_R R is the same for
        the whole batch: one product per head is enough for all rows.
        """
        batch, length, width = x.shape
        span = keys_values.shape[1]
        q = self.query(x).view(batch, length, self.heads, self.head_width)
        k, v = keys_values.view(batch, span, 2, self.heads, self.head_width).permute(2, 3, 0, 1, 4).flatten(1, 2)
        r = distances.project(self.distance, span + 1).view(span + 1, self.heads, self.head_width)
        q_u = (q + distances.content_bias).permute(2, 0, 1, 3).reshape(-1, length, self.head_width)
        q_v = (q + distances.position_bias).permute(2, 0, 1, 3).reshape(self.heads, -1, self.head_width)
        position = align(torch.bmm(q_v, r.permute(1, 2, 0)).view(-1, length, span + 1))  # [HB, T, S]
        scale = 1 / math.sqrt(self.head_width)
        scores = torch.baddbmm(position, q_u, k.mT, beta=scale, alpha=scale)
        if length > 1:
            scores.masked_fill_(~causal_mask(length, span, device=x.device), -math.inf)
        if mask is not None:
            scores.view(self.heads, batch, length, span).masked_fill_(~mask[:, None], -math.inf)
        weights = scores.softmax(-1)
        if is_watched(self.probabilities):
            watched = self.probabilities(weights.view(self.heads, batch, length, span).transpose(0, 1))
            weights = watched.transpose(0, 1).reshape(-1, length, span)
        z = torch.bmm(self.dropout(weights), v).view(self.heads, batch, length, self.head_width)
        mixed: Tensor = self.projection(z.permute(1, 2, 0, 3).reshape(batch, length, width))
        return mixed


def align(scores: Tensor) -> Tensor:
    """Scores [·, T, S + 1] by distance, S down to 0 -> [·, T, S] by key; those of later keys are arbitrary.

    Query i is at position S − T + i, so key j is at distance S − T + i − j, which is in column T − i + j. Row i of the
    result therefore begins at column T − i: in the memory of the tensor, at element T + i·S. A view with rows of S
    elements is enough (the relative shift of appendix B, without a copy).
    """
    rows, length, columns = scores.shape
    return scores.reshape(rows, -1)[:, length:].view(rows, length, columns - 1)


class SkewedAttention(nn.Module):
    """softmax((QKᵀ + Sʳᵉˡ)/√d)V with Sʳᵉˡ_ij = q_i · E_{i−j}: a learnt vector for each distance and head.

    The relative self-attention of the Music Transformer (Huang et al. 2018, section 3.4), with its skewing.

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

    def forward(self, x: Tensor, layer_cache: LayerCache | None = None) -> Tensor:
        """x [B, T, D] -> [B, T, D]; with the cache of this layer, which holds the tokens before x."""
        batch, length, width = x.shape
        parts = self.query_key_value(x).view(batch, length, 3, self.heads, self.head_width)
        q, k, v = (part.transpose(1, 2) for part in parts.unbind(2))
        if layer_cache is not None:
            k, v = layer_cache.extend(parts[:, :, 1:].permute(0, 3, 2, 1, 4)).unbind(2)
        span = k.shape[2]
        if layer_cache is None or layer_cache.rows is None:
            relative, mask = skewed_scores(q, self.distances, span), causal_mask(length, span, device=x.device)
        else:
            relative, mask = gathered_scores(q, self.distances, span, layer_cache.rows.positions), layer_cache.rows.mask
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
