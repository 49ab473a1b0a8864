"""Two ways to read attention: through all layers at once, and from one word to another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from lmlab.analysis.attention import Attention, Weights
from lmlab.analysis.view import Viewed
from lmlab.pages.figures import Bar, Bars, Figure, Heatmap
from lmlab.pages.inspection import Table

MOST_BARS = 24


@dataclass(frozen=True)
class Rollout(Viewed):
    """How much of each token reaches each other through all layers (Abnar & Zuidema 2020)."""

    tokens: list[str]
    weights: Weights  # [T, T]
    title: str = field(default="Attention rollout", init=False)

    @classmethod
    def of(cls, attention: Attention) -> Rollout:
        """That of a text's attention to itself."""
        return cls(attention.queries, attention.rollout())

    def lead(self) -> str:
        return f"What each of {len(self.tokens)} tokens has of the others after all layers; each row sums to 1."

    def table(self) -> Table:
        rows = [(token, *map(float, row)) for token, row in zip(self.tokens, self.weights, strict=True)]
        return Table(("token", *self.tokens), rows, ("", *[".2f"] * len(self.tokens)))

    def figures(self) -> list[Figure]:
        return [Heatmap("Rollout", self.tokens, self.tokens, self.weights.tolist(), unit=".1%")]


class Link(NamedTuple):
    """How much a head looks from the one word to the other."""

    layer: int
    head: int
    weight: float


@dataclass(frozen=True)
class Links(Viewed):
    """The heads that look most from one word to another: "it" to "cat", a verb to its object (Clark et al. 2019)."""

    source: str
    target: str
    links: list[Link]
    title: str = field(default="Heads that look from word to word", init=False)

    @classmethod
    def of(cls, attention: Attention, source: str, target: str) -> Links:
        """The heads of a text's attention, best first."""
        return cls(source, target, [Link(*each) for each in attention.looking(source, target)])

    def lead(self) -> str:
        best = self.links[0]
        return (
            f"Head {best.head} of layer {best.layer} looks most from “{self.source}” to “{self.target}”: "
            f"{best.weight:.1%} of its attention there."
        )

    def notes(self) -> list[str]:
        return ["the best of many heads on one text is no finding: try it on other texts"]

    def table(self) -> Table:
        return Table(("layer", "head", "weight"), self.links, ("d", "d", ".1%"))

    def figures(self) -> list[Figure]:
        bars = [Bar(f"layer {each.layer}, head {each.head}", each.weight) for each in self.links[:MOST_BARS]]
        return [Bars(f"From “{self.source}” to “{self.target}”", bars)]
