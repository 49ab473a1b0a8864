"""LSH attention to whole chunks of the sorted text, as the authors' released models and `transformers` compute it.

Against the equations (lsh_attention.py): a token attends to all of its own chunk and of the one before it, whatever
their buckets; what several rounds find counts several times; the first chunk of a round looks back at the last one of
the round before. Which tokens share a chunk depends on the whole text, so predictions depend a little on what follows.
Shapes: B batch, H heads, T time, R rounds, C chunks of m tokens, d width of a head.
"""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.layers.attention import attend, causal_mask
from lmlab.layers.hashing import hash_vectors
from lmlab.layers.lsh_attention import BucketSlot, Hashes, LSHAttention, normalise
from lmlab.layers.watching import is_watched


class ChunkedLSHAttention(LSHAttention):
    """By chunks of `reach` tokens; a text is padded to a multiple of `multiple`, and a short one is not hashed."""

    multiple: int
    least: int
    """Texts of at most so many tokens are not padded."""

    def forward(
        self, x: Tensor, hashes: Hashes, slot: BucketSlot | None = None, lengths: Tensor | None = None
    ) -> Tensor:
        assert slot is None
        assert lengths is None
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
        """How many places a text of this length takes."""
        return length if length <= self.least else -(-length // self.multiple) * self.multiple

    def keys(self, length: int, rounds: int) -> float:
        room = self.padded(length)
        return length if room <= self.reach else 2 * rounds * self.reach * room / length

    def sorts(self, length: int, rounds: int) -> bool:
        return False  # autograd keeps the scores


def attend_chunks(
    q: Tensor, k: Tensor, v: Tensor, buckets: Tensor, *, chunk: int, watch: nn.Module | None = None
) -> Tensor:
    """q, k, v [B, H, T, d] and buckets [B, H, R, T] -> [B, H, T, d]; rounds weigh by their logsumexp."""
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
    shares = torch.unflatten(sums.flatten(2), 2, (rounds, length)).gather(3, back).softmax(2)  # [B, H, R, T]
    shares = shares.to(v.dtype)
    if watch is not None:
        sorted_shares = torch.unflatten(shares.gather(3, order).flatten(2), 2, (-1, chunk))
        pairs = mine[..., None] * length + theirs[..., None, :]
        full = weights.new_zeros(*q.shape[:2], length * length)
        full.scatter_add_(2, pairs.flatten(2), (weights * sorted_shares[..., None]).flatten(2))
        return cast(Tensor, watch(full.view(*q.shape[:2], length, length)) @ v)
    z = torch.unflatten((weights @ _with_previous(values)).flatten(2, 3), 2, (rounds, length))
    z = z.gather(3, back[..., None].expand(-1, -1, -1, -1, width))
    return (z * shares[..., None]).sum(2)


def _with_previous(x: Tensor) -> Tensor:
    """[B, H, C, m, ...] -> [B, H, C, 2m, ...], each chunk after the one before it; before the first is the last."""
    return torch.cat((x.roll(1, 2), x), 3)
