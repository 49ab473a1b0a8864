"""The loss of a batch as training minimises it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lmlab.objectives.objective import Batch, Loss, weighted_mean


def loss_of(objective: Any, model: Any, batch: Batch, state: Any = None) -> Loss:
    return objective.loss(model, {}, batch, state)


def mean_of(objective: Any, batch: Batch, loss: Loss) -> Tensor:
    return weighted_mean(loss.sums, batch.counts, objective.loss_weights)
