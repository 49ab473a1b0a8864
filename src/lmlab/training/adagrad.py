"""Adagrad, which gives every number a rate of its own and changes only the rows of a table that a batch has.

    n ← n + g²,   w ← w − α g / √n      (Duchi et al. 2011)

Rare words keep a high rate, frequent ones slow down, and the scale of the loss does not matter: what suits tables whose
rows are seen unequally often (GloVe was trained by it: Pennington et al. 2014). torch's own warns where gradients are
sparse, and is slower there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

EPSILON = 1e-10
"""Added to √n, as in torch: what has had no gradient stays where it is."""


class Adagrad(torch.optim.Optimizer):
    """w ← w − α g / √n; of a sparse gradient, which has each row once (coalesced), only its rows."""

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
        assert not decay, "no row moves without a gradient"
        rows, numbers = gradient.indices()[0], gradient.values()
        total = state["sum"].index_select(0, rows).addcmul_(numbers, numbers)
        state["sum"].index_copy_(0, rows, total)
        parameter.index_add_(0, rows, numbers / total.sqrt_().add_(EPSILON), alpha=-rate)
