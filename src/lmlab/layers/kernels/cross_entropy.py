"""The cross-entropy of scores W h + b without keeping the scores: the fast twin of `Softmax.nll(...).sum()`."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lmlab.layers.kernels.training_linear import cast_weight, half_precision, product

CHUNK_ELEMENTS = 2**24
"""About how many scores are held at once by `linear_cross_entropy`: 64 MB in single precision."""
BLOCK_ELEMENTS = 2**20
"""How many scores become probabilities at a time: few enough for the cache."""
CHUNK_ROWS = 256
"""The fewest rows that a chunk has: with fewer, adding up the weight's gradient costs more than the products."""


def linear_cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """Σ_n −log softmax(W h_n + b)_{y_n}, in memory for one chunk of rows.

    The gradient that arrives from above is one number, so the gradients are computed (up to that factor) together
    with the loss, while a chunk's scores are at hand: dL/ds = softmax(s) − onehot(y), dL/dh = dL/ds · W,
    dL/dW = dL/dsᵀ · h. The [N, V] scores are neither kept nor computed twice. Under autocast on a CPU the products are
    those of bf16; softmax, loss and the sums over chunks are fp32.
    """
    wanted = torch.is_grad_enabled() and (
        hidden.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    )
    dtype = half_precision(hidden.device) or hidden.dtype
    return cast(Tensor, _LinearCrossEntropy.apply(hidden, weight, bias, targets, wanted, dtype))  # type: ignore[no-untyped-call]


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        wanted: bool,
        dtype: torch.dtype,
    ) -> Tensor:
        count, vocabulary = len(hidden), len(weight)
        total = hidden.new_zeros((), dtype=torch.promote_types(dtype, torch.float32))
        d_hidden = torch.empty_like(hidden) if wanted else None
        d_weight = torch.empty_like(weight) if wanted and weight.requires_grad else None
        d_bias = torch.zeros_like(bias) if wanted and bias is not None else None
        chunks = max(1, math.ceil(count / chunk_rows(vocabulary)))
        rows = max(1, math.ceil(count / chunks))
        w, b = cast_weight(weight, dtype), None if bias is None else bias.to(dtype)
        for start in range(0, count, rows):
            h = hidden[start : start + rows].to(dtype)
            s = product(h, w, b)
            total += _to_errors(s, targets[start : start + rows, None])
            if d_hidden is None:
                continue
            d_hidden[start : start + rows] = product(s, w.t())
            if d_weight is not None:
                d_w = product(h.t(), s.t()).t()
                d_weight.copy_(d_w) if start == 0 else d_weight.add_(d_w)
            if d_bias is not None:
                d_bias += s.sum(0)
        if d_weight is not None and count == 0:
            d_weight.zero_()
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight, d_bias = (None if d is None else d * upstream for d in ctx.saved_tensors)
        return d_hidden, d_weight, d_bias, None, None, None


def _to_errors(scores: Tensor, targets: Tensor) -> Tensor:
    """Replace scores [N, V] by softmax − onehot in place, a block of rows at a time; return the sum of the losses."""
    total = scores.new_zeros((), dtype=torch.promote_types(scores.dtype, torch.float32))
    rows = max(1, BLOCK_ELEMENTS // scores.shape[1])
    for own, y in zip(torch.split(scores, rows), torch.split(targets, rows), strict=True):
        block = own.to(total.dtype)  # the same memory where the scores are not narrower
        total -= block.gather(1, y).sum()
        largest = block.amax(1)
        torch.softmax(block, 1, out=block)
        total += (largest - block.amax(1).log()).sum()  # log Σ exp(s), since the largest p is exp(max s) / Σ
        block.scatter_add_(1, y, block.new_full((), -1).expand_as(y))
        if block.dtype != own.dtype:
            own.copy_(block)
    return total


def chunk_rows(vocabulary: int) -> int:
    """How many rows of scores are held at once."""
    return max(CHUNK_ROWS, CHUNK_ELEMENTS // vocabulary)
