"""Optimizers and learning-rate schedules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lmlab.training.adagrad import Adagrad
from lmlab.training.settings import TrainConfig

LONGEST_WARMUP = 0.1
"""The share of the budget that warm-up may take, so that short runs reach their full rate too."""

SLANTED_CUT, SLANTED_RATIO = 0.1, 32.0
"""Of the slanted triangle: the share of the steps in which the rate rises, and the peak over the lowest rate."""

Group = dict[str, Any]


def parameter_groups(depths: Sequence[Sequence[nn.Parameter]], *, decay: float) -> list[Group]:
    """For each depth two groups: matrices decay; biases and gains do not. `scale` is the group's share of the rate."""
    groups: list[Group] = []
    for depth, parameters in enumerate(depths):
        own: Group = {"depth": depth, "scale": 1.0}
        groups.append({"params": [p for p in parameters if p.dim() >= 2], "weight_decay": decay, **own})
        groups.append({"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0, **own})
    return [group for group in groups if group["params"]]


def create_optimizer(groups: list[Group], config: TrainConfig) -> torch.optim.Optimizer:
    """The optimizer that `config` names, fused into one kernel where torch can."""
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=config.rate, momentum=config.momentum, fused=True)
    if config.optimizer == "adagrad":
        return Adagrad(groups, rate=config.rate)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, lr=config.rate, betas=(config.beta1, config.beta2), fused=True)


def settle_gradients(parameters: Iterable[nn.Parameter], config: TrainConfig) -> list[Tensor]:
    """The numbers of all gradients, to be measured and clipped in place.

    Those of tables may be sparse; only Adagrad without decay takes them so, for any other rule moves every row.
    """
    numbers = []
    for gradient, parameter in ((each.grad, each) for each in parameters):
        if gradient is None:
            continue
        if gradient.is_sparse:
            gradient = gradient.coalesce()
            keep = config.optimizer == "adagrad" and not config.decay
            gradient = parameter.grad = gradient if keep else gradient.to_dense()
        numbers.append(gradient.values() if gradient.is_sparse else gradient)
    return numbers


def scale_groups(optimizer: torch.optim.Optimizer, scales: Sequence[float]) -> None:
    """Give each depth its share of the rate; with 0 it is frozen.

    A rate of 0 alone would still move the moments of Adam, so a frozen parameter gets no gradient at all.
    """
    for group in optimizer.param_groups:
        group["scale"] = scales[group["depth"]]
        for parameter in group["params"]:
            parameter.requires_grad_(group["scale"] > 0)


def learning_rate(config: TrainConfig, *, step: int, progress: float, plateau: float = 1.0, epoch: int = 0) -> float:
    """The rate for step number `step` of `epoch` (both from 0), with `progress` (0 to 1) of the budget spent.

    inverse-sqrt is the Transformer's (Vaswani 2017, eq. 3), scaled so that the peak is `rate`; plateau multiplies by a
    factor whenever validation stands still, as for the PTB LSTMs; stairs multiplies in every epoch after the first ones
    (Zaremba et al. 2014). Warm-up takes at most a tenth of the budget. slanted rises and falls along two straight lines
    (Howard & Ruder 2018, equation 3), and needs no warm-up.
    """
    if config.schedule == "slanted":
        return config.rate * (1 + slant(min(progress, 1.0)) * (SLANTED_RATIO - 1)) / SLANTED_RATIO
    rising = max((step + 1) / config.warmup, progress / LONGEST_WARMUP) if config.warmup else 2.0
    if rising <= 1:
        return config.rate * rising
    falling = config.floor + (1 - config.floor) * (1 - min(progress, 1.0))
    waving = config.floor + (1 - config.floor) * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
    factor = {
        "constant": 1.0,
        "cosine": waving,
        "linear": falling,
        "inverse-sqrt": math.sqrt(max(config.warmup, 1) / (step + 1)),
        "plateau": plateau,
        "stairs": config.stairs_factor ** max(0, epoch + 1 - config.stairs_epochs),
    }
    return config.rate * min(1.0, factor[config.schedule])


def slant(progress: float) -> float:
    """How high the slanted triangle is, 0 to 1, with `progress` of the budget spent: p of equation 3."""
    if progress < SLANTED_CUT:
        return progress / SLANTED_CUT
    return 1 - (progress - SLANTED_CUT) / (1 - SLANTED_CUT)


def optimizer_tensors(optimizer: torch.optim.Optimizer, module: nn.Module) -> dict[str, Tensor]:
    """Everything that the optimizer remembers, by the names of the parameters; what was always frozen has nothing."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in module.named_parameters()}
    return {
        f"optimizer.{names[parameter]}.{key}": value
        for parameter, entry in optimizer.state.items()
        for key, value in entry.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, module: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave; checkpoints before 0.3 have numbers in place of names."""
    names = {parameter: name for name, parameter in module.named_parameters()}
    order = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    number = {names[parameter]: index for index, parameter in enumerate(order)}
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition(".")
        if kind == "optimizer":
            parameter, _, key = rest.rpartition(".")
            index = int(parameter) if parameter.isdigit() else number[parameter]
            state.setdefault(index, {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
