"""The key-value cache: what attention keeps of the tokens already read, so that a new token costs one row."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

FIRST = 64
"""Tokens for which a new cache has room; it doubles when full, so copying it for beams stays cheap."""


class KeyValueCache(NamedTuple):
    """Keys and values of every layer: a state, because it is a nest of batch-first tensors and a number.

    The tensors are written in place, so a cache belongs to the call that received it last.
    """

    layers: tuple[Tensor, ...]  # each [B, H, 2, room, width / H]: keys, then values
    length: int  # tokens read, the same for each row

    @staticmethod
    def empty(batch: int, *, layers: int, heads: int, head_width: int, window: int, like: Tensor) -> KeyValueCache:
        """Room for the first tokens of `batch` texts, of the type and on the device of `like`."""
        shape = (batch, heads, 2, min(FIRST, window), head_width)
        buffers = (torch.empty(shape, dtype=like.dtype, device=like.device) for _ in range(layers))
        return KeyValueCache(tuple(buffers), 0)

    def advance(self, more: int, *, window: int) -> KeyValueCache:
        """The cache after `more` tokens, with room for them; the caller writes them."""
        length = self.length + more
        room = self.layers[0].shape[3]
        if length > room:
            room = min(max(length, 2 * room), window)
            return KeyValueCache(tuple(_grow(layer, room, used=self.length) for layer in self.layers), length)
        return KeyValueCache(self.layers, length)


def _grow(layer: Tensor, room: int, *, used: int) -> Tensor:
    batch, heads, two, _, width = layer.shape
    larger = layer.new_empty(batch, heads, two, room, width)
    larger.narrow(3, 0, used).copy_(layer.narrow(3, 0, used))
    return larger
