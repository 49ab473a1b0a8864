"""Parameter counts: all parameters, and those of embedding tables."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn

from lmlab.layers.positions import LearnedPositions
from lmlab.models.abilities import learns_by_gradient


class Parameters(NamedTuple):
    """The parameter counts of a model."""

    total: int
    embedding: int  # tables of tokens and positions; a softmax that shares such a table is counted here, once

    @property
    def non_embedding(self) -> int:
        """What scaling laws call N (Kaplan et al. 2020, section 2.1)."""
        return self.total - self.embedding


def count_parameters(model: Any) -> Parameters:
    """Count the parameters of a model, each tensor once; those of an n-gram model are the numbers that it stores."""
    if not learns_by_gradient(model):
        return Parameters(int(model.parameters), 0)
    tables = {
        module.weight: module.weight.numel()
        for module in model.modules()
        if isinstance(module, (nn.Embedding, LearnedPositions))
    }
    return Parameters(sum(parameter.numel() for parameter in model.parameters()), sum(tables.values()))
