"""The trainer: one loop for pre-training and fine-tuning.

`Trainer` has the loop. Each of its parts has one job: `Step` updates the weights, `BudgetTracker` knows how much of
the budget is spent, `CostTracker` measures time and energy, `MetricsLog` writes lines of metrics, `Validation` decides
when to validate and keeps the best weights, and a `Checkpointer` saves all that exact resuming needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from lmlab.costs.countries import find_grid
from lmlab.costs.parameters import count_parameters
from lmlab.data.loaders.loader import Loader
from lmlab.training.budget import BudgetTracker, parse_budget
from lmlab.training.checkpointer import Checkpointer
from lmlab.training.distributed.world import ALONE, World
from lmlab.training.energy_meter import CostTracker
from lmlab.training.evaluation import Evaluate
from lmlab.training.learner import Learner
from lmlab.training.metrics_log import MetricsLog, OnLog
from lmlab.training.micro_batches import divide
from lmlab.training.progress import TrainingProgress
from lmlab.training.schedule import learning_rate
from lmlab.training.settings import TrainConfig
from lmlab.training.step import States, Step
from lmlab.training.validation import Validation

ROUNDING = 1e-9
"""A step this close to the start of an epoch belongs to it, whatever the rounding of the division."""


class Trainer:
    """Trains a learner until the budget is spent, validation stops improving, or it is interrupted."""

    def __init__(
        self,
        learner: Learner,
        loader: Loader,
        config: TrainConfig,
        *,
        plan: StepPlan | None = None,
        evaluate: Evaluate | None = None,
        bytes_per_token: tuple[float, float] | None = None,
        checkpointer: Checkpointer | None = None,
        on_log: OnLog | None = None,
        on_begin: Callable[[TrainingProgress], None] = lambda progress: None,
        interrupted: Callable[[], bool] = lambda: False,
        world: World = ALONE,
    ) -> None:
        """Create the parts, and restore the last checkpoint if there is one.

        `plan` is what `plan_steps` returned, if it was called already. `evaluate` gives the validation loss in nats per
        prediction, and metrics. `bytes_per_token` of the training and the validation text turn losses into bits per
        byte. `on_begin` is called before the first step, if there is one to take. Training stops after the step in
        which `interrupted` returns True.
        """
        self.learner, self.loader, self.config, self.world = learner, loader, config, world
        self.plan = plan or plan_steps(learner, loader, config)
        self.train_step = Step(learner, loader, config, world=world)
        self.checkpointer = checkpointer
        self.on_begin, self.interrupted = on_begin, interrupted
        self.progress, self.states = self._restore()
        self.budget = BudgetTracker(parse_budget(config.budget), self.plan.steps, self.progress)
        self.costs = CostTracker(learner.device, find_grid(config.country), self.progress, world)
        self.metrics = MetricsLog(
            learner,
            self.progress,
            self.costs,
            world=world,
            bytes_per_token=bytes_per_token,
            checkpointer=checkpointer,
            on_log=on_log,
        )
        self.validation: Validation | None = None
        if evaluate is not None:
            self.validation = Validation(evaluate, self.train_step, self.budget, self.costs, self.metrics)

    def run(self) -> TrainingProgress:
        """Train; nothing is done or written if training has ended already and the settings do not extend it."""
        self._extend_if_allowed()
        try:
            if not self.progress.ended:
                self.on_begin(self.progress)
                self._take_steps()
                self._finish()
        finally:
            self.train_step.close()  # ends the thread that makes batches
            self.learner.eval()
        return self.progress

    def _take_steps(self) -> None:
        """The training loop."""
        progress = self.progress
        self.learner.train()
        while not progress.ended and not self.world.any(self.interrupted()):
            rate = self.learning_rate()
            result, self.states = self.train_step(progress.step, rate, self.states)
            progress.step += 1
            self.metrics.add(result)
            self.costs.add(training=True)
            progress.flops += self.plan.flops_per_step
            progress.fraction = min(1.0, self.budget.fraction())
            done = self.budget.is_spent()
            if done or progress.step % self.config.log_every == 0:
                self.metrics.log_training(rate)
            self.validate(final=done)
            if done and not progress.ended:
                progress.ended = "budget"
            if self.checkpointer is not None and not progress.ended and self.checkpointer.is_due():
                self.save()
                self.costs.add(training=False)

    def validate(self, *, final: bool) -> None:
        """Validate if it is time for it, or this was the `final` step; training ends if it stopped improving."""
        validation = self.validation
        if validation is None or not (final or validation.is_due()):
            return
        if not final and not validation.is_affordable():
            validation.skip()
            return
        validation.run()
        if self.stopped_improving():
            self.progress.ended = "early"

    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        steps_per_epoch = self.loader.steps_per_epoch / self.train_step.division.batches
        return learning_rate(
            self.config,
            step=self.progress.step,
            progress=self.budget.fraction(),
            plateau=self.progress.plateau,
            epoch=math.floor(self.progress.step / steps_per_epoch + ROUNDING),
        )

    def stopped_improving(self) -> bool:
        """Whether validation has not improved for as long as `train.patience` allows."""
        return self.config.patience is not None and self.progress.stale >= self.config.patience

    def save(self) -> None:
        """Write a checkpoint; weights that are not finite are never written."""
        if self.checkpointer is not None:
            self.metrics.add_pending()
            with torch.no_grad():
                own = [self.world.local(weights) for weights in self.learner.parameters()]
                largest_of_each = [float(weights.abs().max()) for weights in own if weights.numel()]
            largest = max(largest_of_each, key=_size)
            if self.world.sharded:
                largest = max(self.world.gather(largest), key=_size)
            self.metrics.check_finite(largest, "size of the weights")
            self.checkpointer.save(self.train_step, self.states, self.progress)

    def _restore(self) -> tuple[TrainingProgress, States]:
        found = None if self.checkpointer is None else self.checkpointer.load(self.train_step)
        return found or (TrainingProgress(), {})

    def _extend_if_allowed(self) -> None:
        """Continue a run that had ended if its budget or its patience was raised."""
        progress, spent = self.progress, self.budget.is_spent()
        if not spent and (progress.ended == "budget" or not self.stopped_improving()):
            progress.ended = ""
        if spent and not progress.ended and progress.step and self.plan.steps is not None:
            raise ValueError(
                f"a budget of {self.config.budget} is spent already, at step {progress.step}; give a larger one"
            )

    def _finish(self) -> None:
        """Write the last metrics, the weights if no validation chose the best, the total cost and a checkpoint."""
        self.metrics.add_pending()
        if self.checkpointer is not None and self.progress.ended:
            if self.validation is None:
                self.checkpointer.save_best(self.learner)
            total = self.costs.total(count_parameters(self.learner))
            self.checkpointer.log({"step": self.progress.step, **self.progress.units, **total})
        self.save()


class StepPlan(NamedTuple):
    """How many steps a budget pays for."""

    steps: int | None  # None for a budget in time
    flops_per_step: float


def plan_steps(learner: Learner, loader: Loader, config: TrainConfig, *, flops_before: float = 0.0) -> StepPlan:
    """Return the number of steps that the budget pays for, and set the loader's number of batches.

    `flops_before` are spent before the first step: a budget in FLOPs pays for them too.
    """
    batches = divide(config, loader).batches
    flops_per_step = learner.step_flops(loader) * batches
    steps = parse_budget(config.budget).steps(
        units_per_step={name: count * batches for name, count in loader.units_per_step.items()},
        steps_per_epoch=loader.steps_per_epoch / batches,
        flops_per_step=flops_per_step,
        flops_before=flops_before,
    )
    loader.plan(None if steps is None else steps * batches)
    return StepPlan(steps, flops_per_step)


def _size(value: float) -> tuple[bool, float]:
    """The order of sizes, in which NaN is the largest."""
    return math.isnan(value), value
