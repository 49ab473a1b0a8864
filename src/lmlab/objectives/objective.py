"""What an objective is: it makes blanks in raw tokens, and asks the model to fill them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from lmlab.config import Config
from lmlab.data.batches.loaders import Loader
from lmlab.models.abilities import State
from lmlab.models.model import Model
from lmlab.tokenizers import Tokenizer

IGNORE = -100
"""The target where nothing is predicted."""


class Batch(NamedTuple):
    """What the model reads, and what it should say."""

    inputs: dict[str, Tensor]  # the arguments of the model's forward
    targets: Tensor
    places: Tensor | None = None  # [B, K] the positions of the targets, where not every position has one
    labels: Mapping[str, Tensor] = {}  # what further terms of the loss should say
    tokens: int = 0  # read in this batch, padding left out; what a budget in tokens counts

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        return self._replace(
            inputs={name: value.to(device) for name, value in self.inputs.items()},
            targets=self.targets.to(device),
            places=None if self.places is None else self.places.to(device),
            labels={name: value.to(device) for name, value in self.labels.items()},
        )


@dataclass(frozen=True)
class Term:
    """A further part of a loss, such as next sentence prediction, with its own count and weight."""

    total: Tensor
    count: int
    weight: float = 1.0


@dataclass(frozen=True)
class Loss:
    """A sum of nats and the number of predictions in it, so that means are taken once, at the end."""

    total: Tensor
    count: int
    terms: Mapping[str, Term] = field(default_factory=dict)
    measures: Mapping[str, tuple[Tensor, int]] = field(default_factory=dict)
    """What is worth watching besides, each as a sum and a count: `accuracy`, `pair_accuracy` …"""

    @property
    def mean(self) -> Tensor:
        """What is minimised: the mean of the main term and the weighted means of the others."""
        mean = self.total / max(1, self.count)
        for term in self.terms.values():
            mean = mean + term.weight * term.total / max(1, term.count)
        return mean


class Objective(Protocol):
    """One pre-training variant; it knows the tokenizer and the text, but no model."""

    Config: ClassVar[type[Config]]
    roles: tuple[str, ...]
    """The special tokens that it needs: of `pad`, `cls`, `sep`, `mask`."""
    likelihood: bool
    """Whether the loss is that of the text itself, token by token, so that bits per byte can be told from it."""

    def __init__(self, config: Any, tokenizer: Tokenizer) -> None: ...

    def loader(self, data: Any, *, batch: int, window: int, seed: int, streams: bool) -> Loader:
        """Numbered batches of raw material from a split; batch k is a pure function of these settings and k."""

    def batch(self, raw: Any, generator: np.random.Generator) -> Batch:
        """Inputs and targets from raw material, on the CPU; runs ahead of training, in another thread."""

    def loss(self, model: Any, batch: Batch, state: State = None) -> tuple[Loss, State]:
        """The loss of a model on a batch, and the state after it."""

    def flops(self, model: Model, loader: Loader) -> float:
        """Floating-point operations of the forward pass over one batch."""
