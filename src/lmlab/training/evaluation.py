"""Evaluation on held-out data during training: the loss of the objective, and its metrics."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import torch

from lmlab.config import suggest
from lmlab.data.loaders.loader import Loader
from lmlab.metrics.metric import Direction, StreamingMetric
from lmlab.models.abilities import State
from lmlab.training.devices import own_randomness
from lmlab.training.learner import Learner
from lmlab.training.prefetch import make_batch


class Evaluation(NamedTuple):
    """The result of a validation: nats per prediction, and metrics by name, each with its direction."""

    loss: float
    values: dict[str, float]
    better: Mapping[str, Direction] = {}
    batches: Mapping[str, int] = {}  # read, by part; a split without parts has one part with an empty name

    def improves(self, loss: float | None, values: Mapping[str, float], *, watch: str) -> bool:
        """Whether the metric `watch` is better than in an earlier evaluation with this loss and these values.

        If the values are equal (a BLEU of 0), or neither is finite, the lower loss is better.
        """
        if watch != "loss" and watch not in self.values:
            raise ValueError(f"train.watch = {watch!r}{suggest(watch, ['loss', *self.values])}")
        if loss is None:
            return True
        now = self.loss if watch == "loss" else self.values[watch]
        before = loss if watch == "loss" else values.get(watch, now)
        if math.isfinite(now) != math.isfinite(before):
            return math.isfinite(now)
        if watch == "loss" or not math.isfinite(now) or now == before:
            return self.loss < loss
        return (now > before) == (self.better.get(watch) == "higher")


class Evaluate(Protocol):
    """Evaluates on the same part of held-out data each time.

    The first evaluation may have a limit of `seconds`; the `batches` that it returns are then passed to all later ones,
    so that they read the same data and can be compared.
    """

    def __call__(self, batches: Mapping[str, int] = ..., *, seconds: float | None = None) -> Evaluation: ...


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients within this block, then training mode."""
    module.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        module.train()


@dataclass
class Validator:
    """Evaluates a learner on the same part of held-out data each time.

    Masked tokens and the random numbers of the model are the same each time, and the random numbers of training do not
    depend on validation.
    """

    learner: Learner
    loader: Loader
    steps: int
    more: Mapping[str, tuple[Callable[[], StreamingMetric], Callable[[], Iterable[Any]]]] = field(default_factory=dict)
    """Metrics that are not computed with the loss, such as BLEU: what creates the metric, and what gives its data."""

    def __call__(
        self, batches: Mapping[str, int] = MappingProxyType({}), *, seconds: float | None = None
    ) -> Evaluation:
        began, steps = time.monotonic(), batches.get("", self.steps)
        objective = self.learner.objective
        metrics = {name: make() for name, make in objective.watched_metrics.items()}
        sums, counts = dict.fromkeys(objective.loss_weights, 0.0), dict.fromkeys(objective.loss_weights, 0)
        seen: set[str] = set()
        state: State = None
        with evaluating(self.learner), own_randomness(self.learner.device, seed=0):
            for step in range(steps):
                batch = make_batch(objective, self.loader, step, seed=0).to(self.learner.device)
                if not self.learner.stateful or self.loader.restarts(step):
                    state = None
                loss = self.learner(batch, state)
                state = loss.state
                for name in objective.loss_weights:
                    sums[name] += float(loss.sums[name])
                    counts[name] += batch.counts[name]
                for name, watched in loss.watched.items():
                    metrics[name].add(watched)
                    seen.add(name)
                if seconds is not None and not batches and time.monotonic() - began > seconds:
                    steps = step + 1
                    break
            for name, (make, show) in self.more.items():
                metrics[name] = make()
                seen.add(name)
                for watched in show():
                    metrics[name].add(watched)
        main, *others = objective.loss_weights
        means = {name: sums[name] / max(1, counts[name]) for name in objective.loss_weights}
        values = {term_name(name, objective.loss_weights): means[name] for name in others}
        values |= {name: metrics[name].value() for name in metrics if name in seen}
        better = {name: metric.better for name, metric in metrics.items()}
        return Evaluation(means[main], values, better, {"": steps})


def term_name(term: str, weights: Mapping[str, float]) -> str:
    """The name in the metrics of a term of the loss that is not the main one; terms of weight 0 keep their name."""
    return f"{term}_loss" if weights[term] else term


def evaluate_parts(
    parts: Mapping[str, Evaluate], batches: Mapping[str, int] = MappingProxyType({}), *, seconds: float | None = None
) -> Evaluation:
    """The loss of each part (a language), and their mean, in which all parts have the same weight."""
    each = None if seconds is None else seconds / len(parts)
    found = {
        name: evaluate({"": batches[name]} if name in batches else {}, seconds=each) for name, evaluate in parts.items()
    }
    first = next(iter(found.values()))
    values = {name: sum(one.values[name] for one in found.values()) / len(found) for name in first.values}
    losses = {f"{name}_loss": one.loss for name, one in found.items()}
    read = {name: one.batches[""] for name, one in found.items()}
    return Evaluation(sum(losses.values()) / len(losses), {**values, **losses}, first.better, read)
