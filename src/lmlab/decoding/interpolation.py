"""Several models as one: a linear mixture of their distributions over the same vocabulary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lmlab.models.abilities import PredictsNext, State


class InterpolatedModel:
    """p(w | context) = sum over models of weight * p_model(w | context).

    Jelinek & Mercer 1980; Bengio et al. 2003, section 4, mix their net with a trigram in this way: the two err in
    different places. It meets the same protocol as its parts.
    """

    def __init__(self, models: Sequence[PredictsNext], *, weights: Sequence[float] | None = None) -> None:
        if not models:
            raise ValueError("a mixture needs at least one model")
        sizes = {model.vocabulary for model in models}
        if len(sizes) > 1:
            raise ValueError(f"models of a mixture share one vocabulary; these have {sorted(sizes)} tokens")
        if weights is None:
            weights = [1 / len(models)] * len(models)
        if len(weights) != len(models) or min(weights) < 0 or not math.isclose(sum(weights), 1.0, abs_tol=1e-6):
            raise ValueError(f"weights {list(weights)}: one per model is needed ({len(models)}), none negative, sum 1")
        self.models = list(models)
        self.weights = [weight / sum(weights) for weight in weights]

    def offers(self) -> tuple[object, ...]:
        return (self,)

    @property
    def vocabulary(self) -> int:
        return self.models[0].vocabulary

    @property
    def window(self) -> int | None:
        return min((model.window for model in self.models if model.window is not None), default=None)

    def start(self, batch_size: int, **inputs: Any) -> State:
        return tuple(model.start(batch_size, **inputs) for model in self.models)

    @property
    def device(self) -> torch.device:
        return self.models[0].device

    def step(self, tokens: Tensor, state: State, **inputs: Any) -> tuple[Tensor, State]:
        logs, states = [], []
        for model, old in zip(self.models, state, strict=True):
            logits, new = model.step(tokens.to(model.device), old)
            logs.append(logits.log_softmax(-1))
            states.append(new)
        return self._mix(logs), tuple(states)

    def score(self, tokens: Tensor, targets: Tensor, state: State) -> tuple[Tensor, State]:
        logs, states = [], []
        for model, old in zip(self.models, state, strict=True):
            device = model.device
            nats, new = model.score(tokens.to(device), targets.to(device), old)
            logs.append(-nats)
            states.append(new)
        return -self._mix(logs), tuple(states)

    def mix_nats(self, nats: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """The mixture's surprisal of each token, from that of each model."""
        logs = [math.log(weight) - part for weight, part in zip(self.weights, nats, strict=True) if weight > 0]
        return -np.asarray(np.logaddexp.reduce(logs, axis=0), dtype=np.float64)

    def _mix(self, logs: list[Tensor]) -> Tensor:
        terms = [log.to(self.device) + math.log(w) for w, log in zip(self.weights, logs, strict=True) if w > 0]
        return torch.logsumexp(torch.stack(terms), dim=0)


def learn_weights(nats: Sequence[NDArray[np.float64]], *, iterations: int = 2000) -> list[float]:
    """The weights under which held-out tokens are most probable, from each model's surprisal of them.

    Expectation-maximisation (Jelinek & Mercer 1980): the fraction of each model in a token's probability, averaged over
    the tokens, is its next weight. The likelihood has one maximum, so any start finds it.
    """
    logs = -np.stack(nats)  # [models, tokens]
    logs = logs[:, np.isfinite(logs).any(axis=0)]
    if logs.shape[1] == 0:
        raise ValueError("no held-out token to learn mixture weights from")
    probabilities = np.exp(logs - logs.max(axis=0))
    weights = np.full(len(nats), 1 / len(nats))
    for _ in range(iterations):
        fractions = weights[:, None] * probabilities
        fractions /= fractions.sum(axis=0)
        new = fractions.mean(axis=1)
        done = bool(np.abs(new - weights).max() < 1e-12)
        weights = new
        if done:
            break
    return [float(weight) for weight in weights / weights.sum()]
