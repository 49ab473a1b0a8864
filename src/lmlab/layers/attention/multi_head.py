"""Attention as a soft dictionary, softmax(QKᵀ/√d)V (Vaswani et al. 2017, section 3.2): causal, in both directions,
with shared keys and values, and from a decoder to an encoder.

Shapes: B batch, H heads, G heads of keys and values, T queries, K chosen queries, S keys, D width, d = D / H.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.layers.cache import LayerCache
from lmlab.layers.dropout import dropout as drop
from lmlab.layers.kernels.linear import Linear, apply_both
from lmlab.layers.kernels.tiled_attention import attend_in_tiles, tiles_are_faster
from lmlab.layers.kernels.training_linear import is_plain
from lmlab.layers.padding import NoPadding, Padding
from lmlab.layers.positions import Rotary, rotate
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

    One fused kernel, which never holds the weights. They are computed explicitly, and passed through `watch`, only
    when they are watched (see watching.py); and in training on a CPU when they are dropped out, because the kernel has
    no quick way of doing that, or when they are few, where the kernel is slower than products.
    """
    queries, keys = q.shape[-2], k.shape[-2]
    if watch is not None:
        return drop(watch(attention_weights(q, k, causal=causal and queries > 1, mask=mask)), dropout) @ v
    if _learns_on_cpu(q, dropout):
        if mask is None and queries == keys and not is_plain(q) and (dropout or tiles_are_faster(q, causal=causal)):
            return attend_in_tiles(q, k, v, dropout=dropout, causal=causal)
        if dropout:
            return drop(attention_weights(q, k, causal=causal and queries > 1, mask=mask), dropout) @ v
    if queries == 1 < len(q) and q.device.type == "cpu":
        return attention_weights(q, k, mask=mask) @ v  # here the kernel would first copy all keys, to scale them
    if causal and queries > 1 and (queries < keys or mask is not None):
        past = causal_mask(queries, keys, device=q.device)
        mask = past if mask is None else mask & past
    if mask is not None:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal and queries > 1, dropout_p=dropout)


def _learns_on_cpu(q: Tensor, dropout: float) -> bool:
    """Whether attention on a CPU drops weights out, or has to keep something for a backward pass."""
    learns = dropout > 0 or (torch.is_grad_enabled() and q.requires_grad)
    return learns and q.device.type == "cpu" and q.dtype in (torch.float32, torch.bfloat16)


def head_width(width: int, heads: int) -> int:
    """Width of one head; a ValueError where the heads do not divide the width."""
    if width % heads:
        raise ValueError(f"{heads} heads do not divide the width {width}; choose a width that is a multiple of heads")
    return width // heads


class SelfAttention(nn.Module):
    """Causal self-attention: each position asks, with its own query, all positions up to itself.

    z = [SelfAttn(q⁽¹⁾, K⁽¹⁾, V⁽¹⁾); …; SelfAttn(q⁽ᴴ⁾, K⁽ᴴ⁾, V⁽ᴴ⁾)]; the queries, keys and values of all heads come from
    one product. Watching `probabilities` gives the weights [B, H, T, S]; otherwise they are never computed.
    """

    def __init__(self, width: int, heads: int, *, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.width, self.heads, self.dropout = width, heads, dropout
        self.head_width = head_width(width, heads)
        self.query_key_value = Linear(width, 3 * width, bias=bias)
        self.probabilities = nn.Identity()

    def forward(self, x: Tensor, layer_cache: LayerCache | None = None) -> Tensor:
        """x [B, T, D] -> z [B, T, D]; with the cache of this layer, which holds the tokens before x."""
        batch, length, width = x.shape
        parts = self.query_key_value(x).view(batch, length, 3, self.heads, self.head_width)
        mask = None
        if layer_cache is None:
            q, k, v = (part.transpose(1, 2) for part in parts.unbind(2))
        else:
            q = parts[:, :, 0].transpose(1, 2)
            k, v = layer_cache.extend(parts[:, :, 1:].permute(0, 3, 2, 1, 4)).unbind(2)
            mask = None if layer_cache.rows is None else layer_cache.rows.mask
        dropout = self.dropout if self.training else 0.0
        watch = self.probabilities if is_watched(self.probabilities) else None
        z = attend(q, k, v, causal=mask is None, mask=mask, dropout=dropout, watch=watch)
        return z.transpose(1, 2).reshape(batch, length, width)


class MultiHeadAttention(SelfAttention):
    """Self-attention whose concatenated heads are mixed by one more matrix, Wᴼ (Vaswani et al. 2017, 3.2.2)."""

    def __init__(self, width: int, heads: int, *, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__(width, heads, bias=bias, dropout=dropout)
        self.projection = Linear(width, width, bias=bias)

    def forward(self, x: Tensor, layer_cache: LayerCache | None = None) -> Tensor:
        return cast(Tensor, self.projection(super().forward(x, layer_cache)))


class BidirectionalAttention(nn.Module):
    """Multi-head self-attention in which each position asks all positions of its text, before and after it.

    Its parts are called as in `MultiHeadAttention`; watching `probabilities` gives the weights [B, H, T, T].
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
        """The same where only the chosen positions [B, K, D] of the texts ask -> [B, K, D]; not for `causal`."""
        queries = self.query_key_value.part(chosen, slice(0, self.width))
        keys_values = self.query_key_value.part(x, slice(self.width, 3 * self.width))
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


class GroupedAttention(nn.Module):
    """Causal attention of H query heads over G heads of keys and values, queries and keys turned by their place.

    With G = H it is multi-head attention, with G = 1 multi-query attention; the cache is H / G times smaller. Without
    `rotary` nothing is turned. Watching `probabilities` gives the weights [B, H, T, S].
    """

    def __init__(
        self, width: int, heads: int, *, key_value_heads: int, rotary: Rotary | None, bias: bool = False
    ) -> None:
        super().__init__()
        self.heads, self.key_value_heads, self.head_width = heads, key_value_heads, head_width(width, heads)
        check_groups(heads, key_value_heads)
        self.rotary = rotary
        self.query = Linear(width, width, bias=bias)
        self.key_value = Linear(width, 2 * key_value_heads * self.head_width, bias=bias)
        self.projection = Linear(width, width, bias=False)
        self.probabilities = nn.Identity()

    def forward(self, x: Tensor, layer_cache: LayerCache | None = None) -> Tensor:
        """x [B, T, D] -> [B, T, D]; with the cache of this layer, which holds the tokens before x."""
        batch, length, width = x.shape
        queries, keys_values = apply_both(x, self.query, self.key_value)
        q = queries.view(batch, length, self.heads, self.head_width)
        k, v = keys_values.view(batch, length, 2, self.key_value_heads, self.head_width).unbind(2)
        if self.rotary is not None:
            angles = self.rotary.at(length, layer_cache)
            q, k = rotate(q, angles), rotate(k, angles)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))  # [B, H, T, d], [B, G, T, d]
        mask = None
        if layer_cache is not None:
            k, v = layer_cache.extend(torch.stack((k, v), 2)).unbind(2)
            mask = None if layer_cache.rows is None else layer_cache.rows.mask
        watch = self.probabilities if is_watched(self.probabilities) else None
        if length == 1 and watch is None:  # the queries of a group see the same keys: they are R positions of one head
            grouped = q.reshape(batch, self.key_value_heads, -1, self.head_width)
            z = attend(grouped, k, v, mask=mask).reshape(batch, 1, width)
        else:
            k, v = (part.repeat_interleave(self.heads // self.key_value_heads, dim=1) for part in (k, v))
            z = attend(q, k, v, causal=mask is None, mask=mask, watch=watch).transpose(1, 2)
        mixed: Tensor = self.projection(z.reshape(batch, length, width))
        return mixed


def check_groups(heads: int, key_value_heads: int) -> None:
    """A ValueError where heads of keys and values cannot be shared evenly."""
    if heads % key_value_heads:
        raise ValueError(
            f"{heads} heads cannot share {key_value_heads} key/value heads evenly; choose a number that divides {heads}"
        )


FULL = NoPadding()
FEW = 16
"""Up to this number of queries, the weights are computed explicitly outside training: a kernel would copy all keys."""


class Encoded(NamedTuple):
    """Encoded sources [B, S, D], or packed, before their keys and values are computed."""

    vectors: Tensor
    padding: Padding


class CrossAttention(nn.Module):
    """Queries from the decoder, keys and values from the encoder (Vaswani et al. 2017, section 3.2.3).

    Keys and values are made once for each source by `remember`. All K texts in the writing for it share them: their
    queries are concatenated like one longer text. Watching `probabilities` gives the weights
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

    def forward(
        self, y: Tensor, source: Tensor | Encoded, mask: Tensor | None = None, padding: Padding = FULL
    ) -> Tensor:
        """y [B * K, T, D] or packed, mask [B, 1, 1, S] False at padding -> as y.

        `source` are the keys and values [B, H, 2, S, d], or the encoded sources from which they are computed.
        """
        keys_values = self.remember(*source) if isinstance(source, Encoded) else source
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
