"""The position-wise feed-forward net between attention layers (Vaswani et al. 2017, section 3.3)."""

from __future__ import annotations

from collections.abc import Callable

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
