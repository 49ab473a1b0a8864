"""NT-ASGD: the mean of the weights over the steps of a run, from the step at which validation plateaued.

Merity et al. 2018, section 3: plain SGD moves around a minimum, and the mean of its iterates (Polyak & Juditsky 1992)
is closer to it. Averaging begins when the validation loss is no better than it was n validations ago.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from lmlab.training.settings import TrainConfig

COUNT = "average.count"


def check_average(config: TrainConfig, *, validated: bool) -> None:
    """Raise a ValueError if `train.average` is set without plain SGD or without validation data."""
    if config.average is not None and config.momentum:
        raise ValueError(
            f"train.average = {config.average} is the mean of the weights of plain SGD, and train.momentum is "
            f"{config.momentum:g}: leave one of them out"
        )
    if config.average is not None and config.optimizer != "sgd":
        raise ValueError(
            f"train.average = {config.average} is the mean of the weights of plain SGD, and train.optimizer is "
            f"{config.optimizer!r}: set train.optimizer=sgd, or leave train.average out"
        )
    if config.average is not None and not validated:
        raise ValueError(
            f"train.average = {config.average} begins when validation plateaus: validation data are needed"
        )


def plateaued(loss: float, before: Sequence[float], *, validations: int) -> bool:
    """Whether a validation loss is above the best of those at least `validations` validations ago."""
    old = before[: max(0, len(before) - validations)]
    return bool(old) and loss > min(old)


class WeightAverage:
    """The running mean of the parameters of a module: w̄_k = w̄_{k−1} + (w_k − w̄_{k−1}) / k."""

    def __init__(self, module: nn.Module) -> None:
        self.parameters = dict(module.named_parameters())
        self.means: dict[str, Tensor] = {}
        self.count = 0

    @property
    def begun(self) -> bool:
        return bool(self.means)

    @torch.no_grad()
    def begin(self) -> None:
        """Begin to average; the first weights of the mean are those after the next step."""
        self.means = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}
        self.count = 0

    @torch.no_grad()
    def add(self) -> None:
        """Add the current weights to the mean, if it was begun."""
        if not self.begun:
            return
        self.count += 1
        for name, mean in self.means.items():
            mean.lerp_(self.parameters[name].detach(), 1 / self.count)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Replace the weights of the module by the mean within this block, if it was begun."""
        own = {name: self.parameters[name].detach().clone() for name in self.means}
        self._put(self.means)
        try:
            yield
        finally:
            self._put(own)

    @torch.no_grad()
    def _put(self, weights: dict[str, Tensor]) -> None:
        for name, tensor in weights.items():
            self.parameters[name].copy_(tensor)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors for a checkpoint."""
        if not self.begun:
            return {}
        return {COUNT: torch.tensor(self.count), **{f"average.mean.{name}": mean for name, mean in self.means.items()}}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `tensors` returned."""
        if COUNT in tensors:
            self.count = int(tensors[COUNT])
            self.means = {
                name: tensors[f"average.mean.{name}"].to(parameter.device)
                for name, parameter in self.parameters.items()
            }
