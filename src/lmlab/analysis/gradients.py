"""How far back a model learns: the gradient that reaches a token, by its distance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lmlab.analysis.view import Viewed
from lmlab.layers.watching import watching
from lmlab.models import name_of
from lmlab.models.model import NextTokenModel
from lmlab.pages.figures import Figure, Lines
from lmlab.pages.inspection import Table

STRETCHES, AT_ONCE = 64, 16
"""Stretches of a text over which the mean is taken, and those that are read at once."""


def gradient_by_distance(model: NextTokenModel, tokens: Tensor) -> Tensor:
    """‖∂ loss / ∂ x_{T−d}‖ for each distance d: how much the last prediction depends on the embedding d tokens back.

    tokens [B, T+1] -> mean norm over the batch [T]; entry 0 belongs to the token just before the predicted one. In a
    simple RNN it falls (vanishes) or grows (explodes) exponentially with d, because ∂h_t/∂h_{t−d} is a product of d
    Jacobians (Bengio et al. 1994, Pascanu et al. 2013); gates are there to keep it up.
    """
    if tokens.dim() != 2 or tokens.shape[1] < 2:
        raise ValueError(f"tokens of shape {tuple(tokens.shape)}: give [B, T+1] with T of at least 1")
    was_training = model.training
    try:
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False), watching(model, "embedding") as seen:
            hidden = model.eval()(tokens[:, :-1]).hidden[:, -1]
            loss = model.nll(hidden, tokens[:, -1]).sum()
            (gradient,) = torch.autograd.grad(loss, seen["embedding"][-1])  # [B, T, D]
    finally:
        model.train(was_training)
    length = tokens.shape[1] - 1
    norms: Tensor = torch.linalg.vector_norm(gradient[:, -length:], dim=-1)
    return torch.flip(norms.mean(dim=0), [0])


class Reach(NamedTuple):
    """The mean norm of the gradient at each distance: the first is that of the token just before the predicted one."""

    run: str
    norms: list[float]

    def share(self, distance: int) -> float:
        """What is left of the gradient at a distance, which is 1 for the token just before."""
        return self.norms[distance - 1] / self.norms[0] if self.norms[0] else math.nan


@dataclass(frozen=True)
class GradientsByDistance(Viewed):
    """How far back the predictions of runs depend on what was read."""

    runs: list[Reach]
    stretches: int
    title: str = field(default="Gradients by distance", init=False)

    @property
    def farthest(self) -> int:
        return min(len(each.norms) for each in self.runs)

    def lead(self) -> str:
        told = ", ".join(f"{each.share(self.farthest):.2g} in {each.run}" for each in self.runs)
        return f"Of the gradient just before a prediction, this share is left {self.farthest} tokens back: {told}."

    def notes(self) -> list[str]:
        return [
            f"mean over {self.stretches} stretches of text, each read from a fresh state, in a run's own tokens",
            "in a simple RNN it falls or grows exponentially (Bengio et al. 1994, Pascanu et al. 2013); what a "
            "gradient reaches can be learnt from, but need not be",
        ]

    def table(self) -> Table:
        rows = [(d, *(each.norms[d - 1] for each in self.runs)) for d in range(1, self.farthest + 1)]
        return Table(("distance", *(each.run for each in self.runs)), rows, ("d", *[".3g"] * len(self.runs)))

    def figures(self) -> list[Figure]:
        steps = [str(distance) for distance in range(1, self.farthest + 1)]
        shares = [(each.run, [each.share(d) for d in range(1, self.farthest + 1)]) for each in self.runs]
        lines = [(run, [math.log10(share) if share > 0 else math.nan for share in own]) for run, own in shares]
        return [Lines("log₁₀ of the norm, against that at distance 1", steps, lines, ".1f", "tokens back")]


def read_gradients(models: Mapping[str, Any], text: str, *, distance: int = 32) -> GradientsByDistance:
    """How far back LanguageModels that predict the next token depend on a text, as a mean over stretches of it."""
    if distance < 2:
        raise ValueError(f"distance = {distance}: give 2 or more")
    found, fewest = [], STRETCHES
    for name, model in models.items():
        network = model.model
        if not isinstance(network, NextTokenModel) or "embedding" not in dict(network.named_children()):
            raise ValueError(
                f"{name}: {name_of(network)} has no gradients from the next token to embeddings; take a neural "
                "model that predicts the next token, such as rnn, lstm or gpt2"
            )
        if network.window is not None and network.window < distance:
            raise ValueError(f"distance = {distance}: {name} reads at most {network.window} tokens; give fewer")
        ids = torch.tensor(model.text_tokenizer.encode(text), dtype=torch.long, device=network.device)
        count = min(STRETCHES, len(ids) // (distance + 1))
        if not count:
            raise ValueError(f"{len(ids)} tokens of text for {name}: give more than {distance}, or a lower distance")
        apart = len(ids) // count
        rows = torch.stack([ids[n * apart : n * apart + distance + 1] for n in range(count)])  # [B, T+1]
        parts = [gradient_by_distance(network, part) * len(part) for part in torch.split(rows, AT_ONCE)]
        found.append(Reach(name, (torch.stack(parts).sum(0) / count).double().tolist()))
        fewest = min(fewest, count)
    return GradientsByDistance(found, fewest)
