"""What an objective is: it makes blanks in raw tokens, and asks the model to fill them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from lmlab.models.model import Model, State


class Batch(NamedTuple):
    """What the model reads, and what it should say."""

    inputs: dict[str, Tensor]
    targets: Tensor


@dataclass(frozen=True)
class Loss:
    """A sum of nats and the number of predictions in it, so that means are taken once, at the end."""

    total: Tensor
    count: int


class Objective(Protocol):
    """One pre-training variant; it knows no model."""

    def batch(self, raw: Tensor) -> Batch:
        """Inputs and targets from raw tokens."""

    def loss(self, model: Model, batch: Batch, state: State = None) -> tuple[Loss, State]:
        """The loss of a model on a batch, and the state after it."""
