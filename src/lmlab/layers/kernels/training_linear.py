"""The affine map y = W x + b with gradients, on a CPU: the fast twin of `F.linear` in training.

In bf16 the products are bf16 with sums in fp32, and a weight is converted once for each step. In fp32 the products
are those of oneDNN where MKL does not use the widest instructions of the CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.weak import WeakIdKeyDictionary

SMALL = 2**20
"""Multiplications from which on a product is worth a call of oneDNN."""
_CASTS: ContextVar[WeakIdKeyDictionary | None] = ContextVar("casts", default=None)


def half_precision(device: torch.device) -> torch.dtype | None:
    """The data type of products on a CPU under autocast: bf16; None without it and on other devices."""
    if device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        return None
    dtype = torch.get_autocast_dtype("cpu")
    return dtype if dtype == torch.bfloat16 else None


@contextmanager
def cached_casts() -> Iterator[None]:
    """Within this block each parameter is converted to bf16 only once; its values must not change there."""
    token = _CASTS.set(WeakIdKeyDictionary())
    try:
        yield
    finally:
        _CASTS.reset(token)


def cast_weight(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """A weight in another data type, without gradients."""
    weight, casts = weight.detach() if not isinstance(weight, nn.Parameter) else weight, _CASTS.get()
    if casts is None or not isinstance(weight, nn.Parameter):
        return weight.detach().to(dtype)
    if weight not in casts:
        casts[weight] = weight.detach().to(dtype)
    return cast(Tensor, casts[weight])


def linear_with_gradients(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x [..., I], W [O, I], b [O] -> W x + b [..., O]."""
    half = half_precision(x.device)
    if is_plain(x) or (half is None and not (x.dtype == weight.dtype == torch.float32 and uses_onednn())):
        return F.linear(x, weight, bias)
    if half is None and x.numel() * len(weight) < SMALL:
        return F.linear(x, weight, bias)
    return cast(Tensor, _Linear.apply(x, weight, bias, half or torch.float32))  # type: ignore[no-untyped-call]


def is_plain(x: Tensor) -> bool:
    """Whether PyTorch's own operations are needed: on other devices, for torch.compile, and for those who count."""
    return x.device.type != "cpu" or torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0


class _Linear(torch.autograd.Function):
    """y = W x + b, dx = Wᵀ dy, dW = dy xᵀ, db = Σ dy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
        w, shape = cast_weight(weight, dtype), x.shape
        x = x.detach().to(dtype).reshape(-1, shape[-1])
        ctx.save_for_backward(x, w)
        ctx.shape, ctx.has_bias = shape, bias is not None
        return product(x, w, None if bias is None else bias.detach().to(dtype)).view(*shape[:-1], len(w))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        dy = dy.to(x.dtype).reshape(-1, len(w))
        dx = product(dy, w.t()).view(ctx.shape) if ctx.needs_input_grad[0] else None
        dw = product(x.t(), dy.t()).t() if ctx.needs_input_grad[1] else None
        db = dy.sum(0) if ctx.has_bias and ctx.needs_input_grad[2] else None
        return dx, dw, db, None


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [N, I], W [O, I], b [O] -> x Wᵀ + b [N, O], by the faster library."""
    if x.dtype in (torch.float32, torch.bfloat16) and uses_onednn() and x.numel() and not is_plain(x):
        return cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], ""))
    return F.linear(x, weight, bias)


@cache
def uses_onednn() -> bool:
    """Whether oneDNN is faster than MKL in fp32: on CPUs with AVX-512 that are not Intel's, where MKL uses AVX2.

    It depends on the CPU alone, not on a measurement, so a run resumes with the same kernels.
    """
    if not torch.backends.mkldnn.is_available() or "AVX512" not in torch.backends.cpu.get_cpu_capability():  # type: ignore[no-untyped-call]
        return False
    return not _is_intel() and _works()


def _is_intel() -> bool:
    try:
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return True  # unknown: what PyTorch does by default


def _works() -> bool:
    """Whether this PyTorch has the operator, which is not part of what is promised to stay."""
    try:
        eye = torch.eye(8)
        return torch.equal(torch.ops.mkldnn._linear_pointwise(eye, eye.t(), None, "none", [], ""), eye)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
