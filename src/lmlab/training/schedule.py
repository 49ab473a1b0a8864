"""Learning rates: the schedule over the steps of a run, and the strategy for the layers of a model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from torch import nn

from lmlab.models.model import Model
from lmlab.training.settings import TrainConfig

LONGEST_WARMUP = 0.1
"""The fraction of the budget that warm-up may take, so that short runs reach their full rate too."""
SLANTED_CUT, SLANTED_RATIO = 0.1, 32.0
"""Of the slanted triangle: the fraction of the steps in which the rate rises, and the peak over the lowest rate."""


def learning_rate(config: TrainConfig, *, step: int, progress: float, plateau: float = 1.0, epoch: int = 0) -> float:
    """The rate for step `step` of `epoch` (both from 0), with `progress` (0 to 1) of the budget spent.

    inverse-sqrt is the Transformer's (Vaswani et al. 2017, equation 3), scaled so that the peak is `rate`. plateau
    multiplies by a factor whenever validation stops improving, as for the PTB LSTMs. step_decay multiplies in every
    epoch after the first ones (Zaremba et al. 2014). slanted rises and falls along two straight lines (Howard & Ruder
    2018, equation 3) and needs no warm-up. Warm-up takes at most a tenth of the budget.
    """
    if config.schedule == "slanted":
        return config.rate * (1 + slant(min(progress, 1.0)) * (SLANTED_RATIO - 1)) / SLANTED_RATIO
    warm = max((step + 1) / config.warmup, progress / LONGEST_WARMUP) if config.warmup else 2.0
    if warm <= 1:
        return config.rate * warm
    linear = config.floor + (1 - config.floor) * (1 - min(progress, 1.0))
    cosine = config.floor + (1 - config.floor) * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
    factor = {
        "constant": 1.0,
        "cosine": cosine,
        "linear": linear,
        "inverse-sqrt": math.sqrt(max(config.warmup, 1) / (step + 1)),
        "plateau": plateau,
        "step_decay": config.step_decay_factor ** max(0, epoch + 1 - config.step_decay_epochs),
    }
    return config.rate * min(1.0, factor[config.schedule])


def slant(progress: float) -> float:
    """The height of the slanted triangle, 0 to 1, with `progress` of the budget spent: p of equation 3."""
    if progress < SLANTED_CUT:
        return progress / SLANTED_CUT
    return 1 - (progress - SLANTED_CUT) / (1 - SLANTED_CUT)


class Strategy(Protocol):
    """Which layers learn, and how fast: a pure function of the step, so that resuming needs nothing else."""

    def scales(self, step: int, depths: int) -> Sequence[float]:
        """What the rate of each of `depths` layers is multiplied by, embeddings first; 0 freezes a layer."""


class Layerwise:
    """Discriminative rates and gradual unfreezing (ULMFiT: Howard & Ruder 2018, sections 3.2 and 3.3).

    Each layer learns at `decay` times the rate of the one above it. Every `unfreeze` steps one more layer learns, from
    the top down.
    """

    def __init__(self, *, decay: float = 1.0, unfreeze: int | None = None) -> None:
        self.decay, self.unfreeze = decay, unfreeze

    def scales(self, step: int, depths: int) -> list[float]:
        learning = depths if self.unfreeze is None else min(depths, 1 + step // self.unfreeze)
        below_top = range(depths - 1, -1, -1)
        return [self.decay**below if below < learning else 0.0 for below in below_top]


def choose_strategy(config: TrainConfig) -> Strategy | None:
    """The strategy of the settings; None if all layers learn at the same rate, which needs no groups by layer."""
    if config.layer_decay == 1.0 and config.unfreeze is None:
        return None
    return Layerwise(decay=config.layer_decay, unfreeze=config.unfreeze)


def by_layer(model: Model, heads: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    """The parameters of each layer that a strategy distinguishes, embeddings first.

    The top layer is everything that predicts: the heads of a task with the output layer, which a task does not use;
    without a task the output layer, including an embedding that is tied to it.
    """
    heads = list(heads)
    embeddings, *blocks, top = model.task_depths() if heads else model.depths()
    if not heads:
        names = Counter(parameter for _, parameter in model.named_parameters(remove_duplicate=False))
        top = [*top, *(parameter for parameter in embeddings if names[parameter] > 1)]
        embeddings = [parameter for parameter in embeddings if names[parameter] == 1]
    return [layer for layer in (embeddings, *blocks, [*top, *heads]) if layer]
