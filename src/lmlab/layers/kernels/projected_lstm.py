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
        a = gates.transpose(0, 1).contiguous()  # [T, B, 4H], of which each time is overwritten by its gates
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
        clip = ctx.clip
        d_hs, d_a = d_out.transpose(0, 1).contiguous(), torch.empty_like(a)
        if d_hs.data_ptr() == d_out.data_ptr():
            d_hs = d_hs.clone()
        d_c = d_c.clone()
        for t in range(len(a) - 1, -1, -1):
            i, f, g, o = a[t].chunk(4, dim=-1)
            d_i, d_f, d_g, d_o = d_a[t].chunk(4, dim=-1)
            d_hs[t] += d_h
            if clip is not None:
                d_hs[t] *= hs[t + 1].abs() < clip
            through = d_hs[t] @ projection  # to o∘tanh(c)
            torch.mul(through, squashed[t], out=d_o).mul_(o).mul_(1 - o)
            d_c += through.mul_(o).mul_(1 - squashed[t].square())
            if clip is not None:
                d_c *= cs[t + 1].abs() < clip
            torch.mul(d_c, g, out=d_i).mul_(i).mul_(1 - i)
            torch.mul(d_c, cs[t], out=d_f).mul_(f).mul_(1 - f)
            torch.mul(d_c, i, out=d_g).mul_(1 - g.square())
            d_c *= f
            d_h = d_a[t] @ U
        cells = cs.shape[-1]
        projected = (a[..., 3 * cells :] * squashed).flatten(0, 1)  # [T·B, H]
        d_projection = d_hs.flatten(0, 1).T @ projected
        d_U = d_a.flatten(0, 1).T @ hs[:-1].flatten(0, 1)
        return d_a.transpose(0, 1), d_h, d_c, d_U, d_projection, None
