"""The probe itself: a small classifier over vectors that stay as they are.

Shapes: N examples, D width, K classes.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ProbeKind = Literal["linear", "mlp"]
KINDS: tuple[ProbeKind, ...] = get_args(ProbeKind)
HIDDEN = 64
EPOCHS, BATCH = 12, 128
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


def fit(examples: Examples, *, classes: int, kind: ProbeKind = "linear", decay: float = 1e-3, seed: int = 0) -> Fitted:
    """A linear probe at its optimum (it is convex), or one with a hidden layer of 64 ReLUs, of the given examples."""
    x, y = examples
    mean, spread = x.mean(0), x.std(0, unbiased=False).clamp_min(1e-4)
    x = (x - mean) / spread
    generator = torch.Generator().manual_seed(seed)  # its own: several threads may fit at once
    network: nn.Module
    with torch.enable_grad():
        if kind == "mlp":
            parts = _linear(x.shape[1], HIDDEN, generator), nn.ReLU(), _linear(HIDDEN, classes, generator)
            network = nn.Sequential(*parts)
            _descend(network, x, y, decay=decay, generator=generator)
        else:
            network = _linear(x.shape[1], classes)
            _minimise(network, x, y, decay=decay)
    return Fitted(network.eval(), mean, spread)


def _linear(width: int, outputs: int, generator: torch.Generator | None = None) -> nn.Linear:
    """A linear layer of zeros, or with the weights that torch would draw."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, width, outputs)  # type: ignore[no-untyped-call]
    for parameter in (layer.weight, layer.bias):
        if generator is None:
            nn.init.zeros_(parameter)
        else:
            nn.init.uniform_(parameter, -1 / math.sqrt(width), 1 / math.sqrt(width), generator=generator)
    return layer


def _minimise(network: nn.Module, x: Tensor, y: Tensor, *, decay: float) -> None:
    weights = list(network.parameters())
    optimizer = torch.optim.LBFGS(weights, max_iter=60, history_size=12, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = F.cross_entropy(network(x), y) + decay * sum((w * w).sum() for w in weights if w.dim() > 1)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]


def _descend(network: nn.Module, x: Tensor, y: Tensor, *, decay: float, generator: torch.Generator) -> None:
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=decay)
    for _ in range(EPOCHS):
        for rows in torch.split(torch.randperm(len(x), generator=generator), BATCH):
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
    order = torch.randperm(len(examples.labels), generator=torch.Generator().manual_seed(seed))
    x, y = examples.vectors[order], examples.labels[order]
    sizes = {max(classes, round(portion * len(y))) for portion in PORTIONS}
    ends = sorted({size for size in sizes if size < len(y)} | {len(y)})
    bits = ends[0] * math.log2(classes)
    for first, last in pairwise(ends):
        fitted = fit(Examples(x[:first], y[:first]), classes=classes, kind=kind, seed=seed)
        chosen = fitted.log_probabilities(x[first:last]).gather(1, y[first:last, None])
        bits -= float(chosen.double().sum()) / math.log(2)
    return bits
