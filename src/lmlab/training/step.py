"""One training step: micro-batches, gradients, and the update of the weights."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lmlab.data.loaders.loader import Loader
from lmlab.metrics.metric import Average
from lmlab.models.abilities import State
from lmlab.objectives.objective import Batch, Loss, NotAdditive, weighted_mean
from lmlab.training.devices import choose_dtype, random_tensors, restore_random
from lmlab.training.distributed import ALONE, World
from lmlab.training.learner import Embedder, Learner
from lmlab.training.optimizers import (
    create_optimizer,
    optimizer_tensors,
    parameter_groups,
    restore_optimizer,
    scale_groups,
    settle_gradients,
)
from lmlab.training.prefetch import Prefetcher
from lmlab.training.schedule import choose_strategy
from lmlab.training.settings import TrainConfig
from lmlab.training.weight_average import WeightAverage


@dataclass(frozen=True)
class StepResult:
    """The outcome of one step. Tensors stay on the device and are of this process; counts are of all processes."""

    sums: dict[str, Tensor]  # nats by term of the loss
    counts: dict[str, int]  # predictions by term
    units: dict[str, int]  # read: tokens …
    gradient: Tensor  # norm
    watched: dict[str, tuple[Tensor, int]]  # sums and counts of the metrics that are averages


class Step:
    """Updates the weights once per call, with the precision, compilation and accumulation of the settings."""

    def __init__(self, learner: Learner, loader: Loader, config: TrainConfig, *, world: World = ALONE) -> None:
        self.learner, self.loader, self.config, self.world = learner, loader, config, world
        self.strategy = choose_strategy(config)
        self.depths = [list(learner.parameters())] if self.strategy is None else learner.parameters_by_layer()
        self.optimizer = create_optimizer(parameter_groups(self.depths, decay=config.decay), config)
        self.average = WeightAverage(learner)
        self.prefetcher = Prefetcher(learner.objective, loader, seed=config.seed)
        self.device = learner.device
        self.dtype = choose_dtype(config.precision, self.device)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)
        metrics = learner.objective.watched_metrics
        self.averaged = {name for name, make in metrics.items() if isinstance(make(), Average)}
        objective, several = learner.objective, config.accumulate * world.size > 1
        self.compared = objective if several and isinstance(objective, NotAdditive) else None
        """An objective that compares the rows of several micro-batches; None where there is one, or none compares."""
        self.compile_unproven = config.compile
        self.close = self.prefetcher.close
        if config.compile:
            learner.compile()
        self._wrap()

    def __call__(self, step: int, rate: float, state: State) -> tuple[StepResult, State]:
        """Take step number `step`; return its result, and the state after it.

        The counts of all micro-batches are known before the first forward pass, so each prediction has the same
        weight however the batch is divided.
        """
        self._set_rates(step, rate)
        numbers = self.world.micro_batches(step, self.config.accumulate)
        following = [*numbers[1:], self.world.micro_batches(step + 1, self.config.accumulate)[0]]
        batches = [self.prefetcher.batch(*pair) for pair in zip(numbers, following, strict=True)]
        counts = self.world.totals(add_up(batch.counts for batch in batches))
        units = self.world.totals(add_up(batch.units for batch in batches))
        losses = LossSums(self.averaged)
        if self.compared is not None:
            losses.add(self._backward_all(self.compared, batches, counts))
        else:
            for number, batch in zip(numbers, batches, strict=True):
                if not self.learner.stateful or self.loader.restarts(number):
                    state = None
                loss = self._backward(batch.to(self.device), state, counts)
                state = loss.state
                losses.add(loss)
                del loss  # and with it what its graph still holds
        norm = self._update()
        return StepResult(losses.sums, counts, units, norm, losses.watched), state

    def _set_rates(self, step: int, rate: float) -> None:
        """Set the learning rate of each group of parameters; freeze and unfreeze layers."""
        if self.strategy is not None and scale_groups(self.optimizer, self.strategy.scales(step, len(self.depths))):
            self._wrap()
        count = self.config.accumulate * self.world.size
        rate *= sum(self.loader.rate_factor(step * count + k) for k in range(count)) / count
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["scale"]

    def _wrap(self) -> None:
        """Wrap the called module again; DDP needs this whenever layers are frozen or unfrozen."""
        self.forward = self.world.wrap(self.learner if self.compared is None else Embedder(self.learner, self.compared))

    def _backward(self, batch: Batch, state: State, counts: Mapping[str, int]) -> Loss:
        """The loss of a micro-batch, after its backward pass; without torch.compile if that fails the first time."""
        if not self.compile_unproven:
            return self._forward_backward(batch, state, counts)
        random = torch.get_rng_state()
        self.compile_unproven = False
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
            loss: Loss = self.forward(Batch(batch.inputs, batch.labels), state)
        mean = weighted_mean(loss.sums, counts, self.learner.objective.loss_weights) * self.world.gradient_scale
        torch.autograd.backward(self.scaler.scale(mean))
        return loss

    def _backward_all(self, objective: NotAdditive, batches: Sequence[Batch], counts: Mapping[str, int]) -> Loss:
        """The loss of all micro-batches together, after its backward pass.

        Each micro-batch is embedded twice with the same random numbers: without gradients, for the loss of all vectors
        v; then with gradients, and the backward pass of Σ v · ∂loss/∂v (Gao et al. 2021, "Scaling Deep Contrastive
        Learning Batch Size under Memory Limited Setup").
        """
        parts, random = [], []
        for batch in batches:
            random.append(random_tensors(self.device))
            with torch.no_grad(), self._autocast():
                parts.append(self.forward(batch.to(self.device)))
        everyone = self.world.gather({name: torch.cat([part[name] for part in parts]) for name in parts[0]})
        own = everyone[self.world.rank]
        for tensor in own.values():
            tensor.requires_grad_(tensor.is_floating_point())
        with self._autocast():
            vectors = {name: torch.cat([each[name] for each in everyone]) for name in own}
            loss = objective.compare(dict(self.learner.heads.items()), vectors)
        mean = weighted_mean(loss.sums, counts, self.learner.objective.loss_weights)
        torch.autograd.backward(self.scaler.scale(mean))
        sizes = [len(next(iter(part.values()))) for part in parts]
        gradients = {name: torch.split(tensor.grad, sizes) for name, tensor in own.items() if tensor.grad is not None}
        for number, batch in enumerate(batches):
            restore_random(random[number], self.device)
            with self._autocast():
                part = self.forward(batch.to(self.device))
            products = [(part[name] * gradients[name][number]).sum() for name in gradients]
            torch.autograd.backward(torch.stack(products).sum() * self.world.gradient_scale)
        return loss if self.world.writes else loss._replace(sums={name: 0 * each for name, each in loss.sums.items()})

    def _update(self) -> Tensor:
        """Clip the gradient and change the weights; return its norm. On a CPU, only finite gradients are applied."""
        self.scaler.unscale_(self.optimizer)
        limit = self.config.clip if self.config.clip is not None else math.inf
        parameters = [parameter for depth in self.depths for parameter in depth]
        norm = clip_gradients(settle_gradients(parameters, self.config), limit)
        if self.device.type != "cpu" or self.scaler.is_enabled() or bool(norm.isfinite()):
            self.scaler.step(self.optimizer)
            self.scaler.update()
            for parameter in parameters:  # fused optimizers do not do it, and what was computed from them is outdated
                torch.autograd.graph.increment_version(parameter)
            self.average.add()
        self.optimizer.zero_grad(set_to_none=True)
        if self.scaler.is_enabled():  # a step whose scaled gradients overflow is skipped, which is not an error
            norm = norm.nan_to_num(0.0, 0.0, 0.0)
        return norm

    def _autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.dtype is None else torch.autocast(self.device.type, dtype=self.dtype)

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint needs besides the weights: the states of optimizer, gradient scaler and weight average."""
        scaler = {f"scaler.{name}": torch.tensor(value) for name, value in self.scaler.state_dict().items()}
        return {**optimizer_tensors(self.optimizer, self.learner), **scaler, **self.average.tensors()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `tensors` returned."""
        restore_optimizer(self.optimizer, self.learner, tensors)
        self.average.restore(tensors)
        state = self.scaler.state_dict()
        if state and all(f"scaler.{name}" in tensors for name in state):
            self.scaler.load_state_dict({name: tensors[f"scaler.{name}"].item() for name in state})


class LossSums:
    """The losses of several micro-batches, added up on the device."""

    def __init__(self, averaged: set[str]) -> None:
        self.averaged = averaged
        self.sums: dict[str, Tensor] = {}
        self.watched: dict[str, tuple[Tensor, int]] = {}

    def add(self, loss: Loss) -> None:
        for name, total in loss.sums.items():
            self.sums[name] = self.sums[name] + total.detach() if name in self.sums else total.detach()
        for name, values in loss.watched.items():
            if name in self.averaged:
                before, count = self.watched.get(name, (0.0, 0))
                self.watched[name] = (values.detach().sum() + before, count + values.numel())


def add_up(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Counts by name, summed."""
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total


def clip_gradients(gradients: Sequence[Tensor], limit: float) -> Tensor:
    """Scale gradients in place so that their total norm is at most `limit`; return the norm before."""
    norm = torch.nn.utils.get_total_norm(gradients)
    if math.isfinite(limit):
        factor = (limit / (norm + 1e-6)).clamp(max=1.0)  # the small term as in torch.nn.utils.clip_grad_norm_
        for gradient in gradients:
            gradient.mul_(factor)
    return norm
