"""What a locality-sensitive hash does to vectors: how often near ones share a bucket, and the buckets of a circle."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from lmlab.layers.attention.lsh import hash_vectors, rotations_of


def share_buckets(
    degrees: Sequence[float], *, width: int, buckets: int, rounds: int = 1, pairs: int = 2000, seed: int = 0
) -> list[float]:
    """For each angle, the fraction of pairs of random vectors so far apart that any of the rounds puts together."""
    _check(degrees, width=width, buckets=buckets, rounds=rounds)
    generator = torch.Generator().manual_seed(seed)
    found = []
    for number, angle in enumerate(degrees):
        x, other = torch.randn(2, pairs, width, generator=generator)
        x = x / x.norm(dim=-1, keepdim=True)
        across = other - (other * x).sum(-1, keepdim=True) * x  # at right angles to x
        across = across / across.norm(dim=-1, keepdim=True)
        y = math.cos(math.radians(angle)) * x + math.sin(math.radians(angle)) * across
        together = torch.zeros(pairs, dtype=torch.bool)
        size = {"heads": 1, "width": width, "factors": [buckets]}
        for start in range(0, pairs, 20):  # new rotations for every few pairs
            rotations = rotations_of(seed + 1000 * number + start + 1, rounds=rounds, **size)  # type: ignore[arg-type]
            some = torch.stack((x[start : start + 20], y[start : start + 20]))[:, None]  # [2, 1, 20, d]
            first, second = hash_vectors(some, rotations, [buckets])[:, 0]  # [R, 20]
            together[start : start + 20] = (first == second).any(0)
        found.append(together.double().mean().item())
    return found


def circle_buckets(*, rounds: int, buckets: int, seed: int = 0, steps: int = 360) -> list[list[int]]:
    """The bucket of each of `steps` directions of a plane, in each round: the sphere of the Reformer's figure 1."""
    _check([0.0], width=2, buckets=buckets, rounds=rounds)
    angles = torch.arange(steps) * (2 * math.pi / steps)
    directions = torch.stack((angles.cos(), angles.sin()), -1)
    rotations = rotations_of(seed, heads=1, width=2, rounds=rounds, factors=[buckets])
    found: list[list[int]] = hash_vectors(directions[None, None], rotations, [buckets])[0, 0].tolist()
    return found


def _check(degrees: Sequence[float], *, width: int, buckets: int, rounds: int) -> None:
    if buckets < 2 or buckets % 2:
        raise ValueError(f"buckets = {buckets}: give an even number, since each bucket has an opposite")
    if width < 2 or rounds < 1:
        raise ValueError(f"width = {width}, rounds = {rounds}: give a width of at least 2 and at least one round")
    if any(not 0 <= angle <= 180 for angle in degrees):
        raise ValueError(f"degrees = {list(degrees)}: angles between two vectors are from 0 to 180 degrees")
