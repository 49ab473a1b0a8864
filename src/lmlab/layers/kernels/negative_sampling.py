"""The loss of skip-gram and CBOW with its gradients: on a CPU the fast twin of `pair_losses` and autograd.

Shapes: B rows, T words, K draws that a row shares, D width.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from lmlab.layers.kernels.training_linear import half_precision


def negative_sampling(
    centres: Tensor, others: Tensor, centre: Tensor, other: Tensor, near: Tensor, *, weight: float, cbow: bool
) -> Tensor:
    """The loss of all pairs, a number.

    `centres` and `others` are vectors [U, D] of different words, `centre` [B, T] and `other` [B, T + K] the places in
    them; `near` [B, T, T] is 1 where a word is a neighbour of the centre, and `weight` that of each draw. Under
    autocast the products are those of bf16.
    """
    dtype = half_precision(centres.device) or centres.dtype
    return cast(Tensor, _NegativeSampling.apply(dtype, centres, others, centre, other, near, weight, cbow))  # type: ignore[no-untyped-call]


class _NegativeSampling(torch.autograd.Function):
    """With a weight w and score s, L = Σ w log(1 + e^∓s) has the slope ∓w σ(∓s): computed with the loss."""

    @staticmethod
    def forward(
        ctx: Any,
        dtype: torch.dtype,
        centres: Tensor,
        others: Tensor,
        centre: Tensor,
        other: Tensor,
        near: Tensor,
        weight: float,
        cbow: bool,
    ) -> Tensor:
        batch, time = centre.shape
        v = centres.index_select(0, centre.flatten()).view(batch, time, -1)
        u = others.index_select(0, other.flatten()).view(batch, other.shape[1], -1)
        count = near.sum(-1, keepdim=True)
        if cbow:
            mean = (near / count.clamp(min=1)).to(dtype)
            h = _product(mean, v, dtype)
            right, drawn = u[:, :time], u[:, time:]
            any_near = count.clamp(max=1)
            loss, slope = _slopes((h * right).sum(-1, keepdim=True), any_near, sign=-1)
            more, slopes = _slopes(_product(h, drawn.mT, dtype), any_near * weight, sign=1)
            dv = _product(mean.mT, _product(slopes, drawn, dtype).addcmul_(slope, right), dtype)
            du = torch.cat((slope * h, _product(slopes.mT, h, dtype)), 1)
        else:
            scores = _product(v, u.mT, dtype)
            loss, slope = _slopes(scores[..., :time], near, sign=-1)
            more, slopes = _slopes(scores[..., time:], count * weight, sign=1)
            both = torch.cat((slope, slopes), -1)
            dv, du = _product(both, u, dtype), _product(both.mT, v, dtype)
        d_centres = torch.zeros_like(centres).index_add_(0, centre.flatten(), dv.flatten(0, 1))
        d_others = torch.zeros_like(others).index_add_(0, other.flatten(), du.flatten(0, 1))
        ctx.save_for_backward(d_centres, d_others)
        return loss + more

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        d_centres, d_others = ctx.saved_tensors
        return None, d_centres * upstream, d_others * upstream, None, None, None, None, None


def _product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """The product of two batches of matrices in this type, in fp32 or wider afterwards."""
    return torch.bmm(a.to(dtype), b.to(dtype)).to(torch.promote_types(dtype, torch.float32))


def _slopes(scores: Tensor, weights: Tensor, *, sign: int) -> tuple[Tensor, Tensor]:
    """Σ w log(1 + exp(± s)) and its slope in s, ± w σ(± s)."""
    signed = scores * sign
    slopes = torch.sigmoid(signed).mul_(weights).mul_(sign)
    return F.softplus(signed).mul_(weights).sum(), slopes
