"""What training runs: a model together with what it learns."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from lmlab.models.abilities import State
from lmlab.models.model import Model
from lmlab.models.states import detach_state
from lmlab.objectives.objective import Batch, Loss, Objective


class Learner(nn.Module):
    """A model with an objective and its heads: the one module that training runs, compiles or distributes."""

    def __init__(self, model: Model, objective: Objective, heads: Mapping[str, nn.Module] | None = None) -> None:
        super().__init__()
        self.model = model
        self.heads = nn.ModuleDict(dict(heads or {}))
        self.objective = objective

    @property
    def device(self) -> torch.device:
        return self.model.device

    def forward(self, batch: Batch, state: State = None) -> Loss:
        """The loss of a batch, and the state after it with its history cut."""
        loss = self.objective.loss(self.model, self.heads, batch, state)  # type: ignore[arg-type]
        return loss._replace(state=detach_state(loss.state))
