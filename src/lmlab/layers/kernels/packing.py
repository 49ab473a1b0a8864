"""Padded texts without the work on their padding: the fast twins of `PaddingMask`, for a CPU.

A mask spares no work: sentences padded to the longest of them take two to three times as long.
Shapes: B rows, T the positions of each, N the real tokens of all, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from lmlab.layers.padding import Attend, AttendFrom, NoPadding, Padding, PaddingMask, has_padding
from lmlab.layers.watching import is_watched


class PackedByLength(Padding):
    """The real tokens [N] alone, rows of equal length next to each other, so that attention has a few rectangles.

    `mask` [B, T] is True at the real tokens where they are not the first ones of a row.
    """

    def __init__(self, lengths: Tensor, longest: int, mask: Tensor | None = None) -> None:
        batch = len(lengths)
        lengths, order = lengths.sort()
        every = torch.arange(longest, device=lengths.device)
        real = every < lengths[:, None] if mask is None else mask[order]
        sizes, rows = torch.unique_consecutive(lengths, return_counts=True)
        self.shape, self.order = (batch, longest), order
        self.positions = (order[:, None] * longest + every)[real]  # [N], of [B * T]
        self.groups = list(zip(rows.tolist(), sizes.tolist(), strict=True))

    def pack(self, padded: Tensor) -> Tensor:
        return padded.flatten(0, 1)[self.positions]

    def position_vectors(self, table: Tensor) -> Tensor:
        return F.embedding(self.positions % self.shape[1], table)

    def unpack(self, x: Tensor) -> Tensor:
        batch, longest = self.shape
        padded = x.new_zeros(batch * longest, x.shape[1])
        return padded.index_copy(0, self.positions, x).view(batch, longest, -1)

    def each_text(self, function: Attend, x: Tensor) -> Tensor:
        return torch.cat([function(texts, None).flatten(0, 1) for texts in self._texts(x)])

    def gather_positions(self, x: Tensor, at: Tensor) -> Tensor:
        batch, longest = self.shape
        rank = self.positions.new_zeros(batch * longest)
        rank[self.positions] = torch.arange(len(self.positions), device=rank.device)
        return x[rank.view(batch, longest).gather(1, at)]

    def each_query(self, function: AttendFrom, queries: Tensor, x: Tensor) -> Tensor:
        asking = torch.split(queries[self.order], [rows for rows, _ in self.groups])
        answers = torch.cat([function(some, texts, None) for some, texts in zip(asking, self._texts(x), strict=True)])
        return torch.empty_like(answers).index_copy(0, self.order, answers)

    def _texts(self, x: Tensor) -> list[Tensor]:
        """The packed tokens [N, D] as rectangles [rows, length, D]."""
        groups = torch.split(x, [rows * length for rows, length in self.groups])
        return [group.view(*shape, -1) for group, shape in zip(groups, self.groups, strict=True)]


class PackedTokens(PaddingMask):
    """The real tokens [N] for token-wise layers; attention takes the padded rows.

    `PackedByLength` suits an encoder alone; a decoder attends to texts of other lengths, and there would be as many
    pieces as pairs of lengths.
    """

    def __init__(self, lengths: Tensor, longest: int) -> None:
        super().__init__(lengths, longest)
        self.positions = self.mask.flatten().nonzero()[:, 0]  # [N], of [B * T]

    def pack(self, padded: Tensor) -> Tensor:
        return padded.flatten(0, 1).index_select(0, self.positions)

    def position_vectors(self, table: Tensor) -> Tensor:
        return F.embedding(self.positions % self.mask.shape[1], table)

    def unpack(self, x: Tensor) -> Tensor:
        padded = x.new_zeros(self.mask.numel(), x.shape[1]).index_copy(0, self.positions, x)
        return padded.view(*self.mask.shape, -1)

    def each_text(self, function: Attend, x: Tensor) -> Tensor:
        return self.pack(super().each_text(function, self.unpack(x)))


def pack_by_length(tokens: Tensor, lengths: Tensor | None) -> Padding:
    """Return the padding for an encoder over tokens [B, T], where row i has lengths[i] tokens."""
    return _choose(PackedByLength, tokens, lengths)


def pack_tokens(tokens: Tensor, lengths: Tensor | None) -> Padding:
    """Return the padding for an encoder–decoder over tokens [B, T], where row i has lengths[i] tokens."""
    return _choose(PackedTokens, tokens, lengths)


def pack_by_mask(mask: Tensor) -> Padding:
    """How an encoder works on rows [B, T] whose real tokens are those where the mask is True."""
    packs = mask.device.type == "cpu" and not torch.compiler.is_compiling()
    if packs and bool(mask.all()):
        return NoPadding()
    return (PackedByLength if packs and not is_watched() else PaddingMask)(mask.sum(1), mask.shape[1], mask)


def _choose(packed: type[PackedByLength] | type[PackedTokens], tokens: Tensor, lengths: Tensor | None) -> Padding:
    """Packing pays on a CPU; what is watched has the shape [B, T, ·]."""
    if lengths is None or not has_padding(lengths, *tokens.shape):
        return NoPadding()
    packs = tokens.device.type == "cpu" and not is_watched() and not torch.compiler.is_compiling()
    return (packed if packs else PaddingMask)(lengths.to(tokens.device), tokens.shape[1])
