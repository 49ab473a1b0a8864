"""Optimizers: how they are created, which parameters decay, and what a checkpoint stores of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lmlab.training.settings import TrainConfig

EPSILON = 1e-10
"""Added to √n in Adagrad, as in torch: an entry that has had no gradient does not change."""

Group = dict[str, Any]


def create_optimizer(groups: list[Group], config: TrainConfig) -> torch.optim.Optimizer:
    """The optimizer that `config` names, fused into one kernel where torch can."""
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=config.rate, momentum=config.momentum, fused=True)
    if config.optimizer == "adagrad":
        return Adagrad(groups, rate=config.rate)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, lr=config.rate, betas=(config.beta1, config.beta2), fused=True)


def parameter_groups(depths: Sequence[Sequence[nn.Parameter]], *, decay: float) -> list[Group]:
    """Two groups for each depth: matrices, with weight decay, and biases and gains, without.

    `scale` is what the learning rate of a group is multiplied by.
    """
    groups: list[Group] = []
    for depth, parameters in enumerate(depths):
        own: Group = {"depth": depth, "scale": 1.0}
        groups.append({"params": [p for p in parameters if p.dim() >= 2], "weight_decay": decay, **own})
        groups.append({"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0, **own})
    return [group for group in groups if group["params"]]


def scale_groups(optimizer: torch.optim.Optimizer, scales: Sequence[float]) -> bool:
    """Set the scale of each depth; 0 freezes it. Return whether a depth was frozen or unfrozen.

    A rate of 0 alone would still change the moments of Adam, so a frozen parameter gets no gradient at all.
    """
    changed = False
    for group in optimizer.param_groups:
        group["scale"] = scales[group["depth"]]
        for parameter in group["params"]:
            changed |= parameter.requires_grad != (group["scale"] > 0)
            parameter.requires_grad_(group["scale"] > 0)
    return changed


def settle_gradients(parameters: Iterable[nn.Parameter], config: TrainConfig) -> list[Tensor]:
    """The values of all gradients, to be measured and clipped in place.

    Gradients of embedding tables may be sparse. Only Adagrad without decay takes them so: other rules change every row.
    """
    values = []
    for gradient, parameter in ((each.grad, each) for each in parameters):
        if gradient is None:
            continue
        if gradient.is_sparse:
            gradient = _coalesce(gradient)
            keep = config.optimizer == "adagrad" and not config.decay
            gradient = parameter.grad = gradient if keep else gradient.to_dense()
        values.append(gradient.values() if gradient.is_sparse else gradient)
    return values


def _coalesce(gradient: Tensor) -> Tensor:
    """A sparse gradient with each row once; rows that ascend already are not sorted."""
    rows = gradient._indices()[0]
    return gradient._coalesced_(True) if bool((rows[1:] > rows[:-1]).all()) else gradient.coalesce()


def optimizer_tensors(optimizer: torch.optim.Optimizer, module: nn.Module) -> dict[str, Tensor]:
    """The state of the optimizer by parameter name; parameters that were always frozen have none."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in module.named_parameters()}
    return {
        f"optimizer.{names[parameter]}.{key}": value
        for parameter, entry in optimizer.state.items()
        for key, value in entry.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, module: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Restore what `optimizer_tensors` returned; checkpoints before 0.3 have numbers instead of names."""
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


class Adagrad(torch.optim.Optimizer):
    """Adagrad (Duchi et al. 2011), which changes only the rows of a table that have a gradient.

        n ← n + g²,   w ← w − α g / √n

    Each entry has its own rate: rare words keep a high one, frequent words slow down, and the scale of the loss does
    not matter. That suits tables whose rows are updated unequally often (GloVe: Pennington et al. 2014). torch's own
    Adagrad warns about sparse gradients, and is slower with them. Sparse gradients must be coalesced.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], *, rate: float) -> None:
        super().__init__(groups, {"lr": rate, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        assert closure is None, "gradients are given"
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._change(parameter, parameter.grad, group["lr"], group["weight_decay"])

    def _change(self, parameter: Tensor, gradient: Tensor, rate: float, decay: float) -> None:
        state = self.state[parameter]
        if "sum" not in state:
            state["sum"] = torch.zeros_like(parameter)
        if not gradient.is_sparse:
            gradient = gradient + decay * parameter if decay else gradient
            total = state["sum"].addcmul_(gradient, gradient)
            parameter.addcdiv_(gradient, total.sqrt().add_(EPSILON), value=-rate)
            return
        assert gradient.is_coalesced(), "each row once"
        assert not decay, "no row changes without a gradient"
        rows, values = gradient.indices()[0], gradient.values()
        total = state["sum"].index_select(0, rows).addcmul_(values, values)
        state["sum"].index_copy_(0, rows, total)
        parameter.index_add_(0, rows, values / total.sqrt_().add_(EPSILON), alpha=-rate)
