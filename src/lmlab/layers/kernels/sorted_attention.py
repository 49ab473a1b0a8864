"""Attention among the tokens of a bucket by sorting: the fast twin of a mask over all pairs (`found` and `attend`).

In the order of their buckets, and of time within a bucket, what a token may find stands next to it. So the sorted text
is cut into chunks of `reach` tokens, each attends to itself and to the chunk before it (both-way: and after it), and no
more than a few chunks' scores are held at once. Shapes: N = B · H texts, T time, R rounds, d width of a head.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

TILE = 2**18
"""Scores worked on at a time: few enough for the cache."""


def attend_sorted(q: Tensor, k: Tensor, v: Tensor, places: Tensor, *, reach: int, bound: int, causal: bool) -> Tensor:
    """q, k, v [B, H, T, d] and places [B, H, R, T] below `bound` (see `places_in_buckets`) -> [B, H, T, d].

    Σ_{j ∈ P_i} softmax(q_i · k_j / √d) v_j, where P_i is what any round finds, and i alone where that is nobody.
    """
    flat = (x.flatten(0, 1) for x in (q, k, v))
    z = _SortedAttention.apply(*flat, places.flatten(0, 1), reach, bound, causal)  # type: ignore[no-untyped-call]
    return cast(Tensor, z.view(q.shape))


class _Round(NamedTuple):
    """One round: all texts in the order of their buckets on one line, each with a chunk of padding before it."""

    spots: Tensor  # [N · T], where on the line each token stands, text by text
    places: list[Tensor]  # [line], of this round and of those before it
    reach: int
    causal: bool

    def sort(self, x: Tensor) -> Tensor:
        """[N, T, d] -> [line, d]."""
        flat = x.reshape(-1, x.shape[-1])
        return flat.new_zeros(len(self.places[0]), flat.shape[1]).index_copy_(0, self.spots, flat)

    def unsort(self, line: Tensor) -> Tensor:
        """[line, d] -> [N · T, d]."""
        return line.index_select(0, self.spots)

    def own(self, line: Tensor) -> Tensor:
        """The chunks [C, reach, ...] of a line, but the padding at its ends, as a view."""
        end = len(line) if self.causal else len(line) - self.reach
        return line[self.reach : end].view(-1, self.reach, *line.shape[1:])

    def near(self, line: Tensor) -> Tensor:
        """The same chunks with the one before (both-way: and after) each, [C, wide, ...], as a view."""
        wide = self.reach * (2 if self.causal else 3)
        chunks = (len(line) - wide) // self.reach + 1
        return line.as_strided((chunks, wide, *line.shape[1:]), (self.reach * line.stride(0), *line.stride()))

    def tiles(self) -> Iterator[slice]:
        """Which chunks to work on together."""
        near = self.near(self.places[0])
        some = max(1, TILE // (self.reach * near.shape[1]))
        for start in range(0, len(near), some):
            yield slice(start, min(start + some, len(near)))

    def hidden(self, part: slice) -> Tensor:
        """[chunks, reach, wide], True where a pair is not found in this round, or was found in one before it."""
        hidden: Tensor | None = None
        for places in self.places:
            between = self.own(places)[part, :, None] - self.near(places)[part, None, :]
            if not self.causal:
                between.abs_()
            if hidden is None:
                hidden = (between < 1).logical_or_(between > self.reach)
            else:
                hidden.logical_or_((between > 0).logical_and_(between <= self.reach))
        assert hidden is not None
        return hidden


def _rounds(places: Tensor, *, reach: int, bound: int, causal: bool) -> Iterator[_Round]:
    rows, rounds, length = places.shape
    room = reach * (1 + -(-length // reach))
    line = rows * room + (0 if causal else reach)
    far = bound + reach  # padding is near nobody
    if 2 * far < 2**31:
        places = places.int()
    starts = torch.arange(rows, device=places.device)[:, None] * room + reach
    every = torch.arange(length, device=places.device).expand(rows, length)
    for number in range(rounds):
        order = places[:, number].argsort(dim=-1)  # the places of a round differ, so this is the order in time too
        index = (torch.empty_like(order).scatter_(1, order, every) + starts).flatten()
        lines = [
            places.new_full((line,), -far).index_copy_(0, index, places[:, each].flatten())
            for each in (number, *range(number))
        ]
        yield _Round(index, lines, reach, causal)


class _SortedAttention(torch.autograd.Function):
    """With Z_i = log Σ_r Σ_j exp(s_ij) over all rounds, and p_ij = exp(s_ij − Z_i), computed anew in the backward pass:

    ds_ij = p_ij (dz_i · v_j − dz_i · z_i),
    dq_i = Σ_j ds_ij k_j / √d,  dk_j = Σ_i ds_ij q_i / √d,  dv_j = Σ_i p_ij dz_i.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, places: Tensor, reach: int, bound: int, causal: bool
    ) -> Tensor:
        scale = 1 / math.sqrt(q.shape[-1])
        z = torch.zeros_like(v)
        total = q.new_full(q.shape[:2], -math.inf)  # Z
        for each in _rounds(places, reach=reach, bound=bound, causal=causal):
            queries, keys, values = each.own(each.sort(q)), each.near(each.sort(k)), each.near(each.sort(v))
            out, sums = q.new_empty(len(each.places[0]), q.shape[2]), q.new_empty(len(each.places[0]), 1)
            means, logs = each.own(out), each.own(sums)
            for part in each.tiles():
                scores = torch.bmm(queries[part], keys[part].mT).mul_(scale)
                scores.masked_fill_(each.hidden(part), -math.inf)
                highest = scores.amax(-1, keepdim=True).clamp_(min=torch.finfo(scores.dtype).min)
                weights = scores.sub_(highest).exp_()
                count = weights.sum(-1, keepdim=True)
                torch.bmm(weights, values[part], out=means[part])
                means[part].div_(count.clamp(min=torch.finfo(count.dtype).tiny))
                torch.add(highest, count.log_(), out=logs[part])
            _merge(z, total, each.unsort(out).view_as(z), each.unsort(sums).view_as(total))
        alone = total.isinf()
        z = torch.where(alone[..., None], v, z)
        total = total.masked_fill(alone, 0)
        ctx.reach, ctx.bound, ctx.causal = reach, bound, causal
        ctx.save_for_backward(q, k, v, places, z, total, alone)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, places, z, total, alone = ctx.saved_tensors
        scale = 1 / math.sqrt(q.shape[-1])
        dq, dk = torch.zeros_like(q), torch.zeros_like(k)
        dv = torch.where(alone[..., None], dz, 0.0)
        sums = (dz * z).sum(-1, keepdim=True)
        for each in _rounds(places, reach=ctx.reach, bound=ctx.bound, causal=ctx.causal):
            queries, keys, values = each.own(each.sort(q)), each.near(each.sort(k)), each.near(each.sort(v))
            given, inner, totals = (each.own(each.sort(x)) for x in (dz, sums, total[..., None]))
            lines = [q.new_zeros(len(each.places[0]), q.shape[2]) for _ in range(3)]
            for part in each.tiles():
                scores = torch.bmm(queries[part], keys[part].mT).mul_(scale)
                p = scores.masked_fill_(each.hidden(part), -math.inf).sub_(totals[part]).exp_()
                ds = torch.bmm(given[part], values[part].mT).sub_(inner[part]).mul_(p).mul_(scale)
                torch.bmm(ds, keys[part], out=each.own(lines[0])[part])
                _add_near(each, lines[1], part, torch.bmm(ds.mT, queries[part]))
                _add_near(each, lines[2], part, torch.bmm(p.mT, given[part]))
            for gradient, line in zip((dq, dk, dv), lines, strict=True):
                gradient += each.unsort(line).view_as(gradient)
        return dq, dk, dv, None, None, None, None


def _merge(z: Tensor, total: Tensor, new: Tensor, logs: Tensor) -> None:
    """Put a round's means and logsumexps to those of the rounds before, which weigh by theirs."""
    both = torch.logaddexp(total, logs)
    safe = both.masked_fill(both.isinf(), 0)
    z.mul_((total - safe).exp_()[..., None]).addcmul_(new, (logs - safe).exp_()[..., None])
    total.copy_(both)


def _add_near(each: _Round, line: Tensor, part: slice, values: Tensor) -> None:
    """Add values [chunks, wide, d] of some chunks with their neighbours to a line."""
    for number, piece in enumerate(torch.split(values, each.reach, 1)):
        start = (part.start + number) * each.reach
        line[start : start + len(values) * each.reach].view_as(piece).add_(piece)
