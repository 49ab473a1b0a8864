"""The affine map y = W x + b, laid out for the number of vectors that it maps."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FEW = 32
"""At most so many vectors are multiplied as W xᵀ instead of x Wᵀ."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., I], W [O, I], b [O] -> W x + b [..., O]; quicker than the usual order for a few vectors on a CPU.

    Reading one token at a time, the time goes into streaming W from memory. The product W xᵀ goes through its rows in
    both threads, where x Wᵀ of some rows first repacks W, and of one row runs in a single thread (MKL's sgemv).
    Learning keeps the usual order: its gradients are then laid out as the optimizer wants them.
    """
    rows = x.numel() // x.shape[-1]
    if rows > FEW or torch.is_grad_enabled() or x.device.type != "cpu" or x.dtype != torch.float32:
        return F.linear(x, weight, bias)
    if rows == 1:
        return F.linear(x, weight, bias)
    flat = x.reshape(rows, -1)
    y = torch.mm(weight, flat.t()) if bias is None else torch.addmm(bias[:, None], weight, flat.t())
    return y.t().reshape(*x.shape[:-1], -1)


class Linear(nn.Linear):
    """`linear` as a module."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)
