"""How well a model does on held-out text while it learns: the loss of its own objective, and what else is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from lmlab.config import suggest
from lmlab.data.batches.loaders import Loader
from lmlab.models.abilities import State
from lmlab.models.model import Model
from lmlab.objectives.objective import Loss, Objective
from lmlab.training.ahead import make_batch


class Evaluation(NamedTuple):
    """What validation gives: nats per prediction, and what else was measured (losses apart, the more the better)."""

    loss: float
    measures: dict[str, float]

    def cost(self, watch: str) -> tuple[float, float]:
        """What early stopping and the choice of the best weights look at: the lower, the better.

        Of the same measure (a BLEU of 0, say) the lower loss is the better one.
        """
        if watch == "loss":
            return self.loss, self.loss
        if watch not in self.measures:
            raise ValueError(f"train.watch = {watch!r}{suggest(watch, ['loss', *self.measures])}")
        return self.measures[watch] if watch.endswith("_loss") else -self.measures[watch], self.loss


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """Dropout off and no gradients, then back to training."""
    model.eval()
    with torch.inference_mode():
        yield
    model.train()


def mean_loss(model: Model, objective: Objective, loader: Loader, *, steps: int) -> Evaluation:
    """The loss per prediction, and the measures, over the first `steps` batches; state carried where the model does.

    The blanks are the same each time, and so are the random numbers of a model that draws some: what training draws
    does not depend on whether it was watched.
    """
    total, count = 0.0, 0
    measures: dict[str, tuple[float, int]] = {}
    state: State = None
    with evaluating(model), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for step in range(steps):
            batch = make_batch(objective, loader, step, seed=0).to(model.device)
            if not model.carries or loader.restarts(step):
                state = None
            loss, state = objective.loss(model, batch, state)
            total, count = total + float(loss.total), count + loss.count
            measures = add_measures(measures, sums(loss))
    return Evaluation(total / max(1, count), means(measures))


def sums(loss: Loss) -> dict[str, tuple[float, int]]:
    """The measures of a loss, and its further terms, as plain numbers."""
    terms = {f"{name}_loss": (float(term.total.detach()), term.count) for name, term in loss.terms.items()}
    return terms | {name: (float(total), count) for name, (total, count) in loss.measures.items()}


def add_measures(
    some: dict[str, tuple[float, int]], more: dict[str, tuple[float, int]]
) -> dict[str, tuple[float, int]]:
    """Sums and counts by name, added up."""
    both = {
        name: (total + some.get(name, (0.0, 0))[0], n + some.get(name, (0.0, 0))[1])
        for name, (total, n) in more.items()
    }
    return {**some, **both}


def means(measures: dict[str, tuple[float, int]]) -> dict[str, float]:
    """Each sum over its count."""
    return {name: total / max(1, count) for name, (total, count) in measures.items()}
