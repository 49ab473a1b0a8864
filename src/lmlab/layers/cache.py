"""The key-value cache: what attention keeps of the tokens already read, so that a new token costs one row.

Shapes: B texts, H heads, T new tokens, S tokens in the longest text, d width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

FIRST = 64
"""Tokens for which a new cache has room; it doubles when full, so copying it for beams stays cheap."""


class UnequalPositions(NamedTuple):
    """The positions of new tokens in texts of unequal length."""

    positions: Tensor  # [B, T]
    mask: Tensor  # [B, 1, T, S], True where a new token may see a key


class LayerCache(NamedTuple):
    """What one layer needs of the cache in one step."""

    keys_values: Tensor  # [B, H, 2, room, d]
    start: int  # tokens read before, where all texts have the same number of them
    length: int  # tokens of the longest text, the new ones included
    rows: UnequalPositions | None  # None where all texts are equally long

    def extend(self, new: Tensor) -> Tensor:
        """Keys and values [B, H, 2, T, d] of the new tokens -> those of all tokens [B, H, 2, S, d]."""
        if self.rows is None:
            self.keys_values.narrow(3, self.start, new.shape[3]).copy_(new)
        else:
            self.keys_values.scatter_(3, self.rows.positions[:, None, None, :, None].expand_as(new), new)
        return self.keys_values.narrow(3, 0, self.length)


class KeyValueCache(NamedTuple):
    """Keys and values of every layer: a state, because it is a nest of batch-first tensors and a number.

    The tensors are written in place, so a cache belongs to the call that received it last.

    Texts that are kept apart are computed to the same bits whatever others there are: keys are always masked and come
    in whole blocks, so that sums over them end alike. Such a cache may have more rows than texts: the next to come.
    """

    layers: tuple[Tensor, ...]  # each [B, H, 2, room, d]: keys, then values
    length: int  # tokens read of the longest text
    lengths: Tensor | None = None  # [B], tokens read of each; None where it is the same number for all
    batch_invariant: bool = False

    @staticmethod
    def empty(batch: int, *, layers: int, heads: int, head_width: int, window: int, like: Tensor) -> KeyValueCache:
        """Room for the first tokens of `batch` texts, of the type and on the device of `like`."""
        shape = (batch, heads, 2, min(FIRST, window), head_width)
        buffers = (torch.empty(shape, dtype=like.dtype, device=like.device) for _ in range(layers))
        return KeyValueCache(tuple(buffers), 0)

    @property
    def start(self) -> int | Tensor:
        """The position of the next token of each text: one number, or [B]."""
        return self.length if self.lengths is None else self.lengths

    def advance(self, more: int, *, window: int) -> tuple[KeyValueCache, list[LayerCache]]:
        """The cache after `more` tokens, with room for them, and what the layers need to write them."""
        length = self.length + more
        room = self.layers[0].shape[3]
        layers, lengths, rows, seen = self.layers, self.lengths, None, length
        if length > room:
            room = max(_rounded(length), 2 * room)
            room = room if self.batch_invariant else min(room, window)
            layers = tuple(_resize(layer, room, used=self.length) for layer in layers)
        if lengths is not None:
            seen = _rounded(length) if self.batch_invariant else length
            positions = lengths[:, None] + torch.arange(more, device=lengths.device)
            keys = torch.arange(seen, device=lengths.device)
            rows = UnequalPositions(positions, (keys <= positions[..., None])[:, None])
            lengths = lengths + more
        texts = slice(None) if lengths is None else slice(len(lengths))
        layer_caches = [LayerCache(layer[texts], self.length, seen, rows) for layer in layers]
        return KeyValueCache(layers, length, lengths, self.batch_invariant), layer_caches

    def make_batch_invariant(self) -> KeyValueCache:
        """The same texts in batch-invariant form."""
        layers = tuple(_resize(layer, _rounded(max(self.length, 1)), used=self.length) for layer in self.layers)
        return KeyValueCache(layers, self.length, self._each, True)

    def select(self, index: Tensor) -> KeyValueCache:
        """The cache whose text i is text index[i] of this one."""
        if self.batch_invariant:
            return self._select_invariant(index)
        layers = tuple(layer.index_select(0, index) for layer in self.layers)
        if self.lengths is None:
            return KeyValueCache(layers, self.length)
        return KeyValueCache(layers, *_settled(self.lengths.index_select(0, index)))

    def join(self, others: Sequence[KeyValueCache]) -> KeyValueCache:
        """All texts of this cache and of others of the same model."""
        caches = [self, *others]
        if self.batch_invariant:
            return self._join_invariant(caches)
        room = max(_rounded(max(cache.length for cache in caches)), FIRST)
        layers = tuple(
            torch.cat([_resize(layer, room, used=cache.length) for layer, cache in zip(parts, caches, strict=True)])
            for parts in zip(*(cache.layers for cache in caches), strict=True)
        )
        return KeyValueCache(layers, *_settled(torch.cat([cache._each for cache in caches])))

    def _select_invariant(self, index: Tensor) -> KeyValueCache:
        """Where texts only leave, the last ones take their rows, and no other is touched."""
        assert self.lengths is not None
        lengths, count = self.lengths.index_select(0, index), len(index)
        moved = [(new, old) for new, old in enumerate(index.tolist()) if new != old]
        if any(old < count for _, old in moved) or count > len(self.layers[0]):
            layers = tuple(layer.index_select(0, index) for layer in self.layers)
        else:
            layers = self.layers
            for new, old in moved:
                for layer in layers:
                    layer[new].copy_(layer[old])
        return KeyValueCache(layers, int(lengths.max()) if count else 0, lengths, True)

    def _join_invariant(self, caches: Sequence[KeyValueCache]) -> KeyValueCache:
        """The others move into the rows that are free; where there are too few, into twice as many."""
        lengths = torch.cat([cache._each for cache in caches])
        length, count, own = int(lengths.max()), len(lengths), len(self._each)
        rows, room = self.layers[0].shape[0], self.layers[0].shape[3]
        layers = self.layers
        if count > rows or length > room:
            rows, room = count if count <= rows else max(count, 2 * rows), max(_rounded(length), room)
            layers = tuple(_resize(layer[:own], room, used=self.length, rows=rows) for layer in layers)
        first = own
        for cache in caches[1:]:
            end = first + len(cache._each)
            for layer, other in zip(layers, cache.layers, strict=True):
                layer[first:end, :, :, : cache.length].copy_(other[: end - first, :, :, : cache.length])
            first = end
        return KeyValueCache(layers, length, lengths, True)

    @property
    def _each(self) -> Tensor:
        """Tokens read of each text [B]."""
        if self.lengths is not None:
            return self.lengths
        return torch.full((len(self.layers[0]),), self.length, device=self.layers[0].device)


def _settled(lengths: Tensor) -> tuple[int, Tensor | None]:
    """The maximum length, and the lengths unless all are the same."""
    if not len(lengths):
        return 0, None
    least, most = (int(end) for end in lengths.aminmax())
    return most, None if least == most else lengths


def _rounded(length: int) -> int:
    return -(-length // FIRST) * FIRST


def _resize(layer: Tensor, room: int, *, used: int, rows: int | None = None) -> Tensor:
    """Keys and values with another room; zero where nothing is, because what a mask hides must still be a number."""
    batch, heads, two, _, width = layer.shape
    resized = layer.new_zeros(rows or batch, heads, two, room, width)
    resized[:batch].narrow(3, 0, used).copy_(layer.narrow(3, 0, used))
    return resized
