"""The prefix cache: states of prompts that were read before, so that a common beginning is read once."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lmlab.models.abilities import State
from lmlab.models.states import map_state, reorder_state
from lmlab.serve.metrics import Metrics

PREFIX_BYTES = 2**28
"""Default size of the prefix cache of a run."""


class Prefilled(NamedTuple):
    """The result of reading a prompt: the logits [1, V] of the next token, and the state of one row."""

    logits: Tensor
    state: State


class PrefixCache:
    """Least-recently-used cache of states, one at the end of each piece of a prompt.

    Pieces start at the same positions whether a state was found or computed, so that the numbers are the same.
    """

    def __init__(self, piece: int, *, capacity: int = PREFIX_BYTES, metrics: Metrics | None = None) -> None:
        self.piece, self.capacity = piece, capacity  # tokens, bytes
        self.bytes = 0  # in use
        self._metrics = metrics
        self._entries: OrderedDict[bytes, tuple[Prefilled, int]] = OrderedDict()

    def find(self, tokens: Sequence[int]) -> tuple[int, Prefilled | None]:
        """The longest cached prefix of the tokens: its length, and a copy of its state."""
        end, found = self._find(tokens) if self.capacity else (0, None)
        if self._metrics is not None and self.capacity:
            self._metrics.prefix_cache_queries.inc(len(tokens))
            self._metrics.prefix_cache_hits.inc(end)
        return end, found

    def _find(self, tokens: Sequence[int]) -> tuple[int, Prefilled | None]:
        key = array("q", tokens).tobytes()
        for end in dict.fromkeys((len(tokens), *range(len(tokens) // self.piece * self.piece, 0, -self.piece))):
            if (found := self._entries.get(key[: 8 * end])) is not None:
                self._entries.move_to_end(key[: 8 * end])
                return end, _copy(found[0])
        return 0, None

    def keep(self, tokens: Sequence[int], prefilled: Prefilled) -> None:
        """Store the state after these tokens; entries larger than a quarter of the cache are not stored."""
        key = array("q", tokens).tobytes()
        if key in self._entries or not self.capacity:
            return
        copy = _copy(prefilled)
        size = len(key) + _bytes_of(copy)
        if size > self.capacity // 4:
            return
        self._entries[key] = copy, size
        self.bytes += size
        while self.bytes > self.capacity:
            self.bytes -= self._entries.popitem(last=False)[1][1]


def _copy(prefilled: Prefilled) -> Prefilled:
    """A copy that may be changed in place."""
    index = torch.zeros(1, dtype=torch.long, device=prefilled.logits.device)
    return Prefilled(prefilled.logits, reorder_state(prefilled.state, index))


def _bytes_of(prefilled: Prefilled) -> int:
    size = prefilled.logits.nbytes

    def add(tensor: Tensor) -> Tensor:
        nonlocal size
        size += tensor.nbytes
        return tensor

    map_state(add, prefilled.state)
    return size
