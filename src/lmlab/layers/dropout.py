"""Dropout: each element is set to zero with probability p and the others are scaled up (Srivastava et al. 2014)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LANES = 65536
"""A 16-bit lane of a random 64-bit number decides over one element, so p is rounded to a multiple of 1 / LANES."""


def dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """y = x ∘ m / (1 − p) with m ~ Bernoulli(1 − p) per element; the identity when not training or p = 0."""
    if not training or p == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    return x * dropout_mask(x.shape, p, like=x)


def dropout_mask(shape: tuple[int, ...], p: float, *, like: Tensor) -> Tensor:
    """A mask of zeros and 1 / (1 − p), of the type and on the device of `like`, from torch's global generator.

    On a CPU torch draws one number per element in one thread, which takes longer than all the rest of a layer; here
    one 64-bit number decides over four elements. Multiplying by the mask is then all that autograd has to know.
    """
    if not 0 <= p < 1:
        raise ValueError(f"dropout p = {p}: give a probability from 0 up to, but not including, 1")
    if like.device.type != "cpu":
        return F.dropout(torch.ones(shape, dtype=like.dtype, device=like.device), p)
    dropped = min(round(p * LANES), LANES - 1)
    count = torch.Size(shape).numel()
    lanes = _draw((count + 3) // 4).view(torch.int16)[:count]
    kept = lanes >= dropped - LANES // 2
    return kept.view(shape).to(like.dtype).mul_(LANES / (LANES - dropped))


def _draw(count: int) -> Tensor:
    """Random 64-bit numbers."""
    if torch.compiler.is_compiling():  # which would break off at random_
        return torch.randint(-(2**63), 2**63 - 1, (count,))
    return torch.empty(count, dtype=torch.int64).random_(-(2**63), None)


class Dropout(nn.Module):
    """`dropout` as a module: on in training, the identity in evaluation."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout p = {p}: give a probability from 0 up to, but not including, 1")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class VariationalDropout(Dropout):
    """One mask for all times of a sequence [B, T, D]: what is dropped stays dropped (Gal & Ghahramani 2016)."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        return x * dropout_mask((x.shape[0], 1, x.shape[2]), self.p, like=x)
