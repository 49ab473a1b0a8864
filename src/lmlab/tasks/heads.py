"""What is learnt besides the model: a classifier over vectors, which may be those of a mix of layers. D width."""

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


def pool(vectors: Tensor, real: Tensor, how: str) -> Tensor:
    """vectors [B, T, ...] over the positions that are real [B, T] -> [B, ...].

    `concat` is the last vector, the largest and the mean of each component side by side (Howard & Ruder 2018).
    """
    if how == "cls":
        return vectors[:, 0]
    mask = real.view(*real.shape, *([1] * (vectors.dim() - 2)))
    count = real.sum(1).clamp(min=1)
    positions = torch.arange(real.shape[1], device=real.device)
    last = vectors[torch.arange(len(vectors), device=vectors.device), (positions * real).amax(1)]
    if how == "last":
        return last
    largest = vectors.masked_fill(~mask, -torch.inf).amax(1)
    if how == "max":
        return largest
    mean = vectors.masked_fill(~mask, 0).sum(1) / count.view(-1, *([1] * (vectors.dim() - 2)))
    return mean if how == "mean" else torch.cat([last, largest, mean], dim=-1)
