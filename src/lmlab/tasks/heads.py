"""What is learnt besides the model: a classifier over vectors, and ELMo's mix of layers. Shapes: D width, L layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.layers.dropout import Dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "gelu": F.gelu, "relu": F.relu}


class Classifier(nn.Module):
    """scores = W dropout(x) + b, with x = f(V h + c) where there is an activation f, else x = h."""

    def __init__(
        self,
        width: int,
        classes: int,
        *,
        dropout: float = 0.1,
        activation: str | None = None,
        hidden: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        inner = hidden or width if activation is not None else width
        self.dense = nn.Linear(width, inner) if activation is not None else None
        self.activation = ACTIVATIONS[activation] if activation is not None else None
        self.dropout = Dropout(dropout)
        self.out = nn.Linear(inner, classes, bias=bias)
        for layer in (self.dense, self.out):
            if layer is not None:
                nn.init.normal_(layer.weight, std=0.02 if hidden is None else layer.in_features**-0.5)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """vectors [..., D] -> scores [..., classes]."""
        if self.dense is not None and self.activation is not None:
            vectors = self.activation(self.dense(vectors))
        return cast(Tensor, self.out(self.dropout(vectors)))


class Mix(nn.Module):
    """γ Σ_j softmax(s)_j h_j: a mix of layers that the task learns (Peters et al. 2018, equation 1)."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, layers: Tensor) -> Tensor:
        """layers [..., L, D] -> [..., D]."""
        return self.gamma * (self.shares()[:, None] * layers).sum(-2)

    def shares(self) -> Tensor:
        """What each layer weighs, the embeddings first; they add up to one."""
        return self.scores.softmax(0)


def pool(vectors: Tensor, real: Tensor, how: str) -> Tensor:
    """vectors [B, T, ...] over the places that are real [B, T] -> [B, ...].

    `concat` is the last vector, the largest and the mean of each component side by side (Howard & Ruder 2018).
    """
    if how == "cls":
        return vectors[:, 0]
    mask = real.view(*real.shape, *([1] * (vectors.dim() - 2)))
    count = real.sum(1).clamp(min=1)
    places = torch.arange(real.shape[1], device=real.device)
    last = vectors[torch.arange(len(vectors), device=vectors.device), (places * real).amax(1)]
    if how == "last":
        return last
    largest = vectors.masked_fill(~mask, -torch.inf).amax(1)
    if how == "max":
        return largest
    mean = vectors.masked_fill(~mask, 0).sum(1) / count.view(-1, *([1] * (vectors.dim() - 2)))
    return mean if how == "mean" else torch.cat([last, largest, mean], dim=-1)
