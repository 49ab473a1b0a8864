"""ELMo's mix: one vector from all layers of a model, with weights that whoever reads them learns. L layers, D width."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lmlab.layers.dropout import Dropout


class Mix(nn.Module):
    """γ Σ_j softmax(s)_j h_j (Peters et al. 2018, equation 1).

    With `norm` each h_j is normalised first, over its own components: the authors took mean and variance over a whole
    batch, by which a sentence would have other vectors in other company. Dropout is on the mix. `penalty` is Σ s_j²,
    which a task adds to its loss with a weight λ (section 3.3 there): the larger λ, the nearer is the mix to a mean.
    """

    def __init__(self, layers: int, *, norm: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))
        self.dropout = Dropout(dropout)
        self.norm = norm

    def forward(self, layers: Tensor) -> Tensor:
        """layers [..., L, D] -> [..., D]."""
        if self.norm:
            layers = F.layer_norm(layers, layers.shape[-1:])
        mixed: Tensor = self.dropout(self.gamma * (self.shares()[:, None] * layers).sum(-2))
        return mixed

    def shares(self) -> Tensor:
        """What each layer weighs, the embeddings first; they add up to one."""
        return self.scores.softmax(0)

    def penalty(self) -> Tensor:
        """Σ_j s_j²."""
        return self.scores.square().sum()


def side_by_side(layers: Sequence[Tensor]) -> Tensor:
    """[B, T, D] of each layer -> [B, T, L, D], to be mixed; a ValueError where they are not equally wide."""
    widths = [layer.shape[-1] for layer in layers]
    if len(set(widths)) > 1:
        raise ValueError(
            f"layers of widths {', '.join(map(str, widths))} (embeddings first) cannot be mixed: read the last one, or "
            "take a model whose layers are equally wide (train it with model.hidden = model.width)"
        )
    return torch.stack(list(layers), dim=-2)
