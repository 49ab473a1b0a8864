"""Layer mix: the weight that a fine-tuned run learnt for each layer (Peters et al. 2018, figure 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from lmlab.analysis.view import Viewed
from lmlab.pages.figures import Bar, Bars, Figure, Heatmap
from lmlab.pages.views import Table

ALIKE = 1.1
"""The largest weight must be this many times the even one for a layer to be named as the most used."""


class LearntMix(NamedTuple):
    """A run, its task, the weight of each layer (the embeddings first; they sum to 1), and γ."""

    run: str
    task: str
    weights: list[float]
    gamma: float


@dataclass(frozen=True)
class TaskLayers(Viewed):
    """The layer mixes of several runs."""

    runs: list[LearntMix]
    title: str = field(default="Layers by task", init=False)

    def lead(self) -> str:
        parts = []
        for each in self.runs:
            best = max(range(len(each.weights)), key=lambda i: each.weights[i])
            what = f"layer {best} most ({each.weights[best]:.1%})"
            if each.weights[best] < ALIKE / len(each.weights):
                what = f"all layers alike ({min(each.weights):.1%} to {each.weights[best]:.1%})"
            parts.append(f"{each.run} ({each.task}) reads {what}")
        return "; ".join(parts) + "."

    def notes(self) -> list[str]:
        return ["layer 0 are the embeddings; a mix starts even, so that small differences mean little"]

    def table(self) -> Table:
        most = max(len(each.weights) for each in self.runs)
        rows = [
            (each.run, each.task, each.gamma, *each.weights, *[None] * (most - len(each.weights))) for each in self.runs
        ]
        columns = ("run", "task", "gamma", *(f"layer {i}" for i in range(most)))
        return Table(columns, rows, ("", "", ".2f", *[".1%"] * most))

    def figures(self) -> list[Figure]:
        most = max(len(each.weights) for each in self.runs)
        values = [[*each.weights, *[0.0] * (most - len(each.weights))] for each in self.runs]
        names = [f"{each.run} · {each.task}" for each in self.runs]
        strongest = max(2 / most, *(weight for row in values for weight in row))  # so that an even mix is half coloured
        layers = [f"layer {i}" for i in range(most)]
        figures: list[Figure] = [
            Heatmap("Fraction of each layer", names, layers, values, most=strongest, unit=".1%", cell=36)
        ]
        for each, name in zip(self.runs, names, strict=True):
            bars = [Bar(f"layer {i}", weight) for i, weight in enumerate(each.weights)]
            even = 1 / len(each.weights)
            figures.append(Bars(f"{name}, an even mix dotted", bars, most=strongest, line=even))
        return figures


def describe_mix(run: str, task: str, mix: Mapping[str, Tensor]) -> LearntMix:
    """The mix of a run by its `scores` and `gamma` (`checkpoint.read_mix`)."""
    return LearntMix(run, task, mix["scores"].double().softmax(0).tolist(), float(mix.get("gamma", 1.0)))
