"""Locality-sensitive hashing: vectors that point the same way share a bucket (Kitaev et al. 2020, section 2).

A vector x is turned by a random R and takes the number of the axis, or of its opposite, that it then points along most:
h(x) = argmax([xR; −xR]) (Andoni et al. 2015). Shapes: B batch, H heads, T time, R rounds, d width of a head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def rotations_of(seed: int, *, heads: int, width: int, rounds: int, factors: Sequence[int]) -> Tensor:
    """The rotations that belong to a seed, for numbers of buckets with these factors; drawn on a CPU."""
    generator = torch.Generator(device="cpu").manual_seed(seed)
    shape = _shape(heads, width, rounds, factors)
    return torch.randn(shape, generator=generator, dtype=torch.get_default_dtype(), device="cpu")


def fresh_rotations(like: Tensor) -> Tensor:
    """New rotations of the same shape from torch's generator of the CPU, which a checkpoint keeps."""
    return torch.randn(like.shape, dtype=like.dtype, device="cpu").to(like.device)


def _shape(heads: int, width: int, rounds: int, factors: Sequence[int]) -> tuple[int, int, int, int]:
    return heads, width, rounds, sum(factors) // 2


@torch.no_grad()
def hash_vectors(x: Tensor, rotations: Tensor, factors: Sequence[int]) -> Tensor:
    """x [B, H, T, d] and rotations [H, d, R, Σ factors / 2] -> the bucket of each vector in each round [B, H, R, T].

    A large number of buckets is a product of factors: each has its own rotation, so that 64 · 64 buckets take 64 axes
    and not 2048.
    """
    heads, _, rounds, _ = rotations.shape
    buckets = torch.zeros(len(x), heads, rounds, x.shape[2], dtype=torch.long, device=x.device)
    for number in range(rounds):
        turned = x @ rotations[:, :, number]  # [B, H, T, axes]
        place, step = 0, 1
        for factor in factors:
            along = turned[..., place : place + factor // 2]
            high, low = along.max(-1), along.min(-1)
            buckets[:, :, number] += step * torch.where(
                high.values >= -low.values, high.indices, low.indices + factor // 2
            )
            place, step = place + factor // 2, step * factor
    return buckets


def choose_factors(window: int, chunk: int, *, most: int = 128) -> list[int]:
    """The number of buckets so that one holds half a chunk (section 2): 2 · window / chunk, as a power of 2.

    Where that is more than `most`, it is a product of two factors.
    """
    power = max(1, int(math.log2(max(2, 2 * (window // chunk)))))
    if 2**power <= most:
        return [2**power]
    return [2 ** (power // 2), 2 ** (power - power // 2)]


def places_in_buckets(buckets: Tensor, *, counts: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """Where each token stands in its bucket: place = bucket · stride + the tokens that were in the bucket before it.

    buckets [..., T] and counts [..., n], how many each of n buckets has already -> places [..., T] and counts then.
    With a stride above any count, the difference of two places tells whether tokens share a bucket, and how far apart
    they are in it.
    """
    after = counts.scatter_add(-1, buckets, torch.ones_like(buckets))
    if buckets.shape[-1] == 1:
        return buckets * stride + counts.gather(-1, buckets), after
    order = buckets.argsort(dim=-1, stable=True)
    starts = (after - counts).cumsum(-1) - (after - counts)  # where each bucket begins in the sorted order
    every = torch.arange(buckets.shape[-1], device=buckets.device).expand_as(order)
    rank = torch.empty_like(order).scatter_(-1, order, every) - starts.gather(-1, buckets)
    return buckets * stride + counts.gather(-1, buckets) + rank, after
