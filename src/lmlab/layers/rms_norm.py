"""Normalisation by the root mean square: LayerNorm without its mean and its bias (Zhang & Sennrich 2019)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """y = g ∘ x / √(mean(x²) + ε): a vector is scaled, not moved (equation 4)."""

    def __init__(self, width: int, *, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)

    def extra_repr(self) -> str:
        return f"{len(self.weight)}, epsilon={self.epsilon}"
