"""Attention to one's own chunk of the text and the one before it: work that grows with the length, not with its square.

Kitaev et al. 2020 put it between layers of LSH attention in their released models. Chunks are cut by position, so what
a token sees does not depend on what follows. Shapes: B batch, H heads, T queries, S keys, d width of a head.
"""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from lmlab.layers.attention.multi_head import attend
from lmlab.layers.cache import LayerCache
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.watching import is_watched


def sees(mine: Tensor, theirs: Tensor, chunk: int) -> Tensor:
    """Positions [..., T] of queries and [S] of keys -> [..., T, S], True where the key is seen."""
    mine = mine[..., None]
    return (theirs <= mine) & (theirs // chunk >= mine // chunk - 1)


class LocalAttention(nn.Module):
    """Causal attention within a chunk and to the chunk before it; Wᴼ mixes the heads.

    Watching `probabilities` gives the weights [B, H, T, S], zero where nothing is seen.
    """

    def __init__(self, width: int, heads: int, *, head_width: int, chunk: int) -> None:
        super().__init__()
        self.heads, self.head_width, self.chunk = heads, head_width, chunk
        self.query_key_value = Linear(width, 3 * heads * head_width, bias=False)
        self.projection = Linear(heads * head_width, width, bias=False)
        self.probabilities = nn.Identity()

    def forward(self, x: Tensor, layer_cache: LayerCache | None = None) -> Tensor:
        """x [B, T, D] -> [B, T, D]; with the cache of this layer, which holds the tokens before x."""
        parts = self.query_key_value(x).view(*x.shape[:2], 3, self.heads, self.head_width)
        q, k, v = (part.transpose(1, 2) for part in parts.unbind(2))
        start = 0
        if layer_cache is not None:
            k, v = layer_cache.extend(torch.stack((k, v), 2)).unbind(2)
            start = layer_cache.start
        if layer_cache is not None and layer_cache.rows is not None:
            z = self._attend_rows(q, k, v, layer_cache.rows.positions)
        elif is_watched(self.probabilities):
            mine = torch.arange(start, start + q.shape[2], device=q.device)
            mask = sees(mine, torch.arange(k.shape[2], device=q.device), self.chunk)
            z = attend(q, k, v, mask=mask, watch=self.probabilities)
        else:
            z = torch.cat([self._attend_chunk(q, k, v, start, part) for part in self._chunks(start, q.shape[2])], 2)
        return cast(Tensor, self.projection(z.transpose(1, 2).flatten(2)))

    def _chunks(self, start: int, length: int) -> list[slice]:
        """The positions of the new tokens, cut where chunks end."""
        cuts = [start, *range((start // self.chunk + 1) * self.chunk, start + length, self.chunk), start + length]
        return [slice(a, b) for a, b in pairwise(cuts)]

    def _attend_chunk(self, q: Tensor, k: Tensor, v: Tensor, start: int, part: slice) -> Tensor:
        first = max(0, (part.start // self.chunk - 1) * self.chunk)
        keys, values = k[:, :, first : part.stop], v[:, :, first : part.stop]
        return attend(q[:, :, part.start - start : part.stop - start], keys, values, causal=True)

    def _attend_rows(self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        """Texts of unequal length, whose new tokens are at `positions` [B, T]."""
        mask = sees(positions, torch.arange(k.shape[2], device=q.device), self.chunk)[:, None]
        return attend(q, k, v, mask=mask, watch=self.probabilities if is_watched(self.probabilities) else None)

    def keys(self, length: int) -> float:
        """How many keys a query of a text of this length meets on average."""
        starts = range(0, length, self.chunk)
        ends = (min(start + self.chunk, length) for start in starts)
        return sum((b - a) * (b - max(0, a - self.chunk)) for a, b in zip(starts, ends, strict=True)) / length

    def flops_by_part(self, length: int, rounds: int) -> list[tuple[float, float]]:
        """FLOPs per token of attention, and how many times training in a reversible layer takes these."""
        return [(4.0 * self.heads * self.head_width * self.keys(length), 4.0)]
