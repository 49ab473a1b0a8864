"""The state of a Reformer: buckets, keys and values of the tokens that it has read, or the texts themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lmlab.layers.cache import KeyValueCache


class HashedCache(NamedTuple):
    """What is kept of B texts: keys and values of every layer, and the position of each token in its buckets."""

    cache: KeyValueCache
    positions: tuple[Tensor, ...]  # of each LSH layer, [B, H, R, room]
    counts: tuple[Tensor, ...]  # of each LSH layer, [B, H, R, n + 1]: how many tokens a bucket has

    def select(self, index: Tensor) -> HashedCache:
        """The state whose text i is text index[i] of this one."""
        positions, counts = (
            tuple(each.index_select(0, index) for each in kept) for kept in (self.positions, self.counts)
        )
        return HashedCache(self.cache.select(index), positions, counts)

    def join(self, others: Sequence[HashedCache]) -> HashedCache:
        """All texts of this state and of others of the same model."""
        cache = self.cache.join([other.cache for other in others])
        room = cache.layers[0].shape[3]
        every = (self, *others)
        positions = tuple(
            torch.cat([with_room(each, room) for each in layer])
            for layer in zip(*(s.positions for s in every), strict=True)
        )
        counts = tuple(torch.cat(layer) for layer in zip(*(s.counts for s in every), strict=True))
        return HashedCache(cache, positions, counts)


class TextState(NamedTuple):
    """The tokens themselves, where attention is to chunks: these change with each token, so all is read again."""

    tokens: Tensor  # [B, S]
    lengths: Tensor  # [B]

    def extend(self, tokens: Tensor) -> TextState:
        lengths = self.lengths + tokens.shape[1]
        room = F.pad(self.tokens, (0, tokens.shape[1]))
        positions = self.lengths[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        return TextState(room.scatter(1, positions, tokens)[:, : int(lengths.max())], lengths)

    def select(self, index: Tensor) -> TextState:
        return TextState(self.tokens[index], self.lengths[index])

    def join(self, others: Sequence[TextState]) -> TextState:
        texts = [self, *others]
        most = max(text.tokens.shape[1] for text in texts)
        padded = [F.pad(text.tokens, (0, most - text.tokens.shape[1])) for text in texts]
        return TextState(torch.cat(padded), torch.cat([text.lengths for text in texts]))


def with_room(positions: Tensor, room: int) -> Tensor:
    """Pad positions [B, H, R, …] with zeros to `room` tokens."""
    return F.pad(positions, (0, max(0, room - positions.shape[3])))[..., :room]
