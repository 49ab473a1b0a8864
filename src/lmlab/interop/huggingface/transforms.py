"""Transforms between tensors of `transformers` and lmlab: each `write` exactly reverses its `read`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor


class Transform(Protocol):
    """The transform of one row's tensors."""

    def read(self, theirs: Sequence[Tensor]) -> list[Tensor]: ...

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]: ...


class Same:
    """Nothing changes."""

    def read(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        return list(theirs)

    write = read


class Transposed:
    """Their `Conv1D` stores a matrix as [in, out], ours is [out, in]."""

    def read(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        return [tensor.mT for tensor in theirs]

    write = read


class Fused:
    """Our matrix is the concatenation of theirs: query, key and value in a single product."""

    def __init__(self, *sections: int) -> None:
        self.sections = sections or (1, 1, 1)

    def read(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        return [torch.cat(list(theirs))]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        return _cut(ours[0], self.sections)


class Divided(Fused):
    """One of their matrices is split, in these fractions, into several of ours."""

    def read(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        return _cut(theirs[0], self.sections)

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        return [torch.cat(list(ours))]


class Offset:
    """Their position table begins with rows that no token of a text uses; ours omits them.

    They are dropped on reading and zero on writing: only padding uses them, and nothing attends to it.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def read(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        return [tensor[self.rows :] for tensor in theirs]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        return [torch.cat((tensor.new_zeros(self.rows, *tensor.shape[1:]), tensor)) for tensor in ours]


class Squeezed:
    """Their tensor has additional axes of length 1 at one position."""

    def __init__(self, axis: int, *, axes: int = 1) -> None:
        self.axis, self.axes = axis, axes

    def read(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        return [tensor.squeeze(tuple(range(self.axis, self.axis + self.axes))) for tensor in theirs]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        return [tensor[(slice(None),) * self.axis + (None,) * self.axes] for tensor in ours]


class Patches:
    """Their convolution over patches is [D, C, p, p], ours a matrix [D, C·p²]; C is 1 (grey) or 3 (colour)."""

    def read(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        return [tensor.flatten(1) for tensor in theirs]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        found = []
        for tensor in ours:
            numbers = tensor.shape[1]
            channels = 1 if math.isqrt(numbers) ** 2 == numbers else 3  # 3·p² is never a square
            side = math.isqrt(numbers // channels)
            found.append(tensor.reshape(len(tensor), channels, side, side))
        return found


class PerHead:
    """Their attention matrices are [D, H, d]: a bias [H, d], then those of q, k, v, W_R and Wᴼ.

    Ours: the bias, and the matrices [D, D] of q, of k and v together, of W_R (sines and cosines alternate), and Wᴼ.
    """

    def read(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        bias, *inwards, outwards = theirs
        q, k, v, r = (tensor.flatten(1).mT for tensor in inwards)
        return [bias, q, torch.cat((k, v)), *SineCosineOrder().read([r]), outwards.flatten(1)]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        bias, q, both, r, outwards = ours
        inwards = (tensor.mT for tensor in (q, *both.chunk(2), *SineCosineOrder().write([r])))
        return [bias, *(tensor.reshape(len(tensor), *bias.shape) for tensor in (*inwards, outwards))]


class WithZeros:
    """They have an unused bias next to the matrix; it is zero on writing."""

    def read(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        return [theirs[0]]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        return [ours[0], ours[0].new_zeros(len(ours[0]))]


class SineCosineOrder:
    """Their position encodings are all sines, then all cosines; ours alternate, so the columns of W_R are permuted."""

    def read(self, theirs: Sequence[Tensor]) -> list[Tensor]:
        return [tensor.view(len(tensor), 2, -1).mT.flatten(1) for tensor in theirs]

    def write(self, ours: Sequence[Tensor]) -> list[Tensor]:
        for tensor in ours:
            if tensor.shape[1] % 2:
                raise ValueError(
                    f"width = {tensor.shape[1]} is odd, and this family has as many sines as cosines: "
                    f"only models of an even width can be written"
                )
        return [tensor.view(len(tensor), -1, 2).mT.flatten(1) for tensor in ours]


def _cut(tensor: Tensor, sections: Sequence[int]) -> list[Tensor]:
    unit = math.ceil(len(tensor) / sum(sections))
    ends = [unit * sum(sections[:i]) for i in range(len(sections))] + [len(tensor)]
    return [tensor[start:end] for start, end in pairwise(ends)]


SAME = Same()
