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


class Mixed(NamedTuple):
    """A run, its task, the weight of each layer (the embeddings first; they sum to 1), and γ."""

    run: str
    task: str
    shares: list[float]
    gamma: float


@dataclass(frozen=True)
class TaskLayers(Viewed):
    """The layer mixes of several runs."""

    runs: list[Mixed]
    title: str = field(default="Layers by task", init=False)

    def lead(self) -> str:
        parts = []
        for each in self.runs:
            best = max(range(len(each.shares)), key=lambda i: each.shares[i])
            what = f"layer {best} most ({each.shares[best]:.1%})"
            if each.shares[best] < ALIKE / len(each.shares):
                what = f"all layers alike ({min(each.shares):.1%} to {each.shares[best]:.1%})"
            parts.append(f"{each.run} ({each.task}) reads {what}")
        return "; ".join(parts) + "."

    def notes(self) -> list[str]:
        return ["layer 0 are the embeddings; a mix starts even, so that small differences mean little"]

    def table(self) -> Table:
        most = max(len(each.shares) for each in self.runs)
        rows = [
            (each.run, each.task, each.gamma, *each.shares, *[None] * (most - len(each.shares))) for each in self.runs
        ]
        columns = ("run", "task", "gamma", *(f"layer {i}" for i in range(most)))
        return Table(columns, rows, ("", "", ".2f", *[".1%"] * most))

    def figures(self) -> list[Figure]:
        most = max(len(each.shares) for each in self.runs)
        values = [[*each.shares, *[0.0] * (most - len(each.shares))] for each in self.runs]
        names = [f"{each.run} · {each.task}" for each in self.runs]
        strongest = max(2 / most, *(share for row in values for share in row))  # so that an even mix is half coloured
        layers = [f"layer {i}" for i in range(most)]
        figures: list[Figure] = [
            Heatmap("Share of each layer", names, layers, values, most=strongest, unit=".1%", cell=36)
        ]
        for each, name in zip(self.runs, names, strict=True):
            bars = [Bar(f"layer {i}", share) for i, share in enumerate(each.shares)]
            even = 1 / len(each.shares)
            figures.append(Bars(f"{name}, an even mix dotted", bars, most=strongest, line=even))
        return figures


def describe_mix(run: str, task: str, mix: Mapping[str, Tensor]) -> Mixed:
    """The mix of a run by its `scores` and `gamma` (`checkpoint.read_mix`)."""
    return Mixed(run, task, mix["scores"].double().softmax(0).tolist(), float(mix.get("gamma", 1.0)))
