"""Optimizers and learning-rate schedules."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from lmlab.training.settings import TrainConfig

LONGEST_WARMUP = 0.1
"""The share of the budget that warm-up may take, so that short runs reach their full rate too."""


def parameter_groups(model: nn.Module, *, decay: float) -> list[dict[str, Any]]:
    """Matrices decay; biases and gains do not."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]


def create_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimizer that `config` names, fused into one kernel where torch can."""
    groups = [group for group in parameter_groups(model, decay=config.decay) if group["params"]]
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=config.rate, momentum=config.momentum, fused=True)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, lr=config.rate, betas=(config.beta1, config.beta2), fused=True)


def learning_rate(config: TrainConfig, *, step: int, progress: float, plateau: float = 1.0) -> float:
    """The rate for step number `step` (from 0), with `progress` (0 to 1) of the budget spent.

    inverse-sqrt is the Transformer's (Vaswani 2017, eq. 3), scaled so that the peak is `rate`; plateau multiplies by a
    factor whenever validation stands still, as for the PTB LSTMs. Warm-up takes at most a tenth of the budget.
    """
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
    }
    return config.rate * min(1.0, factor[config.schedule])


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Everything that the optimizer remembers, by name."""
    state = optimizer.state_dict()["state"]
    return {
        f"optimizer.{index}.{key}": value
        for index, entry in state.items()
        for key, value in entry.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".", 2)
            state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
