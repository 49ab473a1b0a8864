"""Translations of one source, weighed against each other: what becomes of the nurse and of the programmer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lmlab.analysis.bias import LIMITS, target_bits
from lmlab.analysis.view import Viewed
from lmlab.pages.figures import Bar, Bars, Figure
from lmlab.pages.inspection import Table


class Weighed(NamedTuple):
    """A translation with its log₂ probability, and its share among those that were given."""

    target: str
    bits: float
    share: float


@dataclass(frozen=True)
class WeighedTranslations(Viewed):
    """How probable a translator finds several translations, best first."""

    source: str
    targets: list[Weighed]
    title: str = field(default="Translations weighed", init=False)

    def lead(self) -> str:
        best = self.targets[0]
        ahead = best.bits - self.targets[1].bits
        return f"“{self.source}” becomes “{best.target}”: {ahead:.1f} bits more probable than the next."

    def notes(self) -> list[str]:
        return [LIMITS]

    def table(self) -> Table:
        return Table(("target", "log2 P", "share"), self.targets, ("", ".2f", ".1%"))

    def figures(self) -> list[Figure]:
        return [Bars("Shares among these", [Bar(each.target, each.share) for each in self.targets], most=1.0)]


def weigh_translations(model: Any, source: str, targets: Sequence[str]) -> WeighedTranslations:
    """The translations of a source by P(target | source), as shares among those given."""
    if len(targets) < 2:
        raise ValueError(f"{len(targets)} translations of {source!r}: give two or more to weigh against each other")
    bits = target_bits(model, [source] * len(targets), targets)
    most = max(bits)
    total = sum(2 ** (each - most) for each in bits)
    found = [Weighed(text, each, 2 ** (each - most) / total) for text, each in zip(targets, bits, strict=True)]
    return WeighedTranslations(source, sorted(found, key=lambda each: -each.bits))
