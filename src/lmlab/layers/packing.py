"""Texts of unequal length in one batch: whole rows, rows with a mask over their padding, or packed without any.

What works on each token by itself need not know which it is; attention goes text by text, through `each_text`, or
through `each_query` where only a few tokens ask. Shapes: B rows, T the places of each, K those of them that are chosen,
N the real tokens of all, D width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Attend = Callable[[Tensor, Tensor | None], Tensor]
"""A function of texts [B, T, ·] and of a mask that broadcasts to [B, H, T, T], or None."""
AskAll = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""A function of queries [B, K, ·], of the texts [B, T, ·] that they ask, and of a mask for [B, H, K, T], or None."""


class Whole:
    """Rows [B, T] that have no padding."""

    def pack(self, padded: Tensor) -> Tensor:
        """[B, T, ...] -> what is worked on."""
        return padded

    def place(self, table: Tensor) -> Tensor:
        """The vectors [T, D] of the places of a row -> what broadcasts to the packed tokens."""
        return table

    def unpack(self, x: Tensor) -> Tensor:
        """What was worked on -> [B, T, D], zero where padding is."""
        return x

    def each_text(self, function: Attend, x: Tensor) -> Tensor:
        """A function of texts, on all of them."""
        return function(x, None)

    def choose(self, x: Tensor, at: Tensor) -> Tensor:
        """What was worked on, at the places `at` [B, K] of each row -> [B, K, D]."""
        return choose(x, at)

    def each_query(self, function: AskAll, queries: Tensor, x: Tensor) -> Tensor:
        """A function of queries [B, K, ·] and of the texts that they ask, on all of them -> [B, K, ·]."""
        return function(queries, x, None)


class Masked(Whole):
    """Rows [B, T] of which row i has lengths[i] tokens: padding is worked on too, but no text sees it."""

    def __init__(self, lengths: Tensor, longest: int) -> None:
        self.real = torch.arange(longest, device=lengths.device) < lengths[:, None]

    def unpack(self, x: Tensor) -> Tensor:
        return x.masked_fill(~self.real[..., None], 0)

    def each_text(self, function: Attend, x: Tensor) -> Tensor:
        return function(x, self.real[:, None, None])

    def each_query(self, function: AskAll, queries: Tensor, x: Tensor) -> Tensor:
        return function(queries, x, self.real[:, None, None])


class Packed(Whole):
    """The real tokens [N] alone, rows of equal length next to each other, so that attention has a few rectangles.

    A mask would spare no work: on a CPU, sentences padded to the longest of them take two to three times as long.
    """

    def __init__(self, lengths: Tensor, longest: int) -> None:
        batch = len(lengths)
        lengths, order = lengths.sort()
        every = torch.arange(longest, device=lengths.device)
        sizes, rows = torch.unique_consecutive(lengths, return_counts=True)
        self.shape, self.order = (batch, longest), order
        self.places = (order[:, None] * longest + every)[every < lengths[:, None]]  # [N], of [B * T]
        self.groups = list(zip(rows.tolist(), sizes.tolist(), strict=True))

    def pack(self, padded: Tensor) -> Tensor:
        return padded.flatten(0, 1)[self.places]

    def place(self, table: Tensor) -> Tensor:
        return F.embedding(self.places % self.shape[1], table)

    def unpack(self, x: Tensor) -> Tensor:
        batch, longest = self.shape
        padded = x.new_zeros(batch * longest, x.shape[1])
        return padded.index_copy(0, self.places, x).view(batch, longest, -1)

    def each_text(self, function: Attend, x: Tensor) -> Tensor:
        return torch.cat([function(texts, None).flatten(0, 1) for texts in self._texts(x)])

    def choose(self, x: Tensor, at: Tensor) -> Tensor:
        batch, longest = self.shape
        rank = self.places.new_zeros(batch * longest)
        rank[self.places] = torch.arange(len(self.places), device=rank.device)
        return x[rank.view(batch, longest).gather(1, at)]

    def each_query(self, function: AskAll, queries: Tensor, x: Tensor) -> Tensor:
        asking = torch.split(queries[self.order], [rows for rows, _ in self.groups])
        answers = torch.cat([function(some, texts, None) for some, texts in zip(asking, self._texts(x), strict=True)])
        return torch.empty_like(answers).index_copy(0, self.order, answers)

    def _texts(self, x: Tensor) -> list[Tensor]:
        """The packed tokens [N, D] as rectangles [rows, length, D]."""
        groups = torch.split(x, [rows * length for rows, length in self.groups])
        return [group.view(*shape, -1) for group, shape in zip(groups, self.groups, strict=True)]


def choose(x: Tensor, at: Tensor) -> Tensor:
    """x [B, T, D] at the places `at` [B, K] of each row -> [B, K, D]."""
    return x.flatten(0, 1).index_select(0, flat_places(at, x.shape[1])).view(*at.shape, -1)


def flat_places(at: Tensor, length: int) -> Tensor:
    """The places [B · K] among all B · T tokens of those `at` [B, K] in rows of length T."""
    rows = torch.arange(len(at), device=at.device)[:, None]
    return (at + length * rows).flatten()


def check_lengths(lengths: Tensor, batch: int, longest: int) -> bool:
    """Whether there is padding; a ValueError where these are not the lengths of `batch` rows of `longest` places."""
    if tuple(lengths.shape) != (batch,):
        raise ValueError(f"lengths of shape {list(lengths.shape)} for {batch} rows: give one length for each row")
    least, most = (int(end) for end in lengths.aminmax())
    if least < 1 or most > longest:
        raise ValueError(
            f"lengths from {least} to {most} for rows of {longest} places: each must be from 1 to {longest}; "
            f"an empty text is still one token, such as [CLS]"
        )
    return least < longest
