"""Dropout: each element is set to zero with probability p and the others are scaled up (Srivastava et al. 2014)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.layers.kernels.dropout_mask import check_probability, dropout_mask


def dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """y = x ∘ m / (1 − p) with m ~ Bernoulli(1 − p) per element; the identity when not training or p = 0."""
    if not training or p == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    return x * dropout_mask(x.shape, p, like=x)


class Dropout(nn.Module):
    """`dropout` as a module: on in training, the identity in evaluation."""

    def __init__(self, p: float) -> None:
        super().__init__()
        check_probability(p)
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
