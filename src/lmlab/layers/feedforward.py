"""The position-wise feed-forward net between attention layers (Vaswani et al. 2017, section 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol, runtime_checkable

import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.layers.kernels.linear import Linear


@runtime_checkable
class HasUnits(Protocol):
    """A part of a network with units behind a nonlinearity, which can be looked at one by one."""

    expands: ClassVar[str]
    """The module in it whose output `units` takes."""

    def units(self, expanded: Tensor) -> Tensor:
        """The units: the outputs of the nonlinearity, which are the inputs of the next matrix."""


class FeedForward(nn.Module):
    """W₂ f(W₁ x + b₁) + b₂ at each position separately."""

    expands: ClassVar[str] = "expand"

    def __init__(self, width: int, inner: int, *, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.expand = Linear(width, inner)
        self.activation = activation
        self.contract = Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.contract(self.units(self.expand(x)))
        return y

    def units(self, expanded: Tensor) -> Tensor:
        return self.activation(expanded)


class GatedFeedForward(nn.Module):
    """SwiGLU: W₃ (SiLU(W₁ x) ∘ W₂ x), without biases (Shazeer 2020, "GLU Variants Improve Transformer", section 2).

    One half of the inner units is a gate for the other; both come from one product, the gate first.
    """

    expands: ClassVar[str] = "expand"

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.expand = Linear(width, 2 * inner, bias=False)
        self.contract = Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.contract(self.units(self.expand(x)))
        return y

    def units(self, expanded: Tensor) -> Tensor:
        gate, up = expanded.chunk(2, -1)
        return F.silu(gate) * up
