"""Attention as a soft dictionary: softmax(QKᵀ/√d)V (Vaswani et al. 2017, section 3.2).

Shapes: B batch, H heads, T queries, S keys, D width, d = D / H width of a head.
"""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.layers.cache import Slot
from lmlab.layers.dropout import dropout as drop
from lmlab.layers.kernels.dropped_attention import attend_dropped
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.watching import is_watched


def attention_weights(q: Tensor, k: Tensor, *, causal: bool = False, mask: Tensor | None = None) -> Tensor:
    """softmax(QKᵀ/√d) for q [..., T, d] and k [..., S, d]: how much each query attends to each key, [..., T, S].

    With `causal` the queries are the last T of the S positions, and none sees a key after its own. A `mask`, of a shape
    that broadcasts to the weights, is True where a key may be seen: where it is not padding.
    """
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(~causal_mask(*scores.shape[-2:], device=q.device), -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(-1)


def causal_mask(queries: int, keys: int, *, device: torch.device) -> Tensor:
    """[T, S], True where the query, one of the last T of S positions, may see the key."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    watch: nn.Module | None = None,
) -> Tensor:
    """softmax(QKᵀ/√d)V for q [B, H, T, d] and k, v [B, H, S, d] -> [B, H, T, d]; `mask` as in `attention_weights`.

    One fused kernel, which never holds the weights. They are computed in the open, and passed through `watch`, only
    when somebody looks (see watching.py); and on a CPU when they are dropped out, because the kernel has no quick way
    of doing that.
    """
    queries, keys = q.shape[-2], k.shape[-2]
    if watch is not None:
        return drop(watch(attention_weights(q, k, causal=causal and queries > 1, mask=mask)), dropout) @ v
    if dropout and q.device.type == "cpu" and q.dtype == torch.float32:
        if mask is None and queries == keys and not torch.compiler.is_compiling():
            return attend_dropped(q, k, v, dropout=dropout, causal=causal)
        return drop(attention_weights(q, k, causal=causal and queries > 1, mask=mask), dropout) @ v
    if queries == 1 < len(q) and q.device.type == "cpu":
        return attention_weights(q, k, mask=mask) @ v  # here the kernel would first copy all keys, to scale them
    if causal and queries > 1 and (queries < keys or mask is not None):
        past = causal_mask(queries, keys, device=q.device)
        mask = past if mask is None else mask & past
    if mask is not None:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal and queries > 1, dropout_p=dropout)


def head_width(width: int, heads: int) -> int:
    """Width of one head; a ValueError where the heads do not divide the width."""
    if width % heads:
        raise ValueError(f"{heads} heads do not divide the width {width}; choose a width that is a multiple of heads")
    return width // heads


class SelfAttention(nn.Module):
    """Causal self-attention: each position asks, with its own query, all positions up to itself.

    z = [SelfAttn(q⁽¹⁾, K⁽¹⁾, V⁽¹⁾); …; SelfAttn(q⁽ᴴ⁾, K⁽ᴴ⁾, V⁽ᴴ⁾)]; the queries, keys and values of all heads come from
    one product. Who watches `probabilities` sees the weights [B, H, T, S]; otherwise they are never computed.
    """

    def __init__(self, width: int, heads: int, *, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.width, self.heads, self.dropout = width, heads, dropout
        self.head_width = head_width(width, heads)
        self.query_key_value = Linear(width, 3 * width, bias=bias)
        self.probabilities = nn.Identity()

    def forward(self, x: Tensor, slot: Slot | None = None) -> Tensor:
        """x [B, T, D] -> z [B, T, D]; with a slot of the cache, which holds the tokens before x."""
        batch, length, width = x.shape
        parts = self.query_key_value(x).view(batch, length, 3, self.heads, self.head_width)
        mask = None
        if slot is None:
            q, k, v = (part.transpose(1, 2) for part in parts.unbind(2))
        else:
            q = parts[:, :, 0].transpose(1, 2)
            k, v = slot.extend(parts[:, :, 1:].permute(0, 3, 2, 1, 4)).unbind(2)
            mask = None if slot.rows is None else slot.rows.mask
        dropout = self.dropout if self.training else 0.0
        watch = self.probabilities if is_watched(self.probabilities) else None
        z = attend(q, k, v, causal=mask is None, mask=mask, dropout=dropout, watch=watch)
        return z.transpose(1, 2).reshape(batch, length, width)


class MultiHeadAttention(SelfAttention):
    """Self-attention whose concatenated heads are mixed by one more matrix, Wᴼ (Vaswani et al. 2017, 3.2.2)."""

    def __init__(self, width: int, heads: int, *, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__(width, heads, bias=bias, dropout=dropout)
        self.projection = Linear(width, width, bias=bias)

    def forward(self, x: Tensor, slot: Slot | None = None) -> Tensor:
        return cast(Tensor, self.projection(super().forward(x, slot)))
