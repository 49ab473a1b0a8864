"""One step of training: micro-batches, gradients, and the update of the weights."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lmlab.data.loaders.loader import Loader
from lmlab.metrics.metric import Average
from lmlab.models.abilities import State
from lmlab.objectives.objective import Batch, Loss, weighted_mean
from lmlab.training.learner import Learner
from lmlab.training.optimizers import (
    create_optimizer,
    optimizer_tensors,
    parameter_groups,
    restore_optimizer,
    scale_groups,
    settle_gradients,
)
from lmlab.training.prefetch import Prefetcher
from lmlab.training.settings import TrainConfig
from lmlab.training.strategies import by_layer, choose_strategy
from lmlab.training.weight_average import WeightAverage


@dataclass(frozen=True)
class StepResult:
    """What one step came to; the tensors are still on the device, so that nobody waits for it without need."""

    sums: dict[str, Tensor]  # nats by term
    counts: dict[str, int]  # predictions by term
    units: dict[str, int]  # read: tokens …
    gradient: Tensor  # norm
    watched: dict[str, tuple[Tensor, int]]  # sums and counts of what is averaged: an F1 is of a whole evaluation alone


class Step:
    """One update of the weights, with the precision, compilation and accumulation that the settings ask for."""

    def __init__(self, learner: Learner, loader: Loader, config: TrainConfig) -> None:
        self.learner, self.loader, self.config = learner, loader, config
        self.strategy = choose_strategy(config)
        self.depths = [list(learner.parameters())]
        if self.strategy is not None:
            self.depths = by_layer(learner.model, learner.heads.parameters())
        self.optimizer = create_optimizer(parameter_groups(self.depths, decay=config.decay), config)
        self.average = WeightAverage(learner)
        self.ahead = Prefetcher(learner.objective, loader, seed=config.seed)
        self.device = learner.device
        self.dtype = choose_dtype(config.precision, self.device)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)
        metrics = learner.objective.watched_metrics
        self.averaged = {name for name, make in metrics.items() if isinstance(make(), Average)}
        self.unproven = config.compile
        self.close = self.ahead.close
        if config.compile:
            learner.compile()

    def __call__(self, step: int, rate: float, state: State) -> tuple[StepResult, State]:
        """Give what the step came to, and the state after it.

        The counts of all micro-batches are known before the first of them is read, so each prediction weighs the same,
        however the batch was cut.
        """
        if self.strategy is not None:
            scale_groups(self.optimizer, self.strategy.scales(step, len(self.depths)))
        places = range(step * self.config.accumulate, (step + 1) * self.config.accumulate)
        rate *= sum(self.loader.rate_factor(place) for place in places) / len(places)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["scale"]
        batches = [self.ahead.batch(place) for place in places]
        counts = add_up(batch.counts for batch in batches)
        sums: dict[str, Tensor] = {}
        watched: dict[str, tuple[Tensor, int]] = {}
        for place, batch in zip(places, batches, strict=True):
            if not self.learner.model.stateful or self.loader.restarts(place):
                state = None
            loss = self._backward(batch.to(self.device), state, counts)
            state = loss.state
            for name, total in loss.sums.items():
                sums[name] = sums[name] + total.detach() if name in sums else total.detach()
            for name, values in loss.watched.items():
                if name in self.averaged:
                    before, count = watched.get(name, (0.0, 0))
                    watched[name] = (values.detach().sum() + before, count + values.numel())
            del loss  # with what its graph still holds
        norm = self._update()
        return StepResult(sums, counts, add_up(batch.units for batch in batches), norm, watched), state

    def _update(self) -> Tensor:
        """Clip, and change the weights; give the norm of the gradient. On a CPU, none that is no number is applied."""
        self.scaler.unscale_(self.optimizer)
        limit = self.config.clip if self.config.clip is not None else math.inf
        parameters = [parameter for depth in self.depths for parameter in depth]
        norm = clip_gradients(settle_gradients(parameters, self.config), limit)
        if self.device.type != "cpu" or self.scaler.is_enabled() or bool(norm.isfinite()):
            self.scaler.step(self.optimizer)
            self.scaler.update()
            for parameter in parameters:  # fused optimizers do not say so, and what is kept of old weights must go
                torch.autograd.graph.increment_version(parameter)
            self.average.add()
        self.optimizer.zero_grad(set_to_none=True)
        if self.scaler.is_enabled():  # a step whose scaled gradients overflow is skipped, and that is no error
            norm = norm.nan_to_num(0.0, 0.0, 0.0)
        return norm

    def _backward(self, batch: Batch, state: State, counts: Mapping[str, int]) -> Loss:
        if not self.unproven:
            return self._forward_backward(batch, state, counts)
        random = torch.get_rng_state()
        self.unproven = False
        try:
            return self._forward_backward(batch, state, counts)
        except Exception as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            warnings.warn(f"torch.compile failed ({reason}); continuing without it", stacklevel=2)
            self.learner._compiled_call_impl = None
            self.optimizer.zero_grad(set_to_none=True)
            torch.set_rng_state(random)
            return self._forward_backward(batch, state, counts)

    def _forward_backward(self, batch: Batch, state: State, counts: Mapping[str, int]) -> Loss:
        with self._autocast():
            loss: Loss = self.learner(Batch(batch.inputs, batch.labels), state)
        mean = weighted_mean(loss.sums, counts, self.learner.objective.loss_weights)
        self.scaler.scale(mean).backward()  # type: ignore[no-untyped-call]
        return loss

    def _autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.dtype is None else torch.autocast(self.device.type, dtype=self.dtype)

    def tensors(self) -> dict[str, Tensor]:
        """What the optimizer and the scaler of gradients remember, by name: what a checkpoint needs beside weights."""
        scaler = {f"scaler.{name}": torch.tensor(value) for name, value in self.scaler.state_dict().items()}
        return {**optimizer_tensors(self.optimizer, self.learner), **scaler, **self.average.tensors()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Put back what `tensors` gave."""
        restore_optimizer(self.optimizer, self.learner, tensors)
        self.average.restore(tensors)
        state = self.scaler.state_dict()
        if state and all(f"scaler.{name}" in tensors for name in state):
            self.scaler.load_state_dict({name: tensors[f"scaler.{name}"].item() for name in state})


def add_up(counts: Any) -> dict[str, int]:
    """Counts by name, summed."""
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total


def clip_gradients(gradients: Sequence[Tensor], limit: float) -> Tensor:
    """Scale gradients in place so that the norm of all together is at most `limit`; give the norm that it was."""
    norm = torch.nn.utils.get_total_norm(gradients)
    if math.isfinite(limit):
        share = (limit / (norm + 1e-6)).clamp(max=1.0)  # the small term as in torch.nn.utils.clip_grad_norm_
        for gradient in gradients:
            gradient.mul_(share)
    return norm


def choose_dtype(precision: str, device: torch.device) -> torch.dtype | None:
    """The type for autocast, or None for plain fp32."""
    if precision == "auto":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else None
    if precision == "fp16" and device.type == "cpu":
        raise ValueError("train.precision = 'fp16' needs a GPU; on a CPU use fp32 or bf16")
    return {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
