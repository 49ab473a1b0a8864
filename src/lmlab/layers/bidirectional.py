"""Self-attention that looks both ways (Devlin et al. 2019, section 3)."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from lmlab.layers.attention import attend, head_width
from lmlab.layers.kernels.linear import Linear, linear
from lmlab.layers.padding import Padding
from lmlab.layers.watching import is_watched


class BidirectionalAttention(nn.Module):
    """Multi-head self-attention in which each position asks all positions of its text, before and after it.

    Its parts are called as in `MultiHeadAttention`; who watches `probabilities` sees the weights [B, H, T, T].
    With `causal` a position sees no later one: the left-to-right model to which BERT was compared (section 5.1).
    """

    def __init__(self, width: int, heads: int, *, dropout: float = 0.0, causal: bool = False) -> None:
        super().__init__()
        self.width, self.heads, self.dropout, self.causal = width, heads, dropout, causal
        self.head_width = head_width(width, heads)
        self.query_key_value = Linear(width, 3 * width)
        self.projection = Linear(width, width)
        self.probabilities = nn.Identity()

    def forward(self, x: Tensor, padding: Padding) -> Tensor:
        """x [B, T, D], or packed [N, D], of the given texts -> the same shape."""
        return cast(Tensor, self.projection(padding.each_text(self._attend, self.query_key_value(x))))

    def attend_from(self, chosen: Tensor, x: Tensor, padding: Padding) -> Tensor:
        """The same where only the chosen places [B, K, D] of the texts ask -> [B, K, D]; not for `causal`."""
        weight, bias, width = self.query_key_value.weight, self.query_key_value.bias, self.width
        queries, keys_values = linear(chosen, weight[:width], bias[:width]), linear(x, weight[width:], bias[width:])
        return cast(Tensor, self.projection(padding.each_query(self._answer, queries, keys_values)))

    def _answer(self, queries: Tensor, keys_values: Tensor, mask: Tensor | None) -> Tensor:
        """Queries [B, K, D], and keys and values side by side [B, T, 2D] -> the concatenated heads [B, K, D]."""
        q = queries.view(*queries.shape[:2], self.heads, self.head_width).transpose(1, 2)
        parts = keys_values.view(*keys_values.shape[:2], 2, self.heads, self.head_width)
        k, v = (part.transpose(1, 2) for part in parts.unbind(2))
        z = attend(q, k, v, mask=mask, dropout=self.dropout if self.training else 0.0)
        return z.transpose(1, 2).flatten(2)

    def _attend(self, parts: Tensor, mask: Tensor | None) -> Tensor:
        """Queries, keys and values side by side [B, T, 3D] -> the concatenated heads [B, T, D]."""
        batch, length, _ = parts.shape
        parts = parts.view(batch, length, 3, self.heads, self.head_width)
        q, k, v = (part.transpose(1, 2) for part in parts.unbind(2))
        watch = self.probabilities if is_watched(self.probabilities) else None
        dropout = self.dropout if self.training else 0.0
        z = attend(q, k, v, causal=self.causal, mask=mask, dropout=dropout, watch=watch)
        return z.transpose(1, 2).reshape(batch, length, self.width)
