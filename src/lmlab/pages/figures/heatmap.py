"""Heat maps: values by row and column, as of attention. The stronger the colour, the larger the value.

Colours are laid over the background with an opacity, so that they work on white, in dark mode and in greyscale. Blue is
positive and orange negative. Every cell shows its value to the pointer (`<title>`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from lmlab.pages.figures.svg import cut, drawing, element, label, tooltip, widest

ABOVE, BELOW = "#3a62c9", "#d9822b"


def strength(value: float, most: float) -> float:
    """How strong the colour of a value is, from 0 to 1."""
    return min(1.0, abs(value) / most) if most > 0 and math.isfinite(value) else 0.0


@dataclass(frozen=True)
class Heatmap:
    """Values by row and column: the stronger the colour, the larger."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]
    most: float | None = None
    """The value of the strongest colour; by default the largest."""
    unit: str = ".3f"
    cell: int = 22

    @property
    def scale(self) -> float:
        """The value of the strongest colour."""
        found = [abs(value) for row in self.values for value in row if math.isfinite(value)]
        return self.most if self.most is not None else max(found, default=1.0)

    @property
    def inches(self) -> tuple[float, float]:
        return max(5.0, 1.6 + 0.34 * len(self.columns)), max(3.0, 1.4 + 0.3 * len(self.rows))

    def html(self) -> Markup:
        cell, most = self.cell, self.scale
        left, rise = 18 + widest(self.rows), widest(self.columns)
        top = 14 + 0.8 * rise
        parts = [
            label(left + cell * (number + 0.6), top - 6, cut(column), turn=-52)
            for number, column in enumerate(self.columns)
        ]
        for number, (row, values) in enumerate(zip(self.rows, self.values, strict=True)):
            y = top + cell * number
            parts.append(label(left - 6, y + cell / 2 + 4, cut(row), anchor="end"))
            for column, value in enumerate(values):
                says = tooltip(f"{row} → {self.columns[column]}: {format(value, self.unit)}")
                box = {"x": left + cell * column, "y": y, "width": cell - 1, "height": cell - 1, "rx": 3}
                colour = {"fill": ABOVE if value >= 0 else BELOW, "fill_opacity": f"{strength(value, most):.3f}"}
                parts.append(element("rect", says, **box, **colour, stroke=ABOVE, stroke_opacity=".12"))
        width = left + cell * len(self.columns) + 0.65 * rise + 8
        return drawing(parts, width=width, height=top + cell * len(self.rows) + 8, title=self.title)

    def draw(self, axes: Any) -> None:
        signed = any(value < 0 for row in self.values for value in row)
        low = -self.scale if signed else 0.0
        axes.imshow(self.values, cmap="PuOr_r" if signed else "Blues", vmin=low, vmax=self.scale, aspect="auto")
        axes.set_xticks(range(len(self.columns)), [cut(name) for name in self.columns], rotation=60, ha="right")
        axes.set_yticks(range(len(self.rows)), [cut(name) for name in self.rows])
