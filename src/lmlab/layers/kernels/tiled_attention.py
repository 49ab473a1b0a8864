"""Attention for training on a CPU, some queries at a time: the fast twin of `drop(attention_weights(q, k)) @ v`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lmlab.layers.kernels.dropout_mask import drawn_mask

ROWS = 64
"""Causal queries worked on at a time; they have no keys after them, so half of the weights are never computed."""
TILE = 2**19
"""Weights worked on at a time where all queries see all keys: few enough for the cache."""
KEPT = 2**26
"""Weights, at most, that are kept for the backward pass where nothing is dropped out; PyTorch's kernel keeps none."""

LONG = 256
"""Causal queries from which on this is faster than PyTorch's kernel in fp32."""


def attend_in_tiles(q: Tensor, k: Tensor, v: Tensor, *, dropout: float = 0.0, causal: bool) -> Tensor:
    """(softmax(QKᵀ/√d) ∘ M)V for q, k, v [B, H, T, d], with a dropout mask M; -> [B, H, T, d]."""
    z = _TiledAttention.apply(*(x.flatten(0, 1) for x in (q, k, v)), dropout, causal)  # type: ignore[no-untyped-call]
    return cast(Tensor, z.view(q.shape))


def tiles_are_faster(q: Tensor, *, causal: bool) -> bool:
    """Whether this is faster than PyTorch's kernel for queries [B, H, T, d], without dropout.

    In bf16 always (2 to 4 times), in fp32 where half of the weights are left out; unless they are too many to be kept.
    """
    length = q.shape[-2]
    return q.numel() // q.shape[-1] * length <= KEPT and (q.dtype == torch.bfloat16 or (causal and length >= LONG))


def _tiles(heads: int, length: int, causal: bool) -> Iterator[tuple[slice, slice, slice]]:
    """Heads, queries and keys of the parts that are computed one after the other."""
    if causal:
        for a in range(0, length, ROWS):
            yield slice(None), slice(a, a + ROWS), slice(min(a + ROWS, length))
    else:
        step = max(1, TILE // length**2)
        for a in range(0, heads, step):
            yield slice(a, a + step), slice(None), slice(None)


class _TiledAttention(torch.autograd.Function):
    """S = QKᵀ/√d, W = softmax(S), P = W ∘ M, Z = PV / (1 − p), with a mask M of zeros and ones.

    Backwards, with dZ divided by 1 − p: dV = Pᵀ dZ, dP = dZ Vᵀ, dS = P ∘ dP − W ∘ rowsum(P ∘ dP), dQ = dS K,
    dK = dSᵀ Q; and since rowsum(P ∘ dP) = rowsum(Z ∘ dZ), neither the mask nor anything else of the size of W is
    needed again.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, dropout: float, causal: bool) -> Tensor:
        heads, length, width = q.shape
        q = q / math.sqrt(width)
        z = torch.empty_like(v)
        later = torch.ones(ROWS, ROWS, dtype=torch.bool).triu(1)
        kept, scale = [], 1.0
        for h, i, j in _tiles(heads, length, causal):
            s = torch.bmm(q[h, i], k[h, j].mT)
            if causal:
                own = s.shape[1]
                s[:, :, -own:].masked_fill_(later[:own, :own], -math.inf)
            w = p = s.softmax(-1)
            kept.append(w)
            if dropout:
                mask, scale = drawn_mask(w.shape, dropout)
                p = torch.mul(w, mask, out=s)
                kept.append(p)
            torch.bmm(p, v[h, j], out=z[h, i])
        if dropout:
            z.mul_(scale)
        ctx.causal, ctx.dropout, ctx.scale = causal, dropout, scale
        ctx.save_for_backward(q, k, v, *([z] if dropout else []), *kept)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *kept = ctx.saved_tensors
        heads, length, width = q.shape
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        if ctx.dropout:
            sums = (dz * kept.pop(0)).sum(-1, keepdim=True)
            dz = dz * ctx.scale
        dz = dz.contiguous()
        for tile, (h, i, j) in enumerate(_tiles(heads, length, ctx.causal)):
            ds = torch.bmm(dz[h, i], v[h, j].mT)
            if ctx.dropout:
                w, p = kept[2 * tile : 2 * tile + 2]
                ds.mul_(p).addcmul_(w, sums[h, i], value=-1)
            else:
                w = p = kept[tile]
                ds = torch._softmax_backward_data(ds, w, -1, w.dtype)
            dv[h, j].baddbmm_(p.mT, dz[h, i])
            torch.bmm(ds, k[h, j], out=dq[h, i])
            dk[h, j].baddbmm_(ds.mT, q[h, i])
        return dq.div_(math.sqrt(width)), dk, dv, None, None
