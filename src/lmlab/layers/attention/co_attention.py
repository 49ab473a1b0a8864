"""Co-attention: two streams that ask each other (Lu et al. 2019, section 3.1 and figure 2b).

    z = softmax(Q K'ᵀ/√d) V'        z' = softmax(Q' Kᵀ/√d) V

Q, K and V are made of the vectors x of the first stream, Q', K' and V' of those of the second, y. Shapes: B rows,
T and R positions of the streams, D and E their widths, C the width in which they meet, H heads, d = C / H.
"""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from lmlab.layers.attention.multi_head import attend, head_width
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.padding import Padding
from lmlab.layers.watching import is_watched


class Stream(nn.Module):
    """What one stream has: queries, keys and values from its vectors, and what it makes of the other's answer.

    Watching `probabilities` gives the weights [B, H, T, R] with which it asks the other.
    """

    def __init__(self, width: int, shared: int, heads: int, *, dropout: float) -> None:
        super().__init__()
        self.heads, self.head_width, self.dropout = heads, head_width(shared, heads), dropout
        self.query_key_value = Linear(width, 3 * shared)
        self.projection = Linear(shared, width)
        self.probabilities = nn.Identity()

    def split(self, x: Tensor, padding: Padding) -> list[Tensor]:
        """x [B, T, D] or packed -> queries, keys and values, each [B, H, T, d]."""
        parts = padding.unpack(self.query_key_value(x))
        parts = parts.view(*parts.shape[:2], 3, self.heads, self.head_width)
        return [part.transpose(1, 2) for part in parts.unbind(2)]

    def ask(self, q: Tensor, k: Tensor, v: Tensor, padding: Padding, other: Padding) -> Tensor:
        """Own queries [B, H, T, d], keys and values of the other [B, H, R, d] -> as the own vectors."""
        mask = None if other.mask is None else other.mask[:, None, None]
        watch = self.probabilities if is_watched(self.probabilities) else None
        z = attend(q, k, v, mask=mask, dropout=self.dropout if self.training else 0.0, watch=watch)
        return cast(Tensor, self.projection(padding.pack(z.transpose(1, 2).flatten(2))))


class CoAttention(nn.Module):
    """Each stream asks the other, with queries of its own and the other's keys and values."""

    def __init__(self, first: int, second: int, *, shared: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = Stream(first, shared, heads, dropout=dropout)
        self.second = Stream(second, shared, heads, dropout=dropout)

    def forward(self, x: Tensor, y: Tensor, padding: Padding, other: Padding) -> tuple[Tensor, Tensor]:
        """x [B, T, D] and y [B, R, E], or packed -> what each gets from the other, of the same shapes."""
        q, k, v = self.first.split(x, padding)
        q_other, k_other, v_other = self.second.split(y, other)
        return (
            self.first.ask(q, k_other, v_other, padding, other),
            self.second.ask(q_other, k, v, other, padding),
        )
