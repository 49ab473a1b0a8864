"""What training runs: a model together with what it learns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

from lmlab.data.loaders.loader import Loader
from lmlab.models.abilities import PredictsNext, State
from lmlab.models.model import Model
from lmlab.models.states import detach_state
from lmlab.objectives.objective import Batch, Loss, NotAdditive, Objective
from lmlab.training.schedule import by_layer


class Learner(nn.Module):
    """A model with an objective and its heads: the module that is trained, compiled and distributed.

    Its forward pass is the only way into the model during a step, so that wrappers such as DDP see every call.
    """

    def __init__(self, model: Model, objective: Objective, heads: Mapping[str, nn.Module] | None = None) -> None:
        super().__init__()
        self.model = model
        self.heads = nn.ModuleDict(dict(heads or {}))
        self.objective = objective

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def stateful(self) -> bool:
        """Whether the model keeps a state from one batch to the next."""
        return self.model.stateful

    def forward(self, batch: Batch, state: State = None) -> Loss:
        """The loss of a batch, and the state after it, detached."""
        loss = self.objective.loss(self.model, dict(self.heads.items()), batch, state)
        return loss._replace(state=detach_state(loss.state))

    def start_state(self, batch_size: int) -> State:
        """The initial state; None if the model keeps none."""
        return cast(PredictsNext, self.model).start(batch_size) if self.stateful else None

    def parameters_by_layer(self) -> list[list[nn.Parameter]]:
        """The parameters of each layer, embeddings first, heads on top."""
        return by_layer(self.model, self.heads.parameters())

    def step_flops(self, loader: Loader) -> float:
        """Floating-point operations of the forward and backward pass over one batch of a loader, on average."""
        return self.objective.step_flops(self.model, dict(self.heads.items()), loader)


class MicroBatchEmbedder(nn.Module):
    """A learner whose loss is not additive, as a module that gives the vectors of a micro-batch."""

    def __init__(self, learner: Learner, objective: NotAdditive) -> None:
        super().__init__()
        self.learner, self.objective = learner, objective

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return self.objective.embed(self.learner.model, dict(self.learner.heads.items()), batch)
