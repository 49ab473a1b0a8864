"""Attention by distance instead of position, over a memory of earlier segments (Dai et al. 2019, section 3.3).

Shapes: B batch, H heads, T new tokens, M remembered ones, S = M + T keys, D width, d = D / H.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from lmlab.layers.attention import causal_mask, head_width
from lmlab.layers.dropout import Dropout
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.positions import sinusoids
from lmlab.layers.watching import is_watched


class Distances:
    """What all layers share: the sine waves R of the distances `longest`, …, 1, 0 and the biases u and v.

    While nothing is learnt it also keeps W_R R of each layer, so that reading a text token by token makes it once.
    """

    def __init__(self, longest: int, *, content_bias: Tensor, position_bias: Tensor) -> None:
        self.longest = longest
        self.content_bias, self.position_bias = content_bias, position_bias  # u, v, each [H, d]
        falling = torch.arange(longest, -1, -1, device=content_bias.device)
        self.waves = sinusoids(falling, content_bias.numel())  # [longest + 1, D]
        self._products: dict[nn.Module, Tensor] = {}

    def product(self, matrix: nn.Module, count: int) -> Tensor:
        """W_R R [count, D] of the `count` shortest distances, the longest of them first."""
        if torch.is_grad_enabled():
            product: Tensor = matrix(self.waves[-count:])
            return product
        if matrix not in self._products:
            self._products[matrix] = matrix(self.waves)
        return self._products[matrix][-count:]


class RelativeAttention(nn.Module):
    """A_ij = q_iᵀk_j + q_iᵀ W_R R_{i−j} + uᵀk_j + vᵀ W_R R_{i−j}; softmax(A/√d)V, mixed by Wᴼ.

    The four terms of the paper: content, content-dependent position, global content bias, global position bias. The
    query is the current token's only; keys and values are the memory's too. No product has a bias of its own. Who
    watches `probabilities` sees the weights [B, H, T, S].
    """

    def __init__(self, width: int, heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.head_width = heads, head_width(width, heads)
        self.query = Linear(width, width, bias=False)
        self.key_value = Linear(width, 2 * width, bias=False)
        self.distance = Linear(width, width, bias=False)
        self.projection = Linear(width, width, bias=False)
        self.probabilities = nn.Identity()
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, keys_values: Tensor, distances: Distances, mask: Tensor | None = None) -> Tensor:
        """x [B, T, D] and the keys and values [B, S, 2D] of memory and x -> [B, T, D]; mask [B, S] False where none is.

        Heads go first, because W_R R is the same for the whole batch: one product per head serves all of it.
        """
        batch, length, width = x.shape
        span = keys_values.shape[1]
        q = self.query(x).view(batch, length, self.heads, self.head_width)
        k, v = keys_values.view(batch, span, 2, self.heads, self.head_width).permute(2, 3, 0, 1, 4).flatten(1, 2)
        r = distances.product(self.distance, span + 1).view(span + 1, self.heads, self.head_width)
        by_content = (q + distances.content_bias).permute(2, 0, 1, 3).reshape(-1, length, self.head_width)
        by_position = (q + distances.position_bias).permute(2, 0, 1, 3).reshape(self.heads, -1, self.head_width)
        position = align(torch.bmm(by_position, r.permute(1, 2, 0)).view(-1, length, span + 1))  # [HB, T, S]
        scale = 1 / math.sqrt(self.head_width)
        scores = torch.baddbmm(position, by_content, k.mT, beta=scale, alpha=scale)
        if length > 1:
            scores.masked_fill_(~causal_mask(length, span, device=x.device), -math.inf)
        if mask is not None:
            scores.view(self.heads, batch, length, span).masked_fill_(~mask[:, None], -math.inf)
        weights = scores.softmax(-1)
        if is_watched(self.probabilities):
            seen = self.probabilities(weights.view(self.heads, batch, length, span).transpose(0, 1))
            weights = seen.transpose(0, 1).reshape(-1, length, span)
        z = torch.bmm(self.dropout(weights), v).view(self.heads, batch, length, self.head_width)
        mixed: Tensor = self.projection(z.permute(1, 2, 0, 3).reshape(batch, length, width))
        return mixed


def align(scores: Tensor) -> Tensor:
    """Scores [N, T, S + 1] by distance, S down to 0, -> scores [N, T, S] by key; where the key comes later, anything.

    Query i is at place S − T + i and key j at distance S − T + i − j, which is column T − i + j. Row i therefore starts
    T − i columns in: in the row-major order of all scores that is T + i·S, so the rows only have to be cut anew (the
    relative shift of appendix B, here without a copy).
    """
    rows, length, columns = scores.shape
    return scores.reshape(rows, -1)[:, length:].view(rows, length, columns - 1)
