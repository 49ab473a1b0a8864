"""Attention only to tokens in the same bucket of a locality-sensitive hash (Kitaev et al. 2020, section 2).

Queries and keys are the same vectors, k_j = q_j / |q_j|, so what attends strongly lies close together and mostly shares
a bucket. In each round r of hashing a token i finds P_i⁽ʳ⁾, the `reach` latest tokens of its bucket before it, and

    o_i = Σ_{j ∈ P_i} exp(q_i · k_j − z_i) v_j,   P_i = ∪_r P_i⁽ʳ⁾

A token that several rounds find counts once, as by the N_{i,j} of the paper's appendix A. It does not attend to itself
unless it finds nobody. P_i⁽ʳ⁾ ends after so many tokens of the bucket, not with a chunk of the sorted text: where
chunks end depends on the tokens that follow, so a model of chunks sees a little of its future, and reading token by
token is not reading at once. Both-way, P_i⁽ʳ⁾ are the `reach` tokens of the bucket before and after i.
Shapes: B batch, H heads, T queries, S keys, R rounds, d width of a head.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from lmlab.layers.attention import attend
from lmlab.layers.cache import Slot
from lmlab.layers.hashing import hash_vectors, places_in_buckets
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.kernels.sorted_attention import attend_sorted
from lmlab.layers.watching import is_watched

MASKED = 2**22
"""Pairs of a query and a key for which a mask is made at a time."""


class Hashes:
    """How a pass over a text hashes: the rotations, and the buckets once they are known.

    A layer that is computed a second time, by a reversible backward pass, must not hash anew: rounding could put a
    token into another bucket.
    """

    def __init__(self, rotations: Tensor) -> None:
        self.rotations = rotations  # [H, d, R, Σ factors / 2]
        self.buckets: Tensor | None = None  # [B, H, R, T]


class BucketSlot(NamedTuple):
    """What one layer needs of earlier tokens: their keys and values, and where they stand in their buckets."""

    slot: Slot
    places: Tensor  # [B, H, R, room], written in place
    counts: Tensor  # [B, H, R, n], tokens in each bucket, written in place

    def extend(self, new: Tensor) -> Tensor:
        """The places [B, H, R, T] of the new tokens -> those of all tokens [B, H, R, S]."""
        if self.slot.rows is None:
            self.places.narrow(3, self.slot.start, new.shape[3]).copy_(new)
        else:
            self.places.scatter_(3, self.slot.rows.places[:, None, None].expand_as(new), new)
        return self.places.narrow(3, 0, self.slot.length)


def found(mine: Tensor, theirs: Tensor, *, reach: int, causal: bool = True) -> Tensor:
    """Places [B, H, R, T] of queries and [B, H, R, S] of keys -> [B, H, T, S], True where any round finds the key."""
    seen = torch.zeros(*mine.shape[:2], mine.shape[3], theirs.shape[3], dtype=torch.bool, device=mine.device)
    for a, b in zip(mine.unbind(2), theirs.unbind(2), strict=True):
        between = a[..., :, None] - b[..., None, :]
        if not causal:
            between = between.abs()
        seen |= (between > 0) & (between <= reach)
    return seen


def or_itself(seen: Tensor, first: int) -> Tensor:
    """The mask [B, H, T, S] in which a query that finds nobody, at place `first` + its number, sees itself."""
    alone = ~seen.any(-1)
    seen.diagonal(first, dim1=-2, dim2=-1).logical_or_(alone)
    return seen


def normalise(x: Tensor) -> Tensor:
    """x / |x|, of length √d, because scores are divided by √d again (as in the authors' code)."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class LSHAttention(nn.Module):
    """Attention with one matrix for queries and keys, among the tokens of a bucket; Wᴼ mixes the heads.

    Who watches `probabilities` sees the weights [B, H, T, S], zero where nothing was found.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        head_width: int,
        factors: list[int],
        reach: int,
        stride: int,
        causal: bool = True,
    ) -> None:
        super().__init__()
        self.heads, self.head_width = heads, head_width
        self.factors, self.reach, self.stride, self.causal = factors, reach, stride, causal
        self.buckets = math.prod(factors)
        self.query_key = Linear(width, heads * head_width, bias=False)
        self.value = Linear(width, heads * head_width, bias=False)
        self.projection = Linear(heads * head_width, width, bias=False)
        self.probabilities = nn.Identity()

    def forward(
        self, x: Tensor, hashes: Hashes, slot: BucketSlot | None = None, lengths: Tensor | None = None
    ) -> Tensor:
        """x [B, T, D] -> [B, T, D]; what a row has after its `lengths` is found by nobody, which both-way matters."""
        q, v = self._heads(self.query_key(x)), self._heads(self.value(x))
        if hashes.buckets is None:
            buckets = hash_vectors(q, hashes.rotations, self.factors)
            hashes.buckets = buckets.to(torch.int16 if self.buckets < 2**15 else torch.int32)
        buckets = hashes.buckets.long()
        if lengths is not None:
            real = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
            buckets = buckets.masked_fill(~real[:, None, None], self.buckets)
        if slot is None:
            counts = buckets.new_zeros(*buckets.shape[:3], self.buckets + 1)
            places, _ = places_in_buckets(buckets, counts=counts, stride=self.stride)
            return self._mix(self._attend_fresh(q, v, places))
        places, counts = places_in_buckets(buckets, counts=slot.counts, stride=self.stride)
        slot.counts.copy_(counts)
        all_places = slot.extend(places)
        k_all, v_all = slot.slot.extend(torch.stack((normalise(q), v), 2)).unbind(2)
        if slot.slot.start == 0 and slot.slot.rows is None:
            return self._mix(self._attend_fresh(q, v, places))
        rows = max(1, MASKED // (q.shape[0] * self.heads * slot.slot.length))
        parts = [
            self._attend_on(q[:, :, a : a + rows], k_all, v_all, places[..., a : a + rows], all_places, slot.slot, a)
            for a in range(0, q.shape[2], rows)
        ]
        return self._mix(torch.cat(parts, 2))

    def sorts(self, length: int, rounds: int) -> bool:
        """Whether sorting takes less work than a mask over all pairs of `length` tokens."""
        return length > 2 * rounds * self.reach

    def keys(self, length: int, rounds: int) -> float:
        """How many keys a query meets, found or not: all, or two chunks in each round where the text is sorted."""
        if not self.sorts(length, rounds):
            return length
        return 2 * rounds * self.reach * self.reach * (1 + -(-length // self.reach)) / length

    def work(self, length: int, rounds: int) -> list[tuple[float, float]]:
        """FLOPs per token of attention and of hashing, and how many times training in a reversible layer takes these.

        The layer is computed twice, and the gradients take two products for each; a text that is sorted has its scores
        computed once more. Buckets are kept.
        """
        inside = self.heads * self.head_width
        attention = 4.0 * inside * self.keys(length, rounds)
        return [(attention, 4.5 if self.sorts(length, rounds) else 4.0), (inside * rounds * sum(self.factors), 1.0)]

    def _attend_fresh(self, q: Tensor, v: Tensor, places: Tensor) -> Tensor:
        """Texts that are read from their beginning."""
        watch = self.probabilities if is_watched(self.probabilities) else None
        if watch is None and self.sorts(q.shape[2], places.shape[2]):
            bound = self.stride * (self.buckets + 1)
            apart = q.transpose(1, 2), v.transpose(1, 2)  # as they lie in memory
            return attend_sorted(*apart, places, reach=self.reach, bound=bound, causal=self.causal).transpose(1, 2)
        seen = or_itself(found(places, places, reach=self.reach, causal=self.causal), 0)
        return attend(q, normalise(q), v, mask=seen, watch=watch)

    def _attend_on(
        self, q: Tensor, k: Tensor, v: Tensor, mine: Tensor, theirs: Tensor, slot: Slot, first: int
    ) -> Tensor:
        """Some of the new tokens, from number `first` on, of texts that were read before."""
        watch = self.probabilities if is_watched(self.probabilities) else None
        seen = found(mine, theirs, reach=self.reach)
        if slot.rows is None:
            return attend(q, k, v, mask=or_itself(seen, slot.start + first), watch=watch)
        part = slice(first, first + q.shape[2])
        seen &= slot.rows.mask[:, :, part]
        itself = torch.arange(k.shape[2], device=k.device) == slot.rows.places[:, None, part, None]
        return attend(q, k, v, mask=seen | (itself & ~seen.any(-1, keepdim=True)), watch=watch)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, self.head_width).transpose(1, 2)

    def _mix(self, z: Tensor) -> Tensor:
        return cast(Tensor, self.projection(z.transpose(1, 2).flatten(2)))
