"""Attention whose weights are dropped out: on a CPU the fast twin of `drop(attention_weights(q, k)) @ v`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lmlab.layers.kernels.dropout_mask import dropout_mask

ROWS = 64
"""Causal queries worked on at a time; they have no keys after them, so half of the weights are never computed."""
TILE = 2**19
"""Weights worked on at a time where all queries see all keys: few enough for the cache."""


def attend_dropped(q: Tensor, k: Tensor, v: Tensor, *, dropout: float, causal: bool) -> Tensor:
    """(softmax(QKᵀ/√d) ∘ M)V for q, k, v [B, H, T, d], with a dropout mask M; -> [B, H, T, d]."""
    z = _DroppedAttention.apply(*(x.flatten(0, 1) for x in (q, k, v)), dropout, causal)  # type: ignore[no-untyped-call]
    return cast(Tensor, z.view(q.shape))


def _tiles(heads: int, length: int, causal: bool) -> Iterator[tuple[slice, slice, slice]]:
    """Heads, queries and keys of the parts that are computed one after the other."""
    if causal:
        for a in range(0, length, ROWS):
            yield slice(None), slice(a, a + ROWS), slice(min(a + ROWS, length))
    else:
        step = max(1, TILE // length**2)
        for a in range(0, heads, step):
            yield slice(a, a + step), slice(None), slice(None)


class _DroppedAttention(torch.autograd.Function):
    """S = QKᵀ/√d, W = softmax(S), P = W ∘ M, Z = PV.

    Backwards dV = Pᵀ dZ, dP = dZ Vᵀ, dS = P ∘ dP − W ∘ rowsum(P ∘ dP), dQ = dS K, dK = dSᵀ Q; and since
    rowsum(P ∘ dP) = rowsum(Z ∘ dZ), neither the mask nor anything else of the size of W is needed again.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, dropout: float, causal: bool) -> Tensor:
        heads, length, width = q.shape
        q = q / math.sqrt(width)
        z = torch.empty_like(v)
        later = torch.ones(ROWS, ROWS, dtype=torch.bool).triu(1)
        kept = []
        for h, i, j in _tiles(heads, length, causal):
            s = torch.bmm(q[h, i], k[h, j].mT)
            if causal:
                own = s.shape[1]
                s[:, :, -own:].masked_fill_(later[:own, :own], -math.inf)
            w = s.softmax(-1)
            p = torch.mul(w, dropout_mask(w.shape, dropout, like=w), out=s)
            torch.bmm(p, v[h, j], out=z[h, i])
            kept += [w, p]
        ctx.causal = causal
        ctx.save_for_backward(q, k, v, z, *kept)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, z, *kept = ctx.saved_tensors
        heads, length, width = q.shape
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        sums = (dz * z).sum(-1, keepdim=True)
        for tile, (h, i, j) in enumerate(_tiles(heads, length, ctx.causal)):
            w, p = kept[2 * tile : 2 * tile + 2]
            dv[h, j].baddbmm_(p.mT, dz[h, i])
            ds = torch.bmm(dz[h, i], v[h, j].mT).mul_(p).addcmul_(w, sums[h, i], value=-1)
            torch.bmm(ds, k[h, j], out=dq[h, i])
            dk[h, j].baddbmm_(ds.mT, q[h, i])
        return dq.div_(math.sqrt(width)), dk, dv, None, None
