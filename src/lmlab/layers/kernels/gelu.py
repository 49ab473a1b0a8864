"""GELU, and as GPT, GPT-2 and CLIP approximate it: the fast twins of the formulas, for a CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

A = 2 * math.sqrt(2 / math.pi)
B = 0.044715 * A
CHUNK = 2**17
"""Elements worked on at a time: few enough for the cache, enough to be worth starting the threads."""


def gelu_tanh(x: Tensor) -> Tensor:
    """x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))), the approximation of GELU that GPT and GPT-2 use.

    The tanh of PyTorch takes several times as long as its sigmoid on a CPU, and (1 + tanh(u/2)) / 2 = σ(u); so learning
    computes x σ(u), u = A x + B x³, instead, and the slope at the same time: the backward pass is one product.
    """
    if not _learns(x, (torch.float32, torch.bfloat16)):
        return F.gelu(x, approximate="tanh")
    if torch.compiler.is_compiling():
        return x * torch.sigmoid((A + B * x * x) * x)
    return cast(Tensor, _GELU.apply(x, _tanh_chunk))  # type: ignore[no-untyped-call]


def gelu(x: Tensor) -> Tensor:
    """x Φ(x) with the distribution function Φ of the normal distribution: GELU as BERT uses it.

    PyTorch's own gradient of it in bf16 is slower than in fp32, so here the slope Φ(x) + x φ(x) is kept, too.
    """
    if not _learns(x, (torch.bfloat16,)) or torch.compiler.is_compiling():
        return F.gelu(x)
    return cast(Tensor, _GELU.apply(x, _exact_chunk))  # type: ignore[no-untyped-call]


def _learns(x: Tensor, dtypes: tuple[torch.dtype, ...]) -> bool:
    return x.device.type == "cpu" and x.dtype in dtypes and x.requires_grad and torch.is_grad_enabled()


class _GELU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, compute: Callable[[Tensor, Tensor, Tensor], None]) -> Tensor:
        """y and dy/dx, a chunk at a time; in fp32 also where x is bf16."""
        x = x.contiguous()
        y, slope = torch.empty_like(x), torch.empty_like(x)
        flat = (x.view(-1), y.view(-1), slope.view(-1))
        for at in range(0, x.numel(), CHUNK):
            x_, y_, slope_ = (part[at : at + CHUNK] for part in flat)
            if x.dtype == torch.float32:
                compute(x_, y_, slope_)
                continue
            wide = x_.float()
            wide_y, wide_slope = torch.empty_like(wide), torch.empty_like(wide)
            compute(wide, wide_y, wide_slope)
            y_.copy_(wide_y)
            slope_.copy_(wide_slope)
        ctx.save_for_backward(slope)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return gradient * slope, None


def _tanh_chunk(x: Tensor, y: Tensor, slope: Tensor) -> None:
    """y = x σ(u) and dy/dx = σ(u) + x u' σ'(u), where x u' = 3u − 2Ax."""
    u = torch.addcmul(torch.tensor(A), x, x, value=B).mul_(x)
    s = torch.sigmoid(u)
    torch.mul(s, x, out=y)
    u.sub_(x, alpha=2 * A / 3)  # x u' / 3
    torch.ops.aten.sigmoid_backward(u, s, grad_input=slope)
    torch.add(s, slope, alpha=3, out=slope)


def _exact_chunk(x: Tensor, y: Tensor, slope: Tensor) -> None:
    """y = x Φ(x) and dy/dx = Φ(x) + x φ(x)."""
    below = torch.erf(x * math.sqrt(0.5)).add_(1).mul_(0.5)
    torch.mul(x, below, out=y)
    torch.mul(x, x, out=slope).mul_(-0.5).exp_().mul_(x).mul_(1 / math.sqrt(2 * math.pi)).add_(below)


QUICK = 1.702


def quick_gelu(x: Tensor) -> Tensor:
    """x σ(1.702 x), the approximation of GELU that CLIP uses (Hendrycks & Gimpel 2016, section 2).

    It is SiLU(1.702 x) / 1.702, and PyTorch has one kernel each for SiLU and its gradient.
    """
    return F.silu(QUICK * x) / QUICK
