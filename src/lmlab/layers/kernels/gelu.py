"""GELU as GPT, GPT-2 and CLIP approximate it: the fast twins of the formulas, for a CPU."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

A = 2 * math.sqrt(2 / math.pi)
B = 0.044715 * A
CHUNK = 2**19
"""Elements worked on at a time: few enough for the cache, enough to be worth starting the threads."""


def gelu_tanh(x: Tensor) -> Tensor:
    """x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))), the approximation of GELU that GPT and GPT-2 use.

    The tanh of PyTorch takes several times as long as its sigmoid on a CPU, and (1 + tanh(u/2)) / 2 = σ(u); so learning
    computes x σ(u), u = A x + B x³, instead, and the slope at the same time: the backward pass is one product.
    """
    if x.device.type != "cpu" or x.dtype != torch.float32 or not x.requires_grad or not torch.is_grad_enabled():
        return F.gelu(x, approximate="tanh")
    if torch.compiler.is_compiling():
        return x * torch.sigmoid((A + B * x * x) * x)
    return cast(Tensor, _GELU.apply(x))  # type: ignore[no-untyped-call]


class _GELU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """y = x σ(u) and dy/dx = σ(u) + x u' σ'(u), where x u' = 3u − 2Ax; a chunk at a time."""
        x = x.contiguous()
        y, slope = torch.empty_like(x), torch.empty_like(x)
        a = torch.tensor(A)
        flat = (x.view(-1), y.view(-1), slope.view(-1))
        for at in range(0, x.numel(), CHUNK):
            x_, y_, slope_ = (part[at : at + CHUNK] for part in flat)
            u = torch.addcmul(a, x_, x_, value=B).mul_(x_)
            s = torch.sigmoid(u)
            torch.mul(s, x_, out=y_)
            u.sub_(x_, alpha=2 * A / 3)  # x u' / 3
            torch.ops.aten.sigmoid_backward(u, s, grad_input=slope_)
            torch.add(s, slope_, alpha=3, out=slope_)
        ctx.save_for_backward(slope)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (slope,) = ctx.saved_tensors
        return cast(Tensor, gradient * slope)


QUICK = 1.702


def quick_gelu(x: Tensor) -> Tensor:
    """x σ(1.702 x), the approximation of GELU that CLIP uses (Hendrycks & Gimpel 2016, section 2).

    It is SiLU(1.702 x) / 1.702, and PyTorch has one kernel each for SiLU and its gradient.
    """
    return F.silu(QUICK * x) / QUICK
