"""Which layers learn, and how fast: all alike, lower ones more slowly, or one after another from the top.

Howard & Ruder 2018 (ULMFiT), sections 3.2 and 3.3: discriminative rates, where each layer learns 2.6 times as slowly as
the one above it, and gradual unfreezing, where the lower ones join later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from torch import nn

from lmlab.models.model import Model
from lmlab.training.settings import TrainConfig


class Strategy(Protocol):
    """A pure function of the step, so that resuming needs nothing else."""

    def scales(self, step: int, depths: int) -> Sequence[float]:
        """What the learning rate of each of `depths` layers, embeddings first, is multiplied by; 0 is frozen."""


class Layerwise:
    """Each layer learns at `decay` times the rate of the one above; after every `unfreeze` steps one more learns."""

    def __init__(self, *, decay: float = 1.0, unfreeze: int | None = None) -> None:
        self.decay, self.unfreeze = decay, unfreeze

    def scales(self, step: int, depths: int) -> list[float]:
        learning = depths if self.unfreeze is None else min(depths, 1 + step // self.unfreeze)
        below_top = range(depths - 1, -1, -1)
        return [self.decay**below if below < learning else 0.0 for below in below_top]


def choose_strategy(config: TrainConfig) -> Strategy | None:
    """What the settings ask for; None where all weights learn alike, which needs no groups by layer."""
    if config.layer_decay == 1.0 and config.unfreeze is None:
        return None
    return Layerwise(decay=config.layer_decay, unfreeze=config.unfreeze)


def by_layer(model: Model, heads: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    """The parameters in the layers that a strategy tells apart, embeddings first.

    On top is all that predicts: the heads of a task together with the output layer, which a task does not use; without
    a task the output layer alone, and an embedding that is tied to it is there, too.
    """
    heads = list(heads)
    embeddings, *blocks, top = model.task_depths() if heads else model.depths()
    if not heads:
        names = Counter(parameter for _, parameter in model.named_parameters(remove_duplicate=False))
        top = [*top, *(parameter for parameter in embeddings if names[parameter] > 1)]
        embeddings = [parameter for parameter in embeddings if names[parameter] == 1]
    return [layer for layer in (embeddings, *blocks, [*top, *heads]) if layer]
