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
from lmlab.layers.kernels.training_linear import cached_casts
from lmlab.metrics.metric import Average
from lmlab.models.abilities import State
from lmlab.objectives.objective import Batch, Loss, NotAdditive, PreTraining, weighted_mean
from lmlab.training.devices import choose_dtype, random_tensors, restore_random
from lmlab.training.distributed.gradient_sum import ExactSum
from lmlab.training.distributed.world import ALONE, World
from lmlab.training.learner import Learner, MicroBatchEmbedder
from lmlab.training.micro_batches import MicroBatch, divide, seed_of
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

States = dict[int, State]
"""What a stateful model keeps for the next batch, by the lane of its rows."""
LEAST_FOR_BF16 = 1_000_000
"""Parameters from which on a model is trained in bf16 by default on a CPU that has it; smaller ones gain little."""
AUTOCAST = (None, torch.bfloat16, torch.float16)
"""Types of autocast; a checkpoint has the position of its own."""
COUNT = "count of "
"""Begins the names of counts among amounts of several kinds."""


@dataclass(frozen=True)
class StepResult:
    """The outcome of one step. Tensors stay on the device and are of this process; counts are of all processes."""

    sums: dict[str, Tensor]  # nats by term of the loss, of each micro-batch of this process [n]
    counts: dict[str, int]  # predictions by term
    units: dict[str, int]  # read: tokens …
    gradient: Tensor  # norm
    watched: dict[str, tuple[Tensor, list[int]]]  # sums and counts of the metrics that are averages, of each of them


class Step:
    """Updates the weights once per call, with the precision, compilation and division of the settings."""

    def __init__(self, learner: Learner, loader: Loader, config: TrainConfig, *, world: World = ALONE) -> None:
        self.learner, self.loader, self.config, self.world = learner, loader, config, world
        self.division = divide(config, loader)
        self.seeded = config.exact or config.micro_batches is not None or world.size > 1
        """Whether each micro-batch has random numbers of its own, whatever process reads it."""
        self.strategy = choose_strategy(config)
        objective, several = learner.objective, self.division.groups * self.division.per_group > 1
        self.compared = objective if several and isinstance(objective, NotAdditive) else None
        """An objective that compares the rows of several micro-batches; None where there is one, or none compares."""
        self.adds_itself = config.exact or (world.size > 1 and learner.objective.sparse)
        """Whether gradients are added up here, whole and in a fixed order, instead of by DDP or FSDP."""
        self._check_world()
        self.compile_unproven = config.compile
        if config.compile:
            learner.compile()
        self._wrap()
        self.depths = [list(learner.parameters())] if self.strategy is None else learner.parameters_by_layer()
        self.optimizer = create_optimizer(parameter_groups(self.depths, decay=config.decay), config)
        self.average = WeightAverage(learner)
        self.prefetcher = Prefetcher(learner.objective, loader, seed=config.seed, lanes=self.division.lanes)
        self.device = learner.device
        self.dtype = choose_dtype(config.precision, self.device, bf16_on_cpu=gains_from_bf16(learner))
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)
        metrics = learner.objective.watched_metrics
        self.averaged = {name for name, make in metrics.items() if isinstance(make(), Average)}
        self.close = self.prefetcher.close

    def __call__(self, step: int, rate: float, states: States | None) -> tuple[StepResult, States]:
        """Take step number `step`; return its result, and the states after it.

        The counts of all micro-batches are known before the first forward pass, so each prediction has the same
        weight however the batch is divided.
        """
        self._set_rates(step, rate)
        micros, following = self._micro_batches(step), self._micro_batches(step + 1)
        pairs = zip(micros, [*micros[1:], *following[:1]], strict=True)
        batches = [self.prefetcher.batch(*pair) for pair in pairs]
        own = self._own_count()
        counts, units = self._count(batches[:own])
        losses, states = LossSums(self.averaged), dict(states or {})
        adding = self._exact_sum() if self.adds_itself else None
        with self._cached_casts():
            if self.compared is not None:
                losses.add(self._backward_all(self.compared, batches, counts, micros, adding))
            else:
                for number, (micro, batch) in enumerate(zip(micros, batches, strict=True)):
                    state = states.pop(micro.lane, None)
                    if not self.learner.stateful or self.loader.restarts(micro.number):
                        state = None
                    self._seed(micro)
                    with self._accumulating(number, micros):
                        loss = self._backward(batch.to(self.device), state, counts, weight=float(number < own))
                    if adding is not None:
                        adding.add()
                    if number < own:
                        states[micro.lane] = loss.state
                        losses.add(loss)
                    del loss  # and with it what its graph still holds
        if adding is not None:
            adding.finish()
        norm = self._update()
        return StepResult(losses.sums, counts, units, norm, losses.watched), states

    def _check_world(self) -> None:
        """Raise a ValueError for what several processes cannot do."""
        world, groups = self.world, self.division.groups
        if self.config.exact and world.sharded:
            raise ValueError("--exact adds up whole gradients, and --parallel fsdp divides them: leave one of them out")
        if self.compared is not None and (groups < world.size or (world.sharded and groups % world.size)):
            raise ValueError(
                f"this loss compares all rows of a step, which has {groups} micro-batches for {world.size} processes: "
                f"give train.micro_batches={world.size}"
            )
        if self.learner.objective.sparse and world.sharded:
            raise ValueError("the gradients of word vectors are sparse, which --parallel fsdp cannot divide: use ddp")
        if self.config.unfreeze is not None and world.sharded:
            raise ValueError("train.unfreeze changes which weights learn, which --parallel fsdp cannot do: use ddp")

    def _own_count(self) -> int:
        """The number of micro-batches of a step that this process reads."""
        return len(self.world.share(self.division.groups)) * self.division.per_group

    def _micro_batches(self, step: int) -> list[MicroBatch]:
        """Those that this process reads, and then others, whose gradients are not counted, if all must read as many.

        DDP needs a backward pass in every process, and FSDP the same number of them.
        """
        division, world = self.division, self.world
        own = division.of_groups(step, world.share(division.groups))
        if world.size == 1 or self.adds_itself:
            return own
        most = -(-division.groups // world.size) * division.per_group if world.sharded else 1
        return own + division.of_groups(step, [0])[:1] * (most - len(own))

    def _count(self, batches: Sequence[Batch]) -> tuple[dict[str, int], dict[str, int]]:
        """The predictions by term and the amounts of each unit, in all processes."""
        counts, units = add_up(batch.counts for batch in batches), add_up(batch.units for batch in batches)
        found = self.world.totals({f"{COUNT}{name}": n for name, n in counts.items()} | units)
        return (
            {name.removeprefix(COUNT): n for name, n in found.items() if name.startswith(COUNT)},
            {name: n for name, n in found.items() if not name.startswith(COUNT)},
        )

    def _exact_sum(self) -> ExactSum:
        parameters = [each for depth in self.depths for each in depth if each.requires_grad]
        division = self.division
        return ExactSum(parameters, groups=division.groups, per_group=division.per_group, world=self.world)

    def _accumulating(self, number: int, micros: Sequence[MicroBatch]) -> AbstractContextManager[Any]:
        """A context for the micro-batch `number` of those that this process reads."""
        return self.world.accumulating(self.forward, last=number == len(micros) - 1)

    def _seed(self, micro: MicroBatch) -> None:
        """Give a micro-batch its own random numbers."""
        if self.seeded:
            torch.manual_seed(seed_of(self.config.seed, micro.position))

    def _set_rates(self, step: int, rate: float) -> None:
        """Set the learning rate of each group of parameters; freeze and unfreeze layers."""
        if self.strategy is not None and scale_groups(self.optimizer, self.strategy.scales(step, len(self.depths))):
            self._wrap()
        count = self.division.batches
        rate *= sum(self.loader.rate_factor(step * count + k) for k in range(count)) / count
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["scale"]

    def _wrap(self) -> None:
        """Wrap the called module again; DDP needs this whenever layers are frozen or unfrozen."""
        module = self.learner if self.compared is None else MicroBatchEmbedder(self.learner, self.compared)
        self.forward = module if self.adds_itself else self.world.wrap(module)

    def _backward(self, batch: Batch, state: State, counts: Mapping[str, int], *, weight: float) -> Loss:
        """The loss of a micro-batch, after its backward pass; without torch.compile if that fails the first time."""
        if not self.compile_unproven:
            return self._forward_backward(batch, state, counts, weight=weight)
        random = torch.get_rng_state()
        self.compile_unproven = False
        try:
            return self._forward_backward(batch, state, counts, weight=weight)
        except Exception as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            warnings.warn(f"torch.compile failed ({reason}); continuing without it", stacklevel=2)
            self.learner._compiled_call_impl = None
            self.optimizer.zero_grad(set_to_none=True)
            torch.set_rng_state(random)
            return self._forward_backward(batch, state, counts, weight=weight)

    def _forward_backward(self, batch: Batch, state: State, counts: Mapping[str, int], *, weight: float) -> Loss:
        with self._autocast():
            loss: Loss = self.forward(Batch(batch.inputs, batch.labels), state)
        mean = weighted_mean(loss.sums, counts, self.learner.objective.loss_weights)
        torch.autograd.backward(self.scaler.scale(mean * (self._gradient_scale * weight)))
        return loss

    @property
    def _gradient_scale(self) -> float:
        return 1.0 if self.adds_itself else self.world.gradient_scale

    def _backward_all(
        self,
        objective: NotAdditive,
        batches: Sequence[Batch],
        counts: Mapping[str, int],
        micros: Sequence[MicroBatch],
        adding: ExactSum | None,
    ) -> Loss:
        """The loss of all micro-batches together, after its backward pass.

        Each micro-batch is embedded twice with the same random numbers: without gradients, for the loss of all vectors
        v; then with gradients, and the backward pass of Σ v · ∂loss/∂v (Gao et al. 2021, "Scaling Deep Contrastive
        Learning Batch Size under Memory Limited Setup").
        """
        parts, random = [], []
        for micro, batch in zip(micros, batches, strict=True):
            self._seed(micro)
            random.append(random_tensors(self.device))
            with torch.no_grad(), self._autocast():
                parts.append(self.forward(batch.to(self.device)))
        everyone = self.world.gather_tensors({name: torch.cat([part[name] for part in parts]) for name in parts[0]})
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
            with self._accumulating(number, micros):
                with self._autocast():
                    part = self.forward(batch.to(self.device))
                products = [(part[name] * gradients[name][number]).sum() for name in gradients]
                torch.autograd.backward(torch.stack(products).sum() * self._gradient_scale)
            if adding is not None:
                adding.add()
        return loss if self.world.writes else Loss({})

    def _update(self) -> Tensor:
        """Clip the gradient and change the weights; return its norm. On a CPU, only finite gradients are applied."""
        self.scaler.unscale_(self.optimizer)
        limit = self.config.clip if self.config.clip is not None else math.inf
        parameters = [parameter for depth in self.depths for parameter in depth]
        norm = clip_gradients(settle_gradients(parameters, self.config), limit, world=self.world)
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

    def _cached_casts(self) -> AbstractContextManager[None]:
        """A context in which each weight is converted once for all micro-batches; not where weights are in parts."""
        return nullcontext() if self.dtype is None or self.world.sharded else cached_casts()

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint needs besides the weights: the states of optimizer, gradient scaler and weight average.

        In a sharded world, the process that writes has all of them.
        """
        scaler = {f"scaler.{name}": torch.tensor(value) for name, value in self.scaler.state_dict().items()}
        own = {**optimizer_tensors(self.optimizer, self.learner), **scaler, **self.average.tensors()}
        own["autocast"] = torch.tensor(AUTOCAST.index(self.dtype))
        return self.world.whole(own)

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `tensors` returned.

        With `precision = auto`, a run on a CPU keeps the precision that it began with; before 0.6 that was always fp32.
        """
        if self.config.precision == "auto" and self.device.type == "cpu":
            self.dtype = AUTOCAST[int(tensors["autocast"])] if "autocast" in tensors else None
        if self.world.sharded:
            tensors = self._parts(tensors)
        restore_optimizer(self.optimizer, self.learner, tensors)
        self.average.restore(tensors)
        state = self.scaler.state_dict()
        if state and all(f"scaler.{name}" in tensors for name in state):
            self.scaler.load_state_dict({name: tensors[f"scaler.{name}"].item() for name in state})

    def _parts(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The parts of the tensors of a checkpoint that this process keeps."""
        parameters, found = dict(self.learner.named_parameters()), dict(tensors)
        for name, tensor in tensors.items():
            kind, _, rest = name.partition(".")
            of = rest.rpartition(".")[0] if kind == "optimizer" else rest.removeprefix("mean.")
            if of in parameters:
                found[name] = self.world.part(tensor, parameters[of])
        return found


def gains_from_bf16(learner: Learner) -> bool:
    """Whether a CPU with bf16 trains this faster in bf16, and as well as in fp32 (benchmarks/precision.py)."""
    large = sum(parameter.numel() for parameter in learner.model.parameters()) >= LEAST_FOR_BF16
    return large and learner.model.measured_in_bf16 and isinstance(learner.objective, PreTraining)


class LossSums:
    """The losses of several micro-batches, on the device.

    They are listed, not added: their sum is taken over all processes at once, so that it does not depend on these.
    """

    def __init__(self, averaged: set[str]) -> None:
        self.averaged = averaged
        self._sums: dict[str, list[Tensor]] = {}
        self._watched: dict[str, tuple[list[Tensor], list[int]]] = {}

    def add(self, loss: Loss) -> None:
        for name, total in loss.sums.items():
            self._sums.setdefault(name, []).append(total.detach())
        for name, values in loss.watched.items():
            if name in self.averaged:
                totals, counts = self._watched.setdefault(name, ([], []))
                totals.append(values.detach().sum())
                counts.append(values.numel())

    @property
    def sums(self) -> dict[str, Tensor]:
        return {name: torch.stack(totals) for name, totals in self._sums.items()}

    @property
    def watched(self) -> dict[str, tuple[Tensor, list[int]]]:
        return {name: (torch.stack(totals), counts) for name, (totals, counts) in self._watched.items()}


def add_up(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Counts by name, summed."""
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total


def clip_gradients(gradients: Sequence[Tensor], limit: float, *, world: World = ALONE) -> Tensor:
    """Scale gradients in place so that their total norm is at most `limit`; return the norm before."""
    norm = world.norm(gradients)
    if gradients and math.isfinite(limit):
        factor = (limit / (norm + 1e-6)).clamp(max=1.0)  # the small term as in torch.nn.utils.clip_grad_norm_
        if norm.device.type != "cpu" or float(factor) != 1:  # on a CPU one need not wait to know it
            torch._foreach_mul_([world.local(gradient) for gradient in gradients], factor)
    return norm
