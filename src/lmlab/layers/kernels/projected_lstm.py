"""The fast twin of `ProjectedLSTMLayer.unroll`: the same equations with their gradients worked out by hand.

torch has no fast kernel for an LSTM with projection on a CPU: its loop adds up the gradients of the weights step by
step, which moves the whole matrices through memory at every time. Here each is one product over all times at the end.
Shapes: B batch, T time, H cells, P width of the projection; tensors inside are time-first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def projected_lstm(
    gates: Tensor, h: Tensor, c: Tensor, U: Tensor, projection: Tensor, *, clip: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """gates [B, T, 4H], what inputs say of i, f, g, o; h [B, P], c [B, H] -> h of all times [B, T, P], last h and c.

    U [4H, P] leads from h to the gates, `projection` [P, H] from the cells to h.
    """
    return _ProjectedLSTM.apply(gates, h, c, U, projection, clip)  # type: ignore[no-untyped-call, no-any-return]


class _ProjectedLSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, h: Tensor, c: Tensor, U: Tensor, projection: Tensor, clip: float | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        a = gates.transpose(0, 1).contiguous()  # [T, B, 4H], each step is overwritten by its gates
        if a.data_ptr() == gates.data_ptr():
            a = a.clone()
        times, batch, cells = len(a), *c.shape
        cs, hs = c.new_empty(times + 1, batch, cells), h.new_empty(times + 1, batch, h.shape[1])
        squashed = torch.empty_like(cs[1:])  # tanh(c)
        cs[0], hs[0] = c, h
        for t in range(times):
            i, f, g, o = a[t].addmm_(hs[t], U.T).chunk(4, dim=-1)
            a[t, :, : 2 * cells].sigmoid_()
            g.tanh_()
            o.sigmoid_()
            torch.mul(f, cs[t], out=cs[t + 1]).addcmul_(i, g)
            if clip is not None:
                cs[t + 1].clamp_(-clip, clip)
            torch.tanh(cs[t + 1], out=squashed[t])
            torch.mm(o * squashed[t], projection.T, out=hs[t + 1])
            if clip is not None:
                hs[t + 1].clamp_(-clip, clip)
        ctx.save_for_backward(a, cs, hs, squashed, U, projection)
        ctx.clip = clip
        return hs[1:].transpose(0, 1), hs[-1].clone(), cs[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor, d_h: Tensor, d_c: Tensor) -> tuple[Tensor | None, ...]:
        a, cs, hs, squashed, U, projection = ctx.saved_tensors
        clip, cells = ctx.clip, cs.shape[-1]
        i, f, g, o = a.chunk(4, dim=-1)
        d_a = torch.cat(  # what the gradients of c (the first three) and of o∘tanh(c) are multiplied by, for all times
            [g * i * (1 - i), cs[:-1] * f * (1 - f), i * (1 - g.square()), squashed * o * (1 - o)], dim=-1
        )
        slope = o * (1 - squashed.square())  # of o∘tanh(c) in c
        d_hs, d_c = d_out.transpose(0, 1).clone(memory_format=torch.contiguous_format), d_c.clone()
        for t in range(len(a) - 1, -1, -1):
            d_hs[t] += d_h
            if clip is not None:
                d_hs[t] *= hs[t + 1].abs() < clip
            through = d_hs[t] @ projection  # to o∘tanh(c)
            d_c.addcmul_(through, slope[t])
            if clip is not None:
                d_c *= cs[t + 1].abs() < clip
            d_a.view(*a.shape[:2], 4, cells)[t, :, :3] *= d_c[:, None]
            d_a[t, :, 3 * cells :] *= through
            d_c *= f[t]
            d_h = d_a[t] @ U
        d_projection = d_hs.flatten(0, 1).T @ (o * squashed).flatten(0, 1)
        d_U = d_a.flatten(0, 1).T @ hs[:-1].flatten(0, 1)
        return d_a.transpose(0, 1), d_h, d_c, d_U, d_projection, None
