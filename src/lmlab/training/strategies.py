"""Which layers learn, and how fast: all alike, lower ones more slowly, or one after another from the top.

Howard & Ruder 2018 (ULMFiT), sections 3.2 and 3.3: discriminative rates, where each layer learns 2.6 times as slowly as
the one above it, and gradual unfreezing, where the lower ones join later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

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
