"""Attention only to tokens in the same bucket of a locality-sensitive hash (Kitaev et al. 2020, section 2).

Queries and keys are the same vectors, k_j = q_j / |q_j|, so what attends strongly lies close together and mostly shares
a bucket. In each round r of hashing a token i finds P_i⁽ʳ⁾, the `reach` latest tokens of its bucket before it, and

    o_i = Σ_{j ∈ P_i} exp(q_i · k_j − z_i) v_j,   P_i = ∪_r P_i⁽ʳ⁾

A token that several rounds find counts once, as by the N_{i,j} of the paper's appendix A. It does not attend to itself
unless it finds no other. P_i⁽ʳ⁾ ends after `reach` tokens of the bucket, not with a chunk of the sorted text: where
chunks end depends on the tokens that follow, so a model of chunks sees a little of its future, and reading token by
token is not reading at once.

The hash (Andoni et al. 2015): a vector x is turned by a random R and gets the number of the axis, or of its opposite,
that it then points along most, h(x) = argmax([xR; −xR]). `ChunkedLSHAttention` is what the released models compute.
Shapes: B batch, H heads, T queries, S keys, R rounds, d width of a head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.layers.attention.multi_head import attend, causal_mask
from lmlab.layers.cache import LayerCache
from lmlab.layers.kernels.linear import Linear
from lmlab.layers.kernels.sorted_attention import attend_sorted
from lmlab.layers.watching import is_watched


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
        position, step = 0, 1
        for factor in factors:
            along = turned[..., position : position + factor // 2]
            high, low = along.max(-1), along.min(-1)
            buckets[:, :, number] += step * torch.where(
                high.values >= -low.values, high.indices, low.indices + factor // 2
            )
            position, step = position + factor // 2, step * factor
    return buckets


def choose_factors(window: int, chunk: int, *, most: int = 128) -> list[int]:
    """The number of buckets so that one holds half a chunk (section 2): 2 · window / chunk, as a power of 2.

    Where that is more than `most`, it is a product of two factors.
    """
    power = max(1, int(math.log2(max(2, 2 * (window // chunk)))))
    if 2**power <= most:
        return [2**power]
    return [2 ** (power // 2), 2 ** (power - power // 2)]


def positions_in_buckets(buckets: Tensor, *, counts: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """Return the position of each token: bucket · stride + the number of earlier tokens in the bucket.

    buckets [..., T] and counts [..., n], how many each of n buckets has already -> positions [..., T] and counts then.
    With a stride above any count, the difference of two positions shows whether two tokens share a bucket, and how far
    apart they are in it.
    """
    after = counts.scatter_add(-1, buckets, torch.ones_like(buckets))
    if buckets.shape[-1] == 1:
        return buckets * stride + counts.gather(-1, buckets), after
    order = buckets.argsort(dim=-1, stable=True)
    starts = (after - counts).cumsum(-1) - (after - counts)  # where each bucket begins in the sorted order
    every = torch.arange(buckets.shape[-1], device=buckets.device).expand_as(order)
    rank = torch.empty_like(order).scatter_(-1, order, every) - starts.gather(-1, buckets)
    return buckets * stride + counts.gather(-1, buckets) + rank, after


MASKED = 2**22
"""Pairs of a query and a key for which a mask is made at a time."""


class Hashes:
    """How a pass over a text hashes: the rotations, and the buckets once they are known.

    A layer that is computed a second time, by a reversible backward pass, must not hash again: rounding could put a
    token into another bucket.
    """

    def __init__(self, rotations: Tensor) -> None:
        self.rotations = rotations  # [H, d, R, Σ factors / 2]
        self.buckets: Tensor | None = None  # [B, H, R, T]


class BucketCache(NamedTuple):
    """What one layer needs of earlier tokens: their keys and values, and their positions in the buckets."""

    layer: LayerCache
    positions: Tensor  # [B, H, R, room], written in place
    counts: Tensor  # [B, H, R, n], tokens in each bucket, written in place

    def extend(self, new: Tensor) -> Tensor:
        """The positions [B, H, R, T] of the new tokens -> those of all tokens [B, H, R, S]."""
        if self.layer.rows is None:
            self.positions.narrow(3, self.layer.start, new.shape[3]).copy_(new)
        else:
            self.positions.scatter_(3, self.layer.rows.positions[:, None, None].expand_as(new), new)
        return self.positions.narrow(3, 0, self.layer.length)


class Known(NamedTuple):
    """The keys and values of all tokens up to now [B, H, S, d], and their positions in their buckets."""

    keys: Tensor
    values: Tensor
    positions: Tensor  # [B, H, R, S]


def bucket_mask(queries: Tensor, keys: Tensor, *, reach: int) -> Tensor:
    """Places [B, H, R, T] of queries and [B, H, R, S] of keys -> [B, H, T, S], True where any round finds the key."""
    mask = torch.zeros(*queries.shape[:2], queries.shape[3], keys.shape[3], dtype=torch.bool, device=queries.device)
    for query, key in zip(queries.unbind(2), keys.unbind(2), strict=True):
        distance = query[..., :, None] - key[..., None, :]
        mask |= (distance > 0) & (distance <= reach)
    return mask


def or_itself(mask: Tensor, first: int) -> Tensor:
    """The mask [B, H, T, S] in which query i attends to itself, key `first` + i, if it finds no other key."""
    finds_none = ~mask.any(-1)
    mask.diagonal(first, dim1=-2, dim2=-1).logical_or_(finds_none)
    return mask


def normalise(x: Tensor) -> Tensor:
    """x / |x|, of length √d, because scores are divided by √d again (as in the authors' code)."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class LSHAttention(nn.Module):
    """Attention with one matrix for queries and keys, among the tokens of a bucket; Wᴼ mixes the heads.

    Watching `probabilities` gives the weights [B, H, T, S], zero where nothing was found.
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
    ) -> None:
        super().__init__()
        self.heads, self.head_width = heads, head_width
        self.factors, self.reach, self.stride = factors, reach, stride
        self.buckets = math.prod(factors)
        self.query_key = Linear(width, heads * head_width, bias=False)
        self.value = Linear(width, heads * head_width, bias=False)
        self.projection = Linear(heads * head_width, width, bias=False)
        self.probabilities = nn.Identity()

    def forward(self, x: Tensor, hashes: Hashes, cache: BucketCache | None = None) -> Tensor:
        """x [B, T, D] -> [B, T, D]; `cache` holds the tokens before x."""
        q, v = self._heads(self.query_key(x)), self._heads(self.value(x))
        if hashes.buckets is None:
            buckets = hash_vectors(q, hashes.rotations, self.factors)
            hashes.buckets = buckets.to(torch.int16 if self.buckets < 2**15 else torch.int32)
        buckets = hashes.buckets.long()
        if cache is None:
            counts = buckets.new_zeros(*buckets.shape[:3], self.buckets + 1)
            positions, _ = positions_in_buckets(buckets, counts=counts, stride=self.stride)
            return self._mix(self._attend_fresh(q, v, positions))
        positions, counts = positions_in_buckets(buckets, counts=cache.counts, stride=self.stride)
        cache.counts.copy_(counts)
        all_positions = cache.extend(positions)
        keys, values = cache.layer.extend(torch.stack((normalise(q), v), 2)).unbind(2)
        known = Known(keys, values, all_positions)
        if cache.layer.start == 0 and cache.layer.rows is None:
            return self._mix(self._attend_fresh(q, v, positions))
        rows = max(1, MASKED // (q.shape[0] * self.heads * cache.layer.length))
        parts = [
            self._attend_cached(
                q[:, :, i : i + rows], positions[..., i : i + rows], known, layer_cache=cache.layer, first=i
            )
            for i in range(0, q.shape[2], rows)
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

    def flops_by_part(self, length: int, rounds: int) -> list[tuple[float, float]]:
        """FLOPs per token of attention and of hashing, and how many times training in a reversible layer takes these.

        The layer is computed twice, and the gradients take two products for each; a text that is sorted has its scores
        computed once more. Buckets are kept.
        """
        inside = self.heads * self.head_width
        attention = 4.0 * inside * self.keys(length, rounds)
        return [(attention, 4.5 if self.sorts(length, rounds) else 4.0), (inside * rounds * sum(self.factors), 1.0)]

    def _attend_fresh(self, q: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        """Texts that are read from their beginning."""
        watch = self.probabilities if is_watched(self.probabilities) else None
        if watch is None and self.sorts(q.shape[2], positions.shape[2]):
            bound = self.stride * (self.buckets + 1)
            apart = q.transpose(1, 2), v.transpose(1, 2)  # as they lie in memory
            return attend_sorted(*apart, positions, reach=self.reach, bound=bound).transpose(1, 2)
        mask = or_itself(bucket_mask(positions, positions, reach=self.reach), 0)
        return attend(q, normalise(q), v, mask=mask, watch=watch)

    def _attend_cached(
        self, q: Tensor, positions: Tensor, known: Known, *, layer_cache: LayerCache, first: int
    ) -> Tensor:
        """Attention of some of the new tokens, from number `first` on, of texts that were read before."""
        watch = self.probabilities if is_watched(self.probabilities) else None
        mask = bucket_mask(positions, known.positions, reach=self.reach)
        if layer_cache.rows is None:
            mask = or_itself(mask, layer_cache.start + first)
        else:
            part = slice(first, first + q.shape[2])
            mask &= layer_cache.rows.mask[:, :, part]
            itself = (
                torch.arange(known.keys.shape[2], device=q.device) == layer_cache.rows.positions[:, None, part, None]
            )
            mask |= itself & ~mask.any(-1, keepdim=True)
        return attend(q, known.keys, known.values, mask=mask, watch=watch)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, self.head_width).transpose(1, 2)

    def _mix(self, z: Tensor) -> Tensor:
        return cast(Tensor, self.projection(z.transpose(1, 2).flatten(2)))


class ChunkedLSHAttention(LSHAttention):
    """LSH attention to whole chunks of the sorted text, as the authors' released models and `transformers` compute it.

    A token attends to all of its own chunk of `reach` tokens and of the one before it, whatever their buckets; what
    several rounds find counts several times; the first chunk of a round looks back at the last one of the round before.
    Which tokens share a chunk depends on the whole text, so predictions depend a little on what follows. A text is
    padded to a multiple of `multiple`, and a short one is not hashed.
    """

    multiple: int
    least: int
    """Texts of at most this length are not padded."""

    def forward(self, x: Tensor, hashes: Hashes, cache: BucketCache | None = None) -> Tensor:
        assert cache is None
        q, v = self._heads(self.query_key(x)), self._heads(self.value(x))
        length = x.shape[1]
        room = self.padded(length)
        watch = self.probabilities if is_watched(self.probabilities) else None
        if room <= self.reach:
            mask = causal_mask(length, length, device=x.device).logical_xor(torch.eye(length, device=x.device).bool())
            mask[0, 0] = True
            return self._mix(attend(q, normalise(q), v, mask=mask, watch=watch))
        if hashes.buckets is None:
            hashes.buckets = hash_vectors(q, hashes.rotations, self.factors).int()
        buckets = F.pad(hashes.buckets.long(), (0, room - length), value=self.buckets)
        q, v = (F.pad(part, (0, 0, 0, room - length)) for part in (q, v))
        z = attend_chunks(q, normalise(q), v, buckets, chunk=self.reach, watch=watch)
        return self._mix(z[:, :, :length])

    def padded(self, length: int) -> int:
        """How many positions a text of this length takes."""
        return length if length <= self.least else -(-length // self.multiple) * self.multiple

    def keys(self, length: int, rounds: int) -> float:
        room = self.padded(length)
        return length if room <= self.reach else 2 * rounds * self.reach * room / length

    def sorts(self, length: int, rounds: int) -> bool:
        return False  # autograd keeps the scores


def attend_chunks(
    q: Tensor, k: Tensor, v: Tensor, buckets: Tensor, *, chunk: int, watch: nn.Module | None = None
) -> Tensor:
    """q, k, v [B, H, T, d] and buckets [B, H, R, T] -> [B, H, T, d]; rounds are weighted by their logsumexp."""
    rounds, length, width = buckets.shape[2], *q.shape[2:]
    order = buckets.argsort(dim=-1, stable=True)  # [B, H, R, T]
    back = order.argsort(-1)  # where each token of a round went
    index = order.flatten(2)[..., None].expand(-1, -1, -1, width)
    queries, keys, values = (torch.unflatten(x.gather(2, index), 2, (-1, chunk)) for x in (q, k, v))  # [B, H, C, m, d]
    mine = torch.unflatten(order.flatten(2), 2, (-1, chunk))
    theirs = _with_previous(mine)
    scores = queries @ _with_previous(keys).mT / math.sqrt(width)  # [B, H, C, m, 2m]
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))  # what is hidden is too small for 16 bits
    between = mine[..., None] - theirs[..., None, :]
    scores = scores.masked_fill(between < 0, -1e9).masked_fill(between == 0, -1e5)
    sums = scores.logsumexp(-1, keepdim=True)
    weights = (scores - sums).exp().to(v.dtype)
    round_weights = torch.unflatten(sums.flatten(2), 2, (rounds, length)).gather(3, back).softmax(2)  # [B, H, R, T]
    round_weights = round_weights.to(v.dtype)
    if watch is not None:
        sorted_weights = torch.unflatten(round_weights.gather(3, order).flatten(2), 2, (-1, chunk))
        pairs = mine[..., None] * length + theirs[..., None, :]
        full = weights.new_zeros(*q.shape[:2], length * length)
        full.scatter_add_(2, pairs.flatten(2), (weights * sorted_weights[..., None]).flatten(2))
        return cast(Tensor, watch(full.view(*q.shape[:2], length, length)) @ v)
    z = torch.unflatten((weights @ _with_previous(values)).flatten(2, 3), 2, (rounds, length))
    z = z.gather(3, back[..., None].expand(-1, -1, -1, -1, width))
    return (z * round_weights[..., None]).sum(2)


def _with_previous(x: Tensor) -> Tensor:
    """[B, H, C, m, ...] -> [B, H, C, 2m, ...], each chunk after the one before it; before the first is the last."""
    return torch.cat((x.roll(1, 2), x), 3)
