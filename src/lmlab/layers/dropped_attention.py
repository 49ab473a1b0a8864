"""Attention whose weights are dropped out, for learning on a CPU, where the fused kernel cannot do that well."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lmlab.layers.dropout import dropout_mask

ROWS = 64
"""Queries worked on at a time; causal ones have no keys after them, so about half of the weights are never computed."""


def attend_dropped(q: Tensor, k: Tensor, v: Tensor, *, dropout: float, causal: bool) -> Tensor:
    """(softmax(QKᵀ/√d) ∘ M)V for q, k, v [B, H, T, d], with a dropout mask M; -> [B, H, T, d]."""
    z = _DroppedAttention.apply(*(x.flatten(0, 1) for x in (q, k, v)), dropout, causal)  # type: ignore[no-untyped-call]
    return cast(Tensor, z.view(q.shape))


class _DroppedAttention(torch.autograd.Function):
    """S = QKᵀ/√d, W = softmax(S), Z = (W ∘ M)V; backwards dV = (W ∘ M)ᵀ dZ, dW = (dZ Vᵀ) ∘ M, dQ = dS K, dK = dSᵀ Q."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, dropout: float, causal: bool) -> Tensor:
        length, width = q.shape[1:]
        q = q / math.sqrt(width)
        z = torch.empty_like(v)
        later = torch.ones(ROWS, ROWS, dtype=torch.bool).triu(1)
        kept = []
        for a in range(0, length, ROWS):
            b = min(a + ROWS, length)
            end = b if causal else length
            s = torch.bmm(q[:, a:b], k[:, :end].mT)
            if causal:
                s[:, :, a:].masked_fill_(later[: b - a, : b - a], -math.inf)
            w = s.softmax(-1)
            m = dropout_mask(w.shape, dropout, like=w)
            torch.bmm(torch.mul(w, m, out=s), v[:, :end], out=z[:, a:b])
            kept += [w, m]
        ctx.save_for_backward(q, k, v, *kept)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *kept = ctx.saved_tensors
        length, width = q.shape[1:]
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for i, a in enumerate(range(0, length, ROWS)):
            b = min(a + ROWS, length)
            w, m = kept[2 * i : 2 * i + 2]
            end = w.shape[-1]
            dv[:, :end].baddbmm_((w * m).mT, dz[:, a:b])
            dw = torch.bmm(dz[:, a:b], v[:, :end].mT).mul_(m)
            ds = torch._softmax_backward_data(dw, w, -1, w.dtype)
            torch.bmm(ds, k[:, :end], out=dq[:, a:b])
            dk[:, :end].baddbmm_(ds.mT, q[:, a:b])
        return dq.div_(math.sqrt(width)), dk, dv, None, None
