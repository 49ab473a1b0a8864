"""Attention among the tokens of a bucket by sorting: the fast twin of a mask over all pairs (`found` and `attend`).

In the order of their buckets, and of time within a bucket, the tokens that a token finds are next to it. So the sorted
text is cut into chunks of `reach` tokens, each attends to itself and to the chunk before it, and no more than a few
chunks' scores are held at once. Shapes: B batch, H heads, T time, R rounds, d width of a head.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

TILE = 2**18
"""Scores worked on at a time: few enough for the cache."""


def attend_sorted(q: Tensor, v: Tensor, positions: Tensor, *, reach: int, bound: int) -> Tensor:
    """q, v [B, T, H, d] and positions [B, H, R, T] below `bound` (see `positions_in_buckets`) -> [B, T, H, d].

    Σ_{j ∈ P_i} softmax(q_i · k_j / √d) v_j with k = `normalise(q)`, where P_i is what any round finds, and i alone
    where that is nobody. What is narrower than 32 bits is widened, since sums over rounds would lose too much.
    """
    wide, device = torch.promote_types(q.dtype, torch.float32), q.device.type
    with torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext():
        z = _SortedAttention.apply(q.to(wide), v.to(wide), positions, reach, bound)  # type: ignore[no-untyped-call]
    return cast(Tensor, z).to(v.dtype)


class _Round(NamedTuple):
    """One round: all texts in the order of their buckets on one line, each with a chunk of padding before it."""

    spots: Tensor  # [B · T · H], position of each vector on the line
    rows: Tensor  # [line], which vector is there; B · T · H where it is padding
    positions: list[Tensor]  # [line], of this round and of those before it
    reach: int

    def sort(self, flat: Tensor) -> Tensor:
        """[B · T · H, d] -> [line, d]."""
        return flat.new_zeros(len(self.rows), flat.shape[1]).index_copy_(0, self.spots, flat)

    def unsort(self, line: Tensor) -> Tensor:
        """[line, d] -> [B · T · H, d]."""
        return line.index_select(0, self.spots)

    def own(self, line: Tensor) -> Tensor:
        """The chunks [C, reach, ...] of a line, but the padding at its start, as a view."""
        return line[self.reach :].view(-1, self.reach, *line.shape[1:])

    def near(self, line: Tensor) -> Tensor:
        """The same chunks with the one before each, [C, wide, ...], as a view."""
        wide = 2 * self.reach
        chunks = (len(line) - wide) // self.reach + 1
        return line.as_strided((chunks, wide, *line.shape[1:]), (self.reach * line.stride(0), *line.stride()))

    def tiles(self) -> Iterator[slice]:
        """Which chunks to work on together."""
        near = self.near(self.positions[0])
        some = max(1, TILE // (self.reach * near.shape[1]))
        for start in range(0, len(near), some):
            yield slice(start, min(start + some, len(near)))

    def hidden(self, part: slice) -> Tensor:
        """[chunks, reach, wide], True where a pair is not found in this round, or was found in one before it."""
        hidden: Tensor | None = None
        for positions in self.positions:
            between = self.own(positions)[part, :, None] - self.near(positions)[part, None, :]
            if hidden is None:
                hidden = (between < 1).logical_or_(between > self.reach)
            else:
                hidden.logical_or_((between > 0).logical_and_(between <= self.reach))
        assert hidden is not None
        return hidden


def _rounds(positions: Tensor, *, reach: int, bound: int) -> Iterator[_Round]:
    batch, heads, rounds, length = positions.shape
    room = reach * (1 + -(-length // reach))
    line = batch * heads * room
    far = bound + reach  # padding is near nobody
    if 2 * far < 2**31:
        positions = positions.int()
    starts = torch.arange(batch * heads, device=positions.device).view(batch, heads, 1) * room + reach
    every = torch.arange(length, device=positions.device).expand(batch, heads, length)
    vectors = torch.arange(batch * length * heads, device=positions.device)
    for number in range(rounds):
        order = positions[:, :, number].argsort(
            dim=-1
        )  # the positions of a round differ, so this is the order in time too
        at = torch.empty_like(order).scatter_(2, order, every) + starts  # [B, H, T]
        spots = at.transpose(1, 2).flatten()
        lines = [
            positions.new_full((line,), -far).index_copy_(0, at.flatten(), positions[:, :, each].flatten())
            for each in (number, *range(number))
        ]
        yield _Round(spots, spots.new_full((line,), len(vectors)).index_copy_(0, spots, vectors), lines, reach)


class _SortedAttention(torch.autograd.Function):
    """With Z_i = log Σ_r Σ_j exp(s_ij) over all rounds, and p_ij = exp(s_ij − Z_i), recomputed in the backward pass:

    ds_ij = p_ij (dz_i · v_j − dz_i · z_i),
    dq_i = Σ_j ds_ij k_j / √d,  dk_j = Σ_i ds_ij q_i / √d,  dv_j = Σ_i p_ij dz_i;
    and k = q r with r = 1 / √(|q|²/d + ε), so that dq has also r dk − q (q · dk) r³ / d.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, v: Tensor, positions: Tensor, reach: int, bound: int) -> Tensor:
        shape, width = q.shape, q.shape[-1]
        q, v = q.reshape(-1, width), v.reshape(-1, width)
        r = _shrink(q)
        z = q.new_zeros(len(q) + 1, width)  # a last one is for the padding
        total = q.new_full((len(q) + 1,), -math.inf)  # Z
        for each in _rounds(positions, reach=reach, bound=bound):
            line = each.sort(q)
            queries, keys, values = each.own(line), each.near(line), each.near(each.sort(v))
            scales, rows = each.near(each.sort(r)[:, 0] / math.sqrt(width)), each.own(each.rows)
            for part in each.tiles():
                scores = torch.bmm(queries[part], keys[part].mT).mul_(scales[part, None])
                scores.masked_fill_(each.hidden(part), -math.inf)
                highest = scores.amax(-1, keepdim=True).clamp_(min=torch.finfo(scores.dtype).min)
                weights = scores.sub_(highest).exp_()
                count = weights.sum(-1, keepdim=True)
                means = torch.bmm(weights, values[part]).div_(count.clamp(min=torch.finfo(count.dtype).tiny))
                _merge(z, total, rows[part].flatten(), means.flatten(0, 1), highest.add_(count.log_()).flatten())
            del line, queries, keys, values
        z, total = z[:-1], total[:-1]
        alone = total.isinf()[:, None].to(v.dtype)  # 1 where z is 0 yet
        z.addcmul_(v, alone)
        total.masked_fill_(total.isinf(), 0)
        ctx.reach, ctx.bound = reach, bound
        ctx.save_for_backward(q, v, positions, z, total, alone)
        return z.view(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
        q, v, positions, z, total, alone = ctx.saved_tensors
        shape, width = dz.shape, dz.shape[-1]
        dz = dz.reshape(-1, width)
        r = _shrink(q)
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(q), torch.zeros_like(v)
        dv.addcmul_(dz, alone)
        sums = (dz * z).sum(-1, keepdim=True)
        for each in _rounds(positions, reach=ctx.reach, bound=ctx.bound):
            line = each.sort(q)
            queries, keys, values = each.own(line), each.near(line), each.near(each.sort(v))
            scales = each.near(each.sort(r)[:, 0] / math.sqrt(width))
            given, inner, totals = (each.own(each.sort(x)) for x in (dz, sums, total[:, None]))
            lines = [q.new_zeros(len(each.rows), width) for _ in range(3)]
            for part in each.tiles():
                scores = torch.bmm(queries[part], keys[part].mT).mul_(scales[part, None])
                p = scores.masked_fill_(each.hidden(part), -math.inf).sub_(totals[part]).exp_()
                ds = torch.bmm(given[part], values[part].mT).sub_(inner[part]).mul_(p)
                _add_near(each, lines[1], part, torch.bmm(ds.mT, queries[part]).div_(math.sqrt(width)))
                _add_near(each, lines[2], part, torch.bmm(p.mT, given[part]))
                torch.bmm(ds.mul_(scales[part, None]), keys[part], out=each.own(lines[0])[part])
            for gradient, each_line in zip((dq, dk, dv), lines, strict=True):
                gradient += each.unsort(each_line)
        dq += r * dk - q * ((q * dk).sum(-1, keepdim=True) * r**3 / width)
        return dq.view(shape), dv.view(shape), None, None, None


def _shrink(q: Tensor) -> Tensor:
    """r of each vector, [N, 1]."""
    length: Tensor = torch.linalg.vector_norm(q, dim=-1, keepdim=True)
    return length.square_().div_(q.shape[-1]).add_(1e-6).rsqrt_()


def _merge(z: Tensor, total: Tensor, rows: Tensor, means: Tensor, logs: Tensor) -> None:
    """Add a round's means and logsumexps of some rows to those of earlier rounds, weighted by their logsumexps."""
    before = total.index_select(0, rows)
    both = torch.logaddexp(before, logs)
    safe = both.masked_fill(both.isinf(), 0)
    mixed = z.index_select(0, rows).mul_((before - safe).exp_()[:, None]).addcmul_(means, (logs - safe).exp_()[:, None])
    z.index_copy_(0, rows, mixed)
    total.index_copy_(0, rows, both)


def _add_near(each: _Round, line: Tensor, part: slice, values: Tensor) -> None:
    """Add values [chunks, wide, d] of some chunks with their neighbours to a line."""
    for number, piece in enumerate(torch.split(values, each.reach, 1)):
        start = (part.start + number) * each.reach
        line[start : start + len(values) * each.reach].view_as(piece).add_(piece)
