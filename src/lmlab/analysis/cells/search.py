"""The units that best detect a property of positions in a text, found on one part of it and tested on another.

Of thousands of units some follow anything by chance, so those that do best on the first half are tested by their area
under the ROC curve on the second half. That half has no part in choosing them, nor in which of them is named first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from lmlab.analysis.cells.activations import Read, cut_at_tokens, read_cells
from lmlab.analysis.cells.properties import Marks, Property
from lmlab.analysis.view import Viewed
from lmlab.metrics.auc import areas
from lmlab.pages.figures import Bar, Bars, ColouredText, Figure
from lmlab.pages.views import Table

TOP = 20
EXCERPT = 1200
"""Characters of the held-out text that are shown in colour."""
FEWEST = 20
"""Tokens that must have a property, and that must not, in either half."""


class FoundCell(NamedTuple):
    """A unit, with its area under the curve where it was chosen and on held-out text; `sign` is −1 if it falls."""

    layer: int
    part: str
    unit: int
    sign: int
    searched: float
    held_out: float


@dataclass(frozen=True)
class CellSearch(Viewed):
    """Units that detect a property, the best on the searched half first."""

    name: str
    found: list[FoundCell]
    units: int
    tokens: tuple[int, int]
    fraction: float
    excerpt: list[tuple[str, float]]
    """The first unit over the beginning of the held-out text, −1 … 1: above zero it says that the property holds."""
    title: str = field(default="Units that detect a property", init=False)

    def lead(self) -> str:
        best = self.found[0]
        return (
            f"Unit {best.unit} of {best.part}, layer {best.layer}, detects “{self.name}” with an AUC of "
            f"{best.held_out:.3f} on held-out text ({self.units:,} units were tried)."
        )

    def notes(self) -> list[str]:
        return [
            f"chosen and ranked on {self.tokens[0]:,} tokens, tested on {self.tokens[1]:,} others; "
            f"{self.fraction:.0%} of these have the property; 0.5 is chance, 1 is perfect"
        ]

    def table(self) -> Table:
        columns = ("layer", "part", "unit", "sign", "AUC searched", "AUC held out")
        return Table(columns, self.found, ("d", "", "d", "+d", ".3f", ".3f"))

    def figures(self) -> list[Figure]:
        bars = [Bar(f"layer {each.layer} {each.part} {each.unit}", each.held_out) for each in self.found]
        return [
            ColouredText("The first unit over held-out text", self.excerpt, 1.0, unit="+.2f"),
            Bars("Area under the ROC curve on held-out text", bars, unit=".3f", least=0.5, most=1.0),
        ]


def search_cells(
    model: Any,
    text: str,
    property: Property | Marks | Sequence[bool],
    *,
    name: str = "",
    parts: Sequence[str] = (),
    top: int = TOP,
) -> CellSearch:
    """Rank the units of a LanguageModel by how well they detect a property of the characters of a text.

    `property` is a function of the text (properties.py), or a mark for each of its characters, such as a selected span.
    A token has it if its last character has. The first half of the text is searched, the second is for testing.
    """
    marks = np.asarray(property(text) if callable(property) else property, dtype=bool)
    if len(marks) != len(text):
        raise ValueError(f"{len(marks)} marks for {len(text)} characters: give one for each")
    return rank_cells(read_cells(model, text, parts=parts), marks, name=name, top=top)


def rank_cells(read: Read, marks: Marks, *, name: str = "", top: int = TOP) -> CellSearch:
    """The same of a text that was read, with a mark for each of its characters."""
    labels = np.array([bool(end) and bool(marks[end - 1]) for _, end in read.offsets], dtype=bool)
    half = len(labels) // 2
    for side in (labels[:half], labels[half:]):
        if min(side.sum(), (~side).sum()) < FEWEST:
            raise ValueError(
                f"{name or 'the property'} holds at {int(side.sum())} of {len(side)} tokens of half of the text: at "
                f"least {FEWEST} must have it, and {FEWEST} must not; give a longer text, or another property"
            )
    chosen: list[FoundCell] = []
    for part, values in read.activations.items():
        searched = areas(values[:half], labels[:half])
        for unit in np.argsort(-np.abs(searched - 0.5), kind="stable")[:top].tolist():
            sign = 1 if searched[unit] >= 0.5 else -1
            held_out = float(areas(sign * values[half:, unit : unit + 1], labels[half:])[0])
            cell = FoundCell(part.layer, part.name, unit, sign, float(0.5 + abs(searched[unit] - 0.5)), held_out)
            chosen.append(cell)
    found = sorted(chosen, key=lambda cell: -cell.searched)[:top]
    best = found[0]
    values = next(v for p, v in read.activations.items() if (p.layer, p.name) == (best.layer, best.part))
    first = values[:half, best.unit]
    middle = values[half:, best.unit] - (first[labels[:half]].mean() + first[~labels[:half]].mean()) / 2
    scaled = best.sign * middle / (np.abs(middle).max() or 1.0)
    later = read._replace(offsets=read.offsets[half:])
    pieces = cut_at_tokens(later, scaled)
    start = read.offsets[half - 1][1]
    pieces[0] = (read.text[start : read.offsets[half][1]], pieces[0][1])
    excerpt, letters = [], 0
    for piece in pieces:
        if letters > EXCERPT:
            break
        excerpt.append(piece)
        letters += len(piece[0])
    units = sum(values.shape[1] for values in read.activations.values())
    return CellSearch(name, found, units, (half, len(labels) - half), float(labels[half:].mean()), excerpt)
