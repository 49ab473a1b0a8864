"""The probe itself: a small classifier over vectors that stay as they are.

Shapes: N examples, D width, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ProbeKind = Literal["linear", "mlp"]
KINDS: tuple[ProbeKind, ...] = get_args(ProbeKind)
HIDDEN = 64
PORTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""Of the data, after which the code is learnt anew (Voita & Titov 2020, section 3.2)."""


class Examples(NamedTuple):
    """Vectors [N, D] and the numbers of their classes [N]."""

    vectors: Tensor
    labels: Tensor


class Fitted(NamedTuple):
    """A probe with the mean and spread by which vectors are scaled for it."""

    network: nn.Module
    mean: Tensor
    spread: Tensor

    @torch.no_grad()
    def log_probabilities(self, vectors: Tensor) -> Tensor:
        """[N, D] -> [N, K]."""
        scores: Tensor = self.network((vectors - self.mean) / self.spread)
        return scores.log_softmax(-1)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random numbers of a seed inside, and those of outside as if nothing had been."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def fit(examples: Examples, *, classes: int, kind: ProbeKind = "linear", decay: float = 1e-3, seed: int = 0) -> Fitted:
    """A linear probe at its optimum (it is convex), or one with a hidden layer of 64 ReLUs, of the given examples."""
    x, y = examples
    mean, spread = x.mean(0), x.std(0, unbiased=False).clamp_min(1e-4)
    x = (x - mean) / spread
    with seeded(seed), torch.enable_grad():
        network: nn.Module = nn.Linear(x.shape[1], classes)
        if kind == "mlp":
            network = nn.Sequential(nn.Linear(x.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, classes))
            _descend(network, x, y, decay=decay)
        else:
            nn.init.zeros_(network.weight)  # type: ignore[arg-type]
            nn.init.zeros_(network.bias)  # type: ignore[arg-type]
            _minimise(network, x, y, decay=decay)
    return Fitted(network.eval(), mean, spread)


def _minimise(network: nn.Module, x: Tensor, y: Tensor, *, decay: float) -> None:
    weights = list(network.parameters())
    optimizer = torch.optim.LBFGS(weights, max_iter=60, history_size=12, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = F.cross_entropy(network(x), y) + decay * sum((w * w).sum() for w in weights if w.dim() > 1)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]


def _descend(network: nn.Module, x: Tensor, y: Tensor, *, decay: float, epochs: int = 12, batch: int = 128) -> None:
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=decay)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(x)), batch):
            optimizer.zero_grad()
            F.cross_entropy(network(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def accuracy_counts(fitted: Fitted, examples: Examples) -> int:
    """How many examples are right."""
    return int((fitted.log_probabilities(examples.vectors).argmax(-1) == examples.labels).sum())


def description_length(examples: Examples, *, classes: int, kind: ProbeKind = "linear", seed: int = 0) -> float:
    """Bits in which the labels can be sent to somebody who has the vectors: online code (Voita & Titov 2020, eq. 3).

    The first portion is sent by the uniform code, each later one by a probe fitted to all before it.
    """
    with seeded(seed):
        order = torch.randperm(len(examples.labels))
    x, y = examples.vectors[order], examples.labels[order]
    sizes = {max(classes, round(portion * len(y))) for portion in PORTIONS}
    ends = sorted({size for size in sizes if size < len(y)} | {len(y)})
    bits = ends[0] * math.log2(classes)
    for first, last in pairwise(ends):
        fitted = fit(Examples(x[:first], y[:first]), classes=classes, kind=kind, seed=seed)
        chosen = fitted.log_probabilities(x[first:last]).gather(1, y[first:last, None])
        bits -= float(chosen.double().sum()) / math.log(2)
    return bits
