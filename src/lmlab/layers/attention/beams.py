"""Causal attention of several texts that grow from one another, without copying what they have in common.

K texts (the beams of a search) are written for each of B sources. At each step some end and others split, so a cache
with a row for each text would have to be copied all the time. Here the keys and values of all texts of a source lie in
one row of slots, in the order of writing, and each text knows which slots are its own: only these marks are copied.

Shapes: B sources, K texts for each, H heads, T new tokens, S slots, D width, d = D / H width of a head.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from lmlab.layers.attention.multi_head import MultiHeadAttention, attend
from lmlab.layers.padding import NoPadding, Padding
from lmlab.layers.watching import is_watched

FULL = NoPadding()
FIRST = 64
"""Slots of a new store; it doubles when full."""


class Store:
    """Keys and values of every layer, [B, H, 2, room, d] each: written in place, at the end only."""

    def __init__(self, layers: list[Tensor], used: int = 0) -> None:
        self.layers, self.used = layers, used

    def extend(self, more: int, *, since: int) -> Store:
        """This store with `more` slots after the first `since`; another one where they are taken, or do not fit."""
        room = self.layers[0].shape[3]
        if self.used == since and since + more <= room:
            self.used = since + more
            return self
        larger = Store([_copy(layer, max(room, 2 * (since + more)), used=since) for layer in self.layers])
        larger.used = since + more
        return larger


class Slots(NamedTuple):
    """What one layer needs to know in one step."""

    keys_values: Tensor  # [B, H, 2, room, d]
    first: int  # slot of the first new token
    mask: Tensor  # [B, 1, K * T, S], True where a new token may see a slot
    bias: Tensor | None  # the same as scores to be added, [B * H, K, S], where T = 1


class BeamCache(NamedTuple):
    """What the decoder's self-attention keeps of B * K texts: a state, because reordering its tensors reorders it."""

    store: Store
    seen: Tensor  # [B * K, S], True where a slot belongs to the text
    row: Tensor  # [B * K], the text's row in the store, the same for all texts of a source
    length: int  # tokens read, the same for each text

    @staticmethod
    def empty(sources: int, each: int, *, layers: int, heads: int, head_width: int, like: Tensor) -> BeamCache:
        """For `each` texts that are still empty, of the type and on the device of `like`."""
        shape = (sources, heads, 2, FIRST, head_width)
        buffers = [torch.empty(shape, dtype=like.dtype, device=like.device) for _ in range(layers)]
        seen = torch.empty(sources * each, 0, dtype=torch.bool, device=like.device)
        row = torch.arange(sources, device=like.device).repeat_interleave(each)
        return BeamCache(Store(buffers), seen, row, 0)

    def advance(self, more: int, *, sources: int) -> tuple[BeamCache, list[Slots]]:
        """The cache after `more` tokens of each text, and what the layers need to write them."""
        texts, used = self.seen.shape
        each = texts // sources
        new = each * more
        every = torch.arange(sources, device=self.row.device)
        rows, store, row = self.row[::each], self.store, self.row
        if not torch.equal(rows, every) or len(store.layers[0]) != sources:
            store = Store([layer.index_select(0, rows) for layer in store.layers], store.used)
            row = every.repeat_interleave(each)
        store = store.extend(new, since=used)
        own = torch.eye(each, dtype=torch.bool, device=row.device).repeat_interleave(more, 1)  # [K, K * T]
        seen = torch.cat([self.seen, own.repeat(sources, 1)], dim=1)
        mask = seen.view(sources, each, 1, used + new)
        if more > 1:
            past = torch.ones(more, more, dtype=torch.bool, device=row.device).tril().repeat(1, each)  # [T, K * T]
            mask = mask & torch.cat([past.new_ones(more, used), past], dim=1)
        mask = mask.reshape(sources, 1, new, used + new)
        bias = None
        if more == 1:
            kind = store.layers[0].dtype
            scores = torch.zeros(mask.shape, dtype=kind, device=row.device).masked_fill_(~mask, -math.inf)
            bias = scores.expand(-1, store.layers[0].shape[1], -1, -1).reshape(-1, new, used + new)
        slots = [Slots(layer, used, mask, bias) for layer in store.layers]
        return BeamCache(store, seen, row, self.length + more), slots


class BeamAttention(MultiHeadAttention):
    """Causal multi-head self-attention of whole texts, or with slots of texts in the writing."""

    def forward(self, x: Tensor, slots: Slots | None = None, padding: Padding = FULL) -> Tensor:  # type: ignore[override]
        """x [B, T, D] or packed; with slots [B * K, T, D], the next tokens of each text -> the same shape."""
        if slots is not None:
            return self._write(x, slots)
        return cast(Tensor, self.projection(padding.each_text(self._read, self.query_key_value(x))))

    def _read(self, parts: Tensor, mask: Tensor | None) -> Tensor:
        """Queries, keys and values [B, T, 3D] of whole texts -> [B, T, D]; padding is later than all that counts."""
        parts = parts.view(*parts.shape[:2], 3, self.heads, self.head_width)
        q, k, v = (part.transpose(1, 2) for part in parts.unbind(2))
        watch = self.probabilities if is_watched(self.probabilities) else None
        z = attend(q, k, v, causal=True, dropout=self.dropout if self.training else 0.0, watch=watch)
        return z.transpose(1, 2).flatten(2)

    def _write(self, x: Tensor, slots: Slots) -> Tensor:
        texts, length, width = x.shape
        keys_values, first, mask, bias = slots
        sources, _, new, used = mask.shape
        parts = self.query_key_value(x).view(sources, new, 3, self.heads, self.head_width)
        keys_values.narrow(3, first, new).copy_(parts[:, :, 1:].permute(0, 3, 2, 1, 4))
        k, v = keys_values.narrow(3, 0, used).unbind(2)
        q = parts[:, :, 0].transpose(1, 2)  # [B, H, K * T, d]
        scale = 1 / math.sqrt(self.head_width)
        if is_watched(self.probabilities):
            weights = (q @ k.mT * scale).masked_fill(~mask, -math.inf).softmax(-1)
            z = self._show(weights, mask, length) @ v
        elif bias is not None:
            scores = torch.baddbmm(bias, q.reshape(-1, new, self.head_width), k.flatten(0, 1).mT, alpha=scale)
            z = torch.bmm(scores.softmax(-1), v.flatten(0, 1)).view(sources, self.heads, new, -1)
        else:
            z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        mixed: Tensor = self.projection(z.transpose(1, 2).reshape(texts, length, width))
        return mixed

    def _show(self, weights: Tensor, mask: Tensor, length: int) -> Tensor:
        """Pass weights [B, H, K * T, S] through `probabilities` as those of each text over its own tokens.

        The last of the new tokens sees all slots of its text, and these lie in the order of its tokens.
        """
        sources, heads, new, used = weights.shape
        texts = sources * (new // length)
        rows = weights.view(sources, heads, -1, length, used).transpose(1, 2).reshape(texts, heads, length, used)
        own = mask.view(texts, length, used)[:, -1].nonzero()[:, 1].view(texts, 1, 1, -1).expand(-1, heads, length, -1)
        seen: Tensor = self.probabilities(rows.gather(3, own))
        rows = torch.zeros_like(rows).scatter(3, own, seen)
        return rows.view(sources, -1, heads, length, used).transpose(1, 2).reshape(weights.shape)


def _copy(layer: Tensor, room: int, *, used: int) -> Tensor:
    rows, heads, two, _, width = layer.shape
    larger = layer.new_empty(rows, heads, two, room, width)
    larger.narrow(3, 0, used).copy_(layer.narrow(3, 0, used))
    return larger
