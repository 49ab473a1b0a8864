"""Validation during training: when it is due, what it finds, and which weights are the best so far."""

from __future__ import annotations

from lmlab.training.budget import BudgetTracker
from lmlab.training.energy_meter import CostTracker
from lmlab.training.evaluation import Evaluate, Evaluation
from lmlab.training.metrics_log import MetricsLog
from lmlab.training.step import Step
from lmlab.training.weight_average import plateaued

TIME_FRACTION = 0.5
"""The time that all validations may take under a budget in time, as a fraction of the time of training."""


class Validation:
    """Validates at regular intervals, keeps the best weights, and lowers the learning rate on a plateau."""

    def __init__(
        self, evaluate: Evaluate, train_step: Step, budget: BudgetTracker, costs: CostTracker, metrics: MetricsLog
    ) -> None:
        self.evaluate, self.train_step, self.budget = evaluate, train_step, budget
        self.costs, self.metrics = costs, metrics
        self.config, self.progress, self.checkpointer = train_step.config, budget.progress, metrics.checkpointer
        self.time_limited = budget.steps is None and self.config.evaluate_every is None
        """Only under a budget in time, so that the results of no other budget depend on a clock."""

    def is_due(self) -> bool:
        """Whether the settings ask for a validation after this step."""
        every, progress = self.config.evaluate_every, self.progress
        if every is not None:
            return progress.step % every == 0
        return self.budget.fraction() * self.config.evaluations >= progress.evaluations + 1

    def is_affordable(self) -> bool:
        """Whether one more validation before the final one leaves all of them within their fraction of the time."""
        total, last = self.progress.validation_seconds
        so_far, in_all = TIME_FRACTION * self.progress.seconds, TIME_FRACTION * self.budget.budget.amount
        return not self.time_limited or not total or (total + last <= so_far and total + 2 * last <= in_all)

    def skip(self) -> None:
        """Count a validation that is due but not affordable, so that the next one is due when it would have been."""
        self.progress.evaluations += 1

    def run(self) -> None:
        """Validate with the weights that users would get, and log the result."""
        progress, average = self.progress, self.train_step.average
        self.costs.add(training=True)
        progress.evaluations += 1
        with average.in_place():
            found, better = self._evaluate()
        if self.config.average is not None:
            if not average.begun and plateaued(found.loss, progress.losses, validations=self.config.average):
                average.begin()
            progress.losses.append(found.loss)
        seconds = self.costs.add(training=False)
        progress.validation_seconds = (progress.validation_seconds[0] + seconds, seconds)
        self.metrics.log_validation(found, better=better)

    def _evaluate(self) -> tuple[Evaluation, bool]:
        """Evaluate, and save the weights if they are the best so far; return the result and whether they are."""
        progress, learner = self.progress, self.train_step.learner
        seconds = TIME_FRACTION / 2 * self.budget.budget.amount if self.time_limited else None
        found = self._measure(seconds)
        if self.time_limited:
            progress.evaluation_batches = dict(found.batches)
        progress.valid = self.metrics.check_finite(found.loss, "validation loss")
        better = found.improves(progress.best, progress.best_metrics, watch=self.config.watch)
        if better:
            progress.best, progress.best_metrics, progress.best_step = found.loss, dict(found.values), progress.step
            progress.best_bits = self.metrics.bits_of(found)
            progress.stale = progress.plateau_stale = 0
            if self.checkpointer is not None:
                self.checkpointer.save_best(learner)
        else:
            self._count_stale()
        if self.checkpointer is not None:
            self.checkpointer.keep(learner, progress.step)
        return found, better

    def _measure(self, seconds: float | None) -> Evaluation:
        """The result of process 0, in every process; the others measure too if the weights are divided among them."""
        world, batches = self.train_step.world, self.progress.evaluation_batches
        if not world.writes and not world.sharded:
            return Evaluation(**world.broadcast({}))
        found = self.evaluate(batches, seconds=None if world.sharded else seconds)  # clocks differ
        return Evaluation(**world.broadcast(found._asdict() | {"batches": dict(found.batches)}))

    def _count_stale(self) -> None:
        """Count a validation without improvement; after several of them the learning rate is lowered."""
        progress = self.progress
        progress.stale += 1
        progress.plateau_stale += 1
        if progress.plateau_stale >= self.config.plateau_patience:
            progress.plateau *= self.config.plateau_factor
            progress.plateau_stale = 0
