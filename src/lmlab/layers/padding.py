"""Texts of unequal length in one batch: full rows, or rows with a mask over their padding.

What works on each token separately need not know its row; attention goes text by text, through `each_text`, or
through `each_query` where only a few tokens ask. The same without the work on padding is in `kernels/packing.py`.
Shapes: B rows, T the positions of each, K those of them that are chosen, N the tokens that are worked on, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

Attend = Callable[[Tensor, Tensor | None], Tensor]
"""A function of texts [B, T, ·] and of a mask that broadcasts to [B, H, T, T], or None."""
AttendFrom = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""A function of queries [B, K, ·], of the texts [B, T, ·] that they ask, and of a mask for [B, H, K, T], or None."""


class Padding:
    """How the padding of rows [B, T] is handled; this class is for rows without padding."""

    mask: Tensor | None = None
    """[B, T], False at padding; None where attention meets none."""

    def pack(self, padded: Tensor) -> Tensor:
        """[B, T, ...] -> what is worked on."""
        return padded

    def position_vectors(self, table: Tensor) -> Tensor:
        """The vectors [T, D] of the positions of a row -> what broadcasts to the packed tokens."""
        return table

    def unpack(self, x: Tensor) -> Tensor:
        """What was worked on -> [B, T, D], zero where padding is."""
        return x

    def each_text(self, function: Attend, x: Tensor) -> Tensor:
        """A function of texts, on all of them."""
        return function(x, None)

    def gather_positions(self, x: Tensor, at: Tensor) -> Tensor:
        """The vectors at the positions `at` [B, K] of each row -> [B, K, D]."""
        return gather_positions(x, at)

    def each_query(self, function: AttendFrom, queries: Tensor, x: Tensor) -> Tensor:
        """A function of queries [B, K, ·] and of the texts that they ask, on all of them -> [B, K, ·]."""
        return function(queries, x, None)


class NoPadding(Padding):
    """Rows [B, T] that are all full."""


class PaddingMask(Padding):
    """Rows [B, T], where row i has lengths[i] tokens: padding is computed, but masked in attention.

    `mask` [B, T] is True at these tokens where they are not the first ones of a row.
    """

    mask: Tensor

    def __init__(self, lengths: Tensor, longest: int, mask: Tensor | None = None) -> None:
        self.mask = torch.arange(longest, device=lengths.device) < lengths[:, None] if mask is None else mask

    def unpack(self, x: Tensor) -> Tensor:
        return x.masked_fill(~self.mask[..., None], 0)

    def each_text(self, function: Attend, x: Tensor) -> Tensor:
        return function(x, self.mask[:, None, None])

    def each_query(self, function: AttendFrom, queries: Tensor, x: Tensor) -> Tensor:
        return function(queries, x, self.mask[:, None, None])


def gather_positions(x: Tensor, at: Tensor) -> Tensor:
    """x [B, T, D] at the positions `at` [B, K] of each row -> [B, K, D]."""
    return x.flatten(0, 1).index_select(0, flat_positions(at, x.shape[1])).view(*at.shape, -1)


def reverse_rows(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Reverse the first lengths[i] positions of row i of x [B, T, D], or all; padding stays at the end."""
    if lengths is None:
        return x.flip(1)
    positions = torch.arange(x.shape[1], device=x.device)
    turned = lengths[:, None] - 1 - positions
    return gather_positions(x, torch.where(turned >= 0, turned, positions))


def flat_positions(at: Tensor, length: int) -> Tensor:
    """The positions [B · K] among all B · T tokens of those `at` [B, K] in rows of length T."""
    rows = torch.arange(len(at), device=at.device)[:, None]
    return (at + length * rows).flatten()


def has_padding(lengths: Tensor | None, batch: int, longest: int) -> bool:
    """Return whether rows may have padding; check that these are lengths of `batch` rows of `longest` positions.

    The lengths themselves are read only where that costs no synchronisation: on a CPU, and not in a graph that is being
    compiled. Elsewhere rows count as padded; batches leave the lengths out where all rows are full.
    """
    if lengths is None:
        return False
    if tuple(lengths.shape) != (batch,):
        raise ValueError(f"lengths of shape {list(lengths.shape)} for {batch} rows: give one length for each row")
    if lengths.device.type != "cpu" or torch.compiler.is_compiling():
        return True
    least, most = (int(end) for end in lengths.aminmax())
    if least < 1 or most > longest:
        raise ValueError(
            f"lengths from {least} to {most} for rows of {longest} positions: each must be from 1 to {longest}; "
            f"an empty text is still one token, such as [CLS]"
        )
    return least < longest


def real_positions(tokens: Tensor, lengths: Tensor | None) -> Tensor:
    """[B, T], False at padding."""
    mask = token_mask(tokens, lengths)
    return torch.ones(tokens.shape, dtype=torch.bool, device=tokens.device) if mask is None else mask


def token_mask(tokens: Tensor, lengths: Tensor | None) -> Tensor | None:
    """[B, T], False at padding; None if no row has padding."""
    batch, longest = tokens.shape
    if not has_padding(lengths, batch, longest):
        return None
    return torch.arange(longest, device=tokens.device) < cast(Tensor, lengths)[:, None]
