"""The position-wise feed-forward net between attention layers (Vaswani et al. 2017, section 3.3)."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.layers.kernels.linear import Linear


class FeedForward(nn.Module):
    """W₂ f(W₁ x + b₁) + b₂ at each position by itself."""

    def __init__(self, width: int, inner: int, *, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.expand = Linear(width, inner)
        self.activation = activation
        self.contract = Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.contract(self.activation(self.expand(x)))
        return y


class GatedFeedForward(nn.Module):
    """SwiGLU: W₃ (SiLU(W₁ x) ∘ W₂ x), without biases (Shazeer 2020, "GLU Variants Improve Transformer", section 2).

    One half of the inner units is a gate for the other; both come from one product, the gate first.
    """

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.expand = Linear(width, 2 * inner, bias=False)
        self.contract = Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.expand(x).chunk(2, -1)
        y: Tensor = self.contract(F.silu(gate) * up)
        return y
