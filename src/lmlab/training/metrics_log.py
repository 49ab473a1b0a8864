"""The metrics of a training run: collected from its steps, written as lines of `metrics.jsonl`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lmlab.training.checkpointer import Checkpointer
from lmlab.training.distributed.world import World
from lmlab.training.energy_meter import CostTracker
from lmlab.training.evaluation import Evaluation, term_name
from lmlab.training.learner import Learner
from lmlab.training.progress import TrainingProgress
from lmlab.training.step import StepResult
from lmlab.units import bits_per_byte

OnLog = Callable[[dict[str, Any], TrainingProgress], None]
"""A function that is called with each line of metrics."""
WATCHED, COUNTED = "watched ", "counted "
"""Begin the names of metrics and of their counts among the sums of a step."""


class NotFiniteError(ValueError):
    """The loss or its gradient became infinite or NaN."""


class MetricsLog:
    """Adds up the results of steps since the last line of metrics, and writes lines."""

    def __init__(
        self,
        learner: Learner,
        progress: TrainingProgress,
        costs: CostTracker,
        *,
        world: World,
        bytes_per_token: tuple[float, float] | None,
        checkpointer: Checkpointer | None,
        on_log: OnLog | None,
    ) -> None:
        self.weights, self.progress, self.costs, self.world = learner.objective.loss_weights, progress, costs, world
        self.bytes_per_token, self.checkpointer, self.on_log = bytes_per_token, checkpointer, on_log
        self.pending: list[StepResult] = []
        self.reads_at_once = learner.device.type == "cpu"
        """On other devices reading a number waits for all work, so it is done once per line of metrics."""

    def add(self, result: StepResult) -> None:
        """Collect the result of the step that was just taken."""
        progress = self.progress
        self.pending.append(result)
        progress.units = {name: progress.units.get(name, 0) + count for name, count in result.units.items()}
        if self.reads_at_once:
            self.add_pending()

    def add_pending(self) -> None:
        """Add the losses and gradients of all pending steps to the progress; a NotFiniteError names the step."""
        progress, weights = self.progress, self.weights
        main = next(iter(weights))
        for number, result in enumerate(self.pending, start=progress.step - len(self.pending) + 1):
            amounts: dict[str, list[float]] = {name: values.tolist() for name, values in result.sums.items()}
            for name, (values, counts) in result.watched.items():
                amounts |= {f"{WATCHED}{name}": values.tolist(), f"{COUNTED}{name}": list(map(float, counts))}
            sums = self.world.totals(amounts)
            progress.loss_sum += self.check_finite(sums[main], "loss", step=number)
            progress.loss_count += result.counts[main]
            progress.gradient = self.check_finite(float(result.gradient), "gradient", step=number)
            for name in weights:
                if name != main:
                    self._add_metric(term_name(name, weights), sums[name], result.counts[name])
            for name in (each.removeprefix(WATCHED) for each in sums if each.startswith(WATCHED)):
                self._add_metric(name, sums[f"{WATCHED}{name}"], int(sums[f"{COUNTED}{name}"]))
        self.pending.clear()

    def _add_metric(self, name: str, value: float, count: int) -> None:
        total, number = self.progress.metric_sums.get(name, (0.0, 0))
        self.progress.metric_sums[name] = (total + value, number + count)

    def log_training(self, rate: float) -> None:
        """Write a line with the means over the steps since the last line."""
        self.add_pending()
        progress = self.progress
        mean = progress.loss_sum / max(1, progress.loss_count)
        metrics = {name: total / max(1, count) for name, (total, count) in progress.metric_sums.items()}
        nats = metrics.get("nats", mean)  # the plain loss, if training minimises a smoothed one
        progress.loss_sum, progress.loss_count, progress.metric_sums = 0.0, 0, {}
        bits = None if self.bytes_per_token is None else bits_per_byte(nats, self.bytes_per_token[0])
        self._write({"loss": mean, "bits_per_byte": bits, **metrics, "rate": rate, "gradient": progress.gradient})

    def log_validation(self, found: Evaluation, *, better: bool) -> None:
        """Write a line with the result of a validation."""
        values = {f"valid_{name}": value for name, value in found.values.items()}
        self._write({"valid_loss": found.loss, "valid_bits_per_byte": self.bits_of(found), **values, "best": better})

    def bits_of(self, found: Evaluation) -> float | None:
        """Bits per byte of the validation text, if the loss is its likelihood."""
        if self.bytes_per_token is None:
            return None
        return bits_per_byte(found.values.get("nats", found.loss), self.bytes_per_token[1])

    def check_finite(self, value: float, what: str, *, step: int | None = None) -> float:
        """The value; a NotFiniteError if it is infinite or NaN."""
        if math.isfinite(value):
            return value
        step = self.progress.step if step is None else step
        resumable = self.checkpointer is not None
        kept = "; the last good checkpoint is kept, resume from it with --resume and" if resumable else ": try"
        raise NotFiniteError(
            f"the {what} became {value} at step {step}{kept} a lower --set train.rate (or more warm-up)"
        )

    def _write(self, values: dict[str, Any]) -> None:
        progress = self.progress
        line = {"step": progress.step, **progress.units, "flops": progress.flops, **values, "cost": self.costs.so_far()}
        if self.checkpointer is not None:
            self.checkpointer.log(line)
        if self.on_log is not None and self.world.writes:
            self.on_log(line, progress)
