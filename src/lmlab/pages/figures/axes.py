"""Two axes, and the simple figures on them: lines by layer, predicted against true numbers, reliability."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from markupsafe import Markup

from lmlab.pages.figures.palette import PALETTE
from lmlab.pages.figures.svg import (
    INK,
    LINE,
    SOFT,
    cut,
    drawing,
    element,
    halo,
    label,
    path,
    tooltip,
    widest,
)
from lmlab.pages.formats import short

Position = tuple[float, float]
ACCENT = "var(--accent,#3a62c9)"
LEFT, TOP, BOTTOM = 58, 16, 48
APART = 15
"""The least distance between labels."""
LONGEST = 34
"""Letters of a name that are shown."""


class Axes:
    """Two axes, which turn values into positions."""

    def __init__(
        self, x: Position, y: Position, *, width: float, height: float = 420, right: float = 20, log: bool = False
    ) -> None:
        self.width, self.height, self.right, self.log = width, height, right, log
        self.range_x = (math.log(x[0]), math.log(x[1])) if log else x
        self.range_y = y

    @property
    def edge(self) -> float:
        """The right end of the axes."""
        return self.width - self.right

    @property
    def foot(self) -> float:
        """The lower end of the axes."""
        return self.height - BOTTOM

    def x(self, value: float) -> float:
        """Pixels from the left, never outside the axes."""
        low, high = self.range_x
        value = (math.log(value) if value > 0 else low) if self.log else value
        return LEFT + min(1.0, max(0.0, (value - low) / (high - low))) * (self.edge - LEFT)

    def y(self, value: float) -> float:
        """Pixels from the top, never outside the axes."""
        low, high = self.range_y
        return TOP + (high - min(high, max(low, value))) / (high - low) * (self.foot - TOP)

    def x_ticks(self) -> list[float]:
        """Round values along the axis."""
        if self.log:
            return log_ticks(math.exp(self.range_x[0]), math.exp(self.range_x[1]))
        return linear_ticks(*self.range_x)

    def frame(
        self, x_ticks: Iterable[tuple[float, str]], *, x_label: str, y_label: str, unit: str = "g"
    ) -> list[Markup]:
        """Grid, ticks and the labels of both axes."""
        lines, texts = [], []
        style = f"stroke:{LINE}"
        for value in linear_ticks(*self.range_y):
            y = self.y(value)
            lines.append(element("line", x1=LEFT, x2=self.edge, y1=y, y2=y, style=style))
            texts.append(label(LEFT - 8, y + 4, format(value, unit), anchor="end", fill=SOFT))
        for value, shown in x_ticks:
            x = self.x(value)
            lines.append(element("line", x1=x, x2=x, y1=TOP, y2=self.foot, style=style))
            texts.append(label(x, self.foot + 17, shown, anchor="middle", fill=SOFT))
        texts.append(label((LEFT + self.edge) / 2, self.height - 8, x_label, anchor="middle"))
        texts.append(label(14, (TOP + self.foot) / 2, y_label, anchor="middle", turn=-90))
        return [*lines, halo(texts)]

    def name_lines(self, ends: Iterable[tuple[str, str, float]]) -> Markup:
        """Names of lines, given with colour and height, on the right, near the ends and without touching."""
        parts = []
        ordered = sorted(ends, key=lambda end: end[2])
        places = push_apart([y for *_, y in ordered], apart=APART)
        for number, ((name, colour, y), position) in enumerate(zip(ordered, places, strict=True)):
            at = max(position, APART * (number + 0.5))  # no name is above the drawing
            if abs(at - y) > 3:
                points = path([(self.edge + 2, y), (self.edge + 11, at)])
                parts.append(element("polyline", points=points, fill="none", stroke=colour, stroke_opacity=".5"))
            parts.append(name_tag(self.edge + 14, at + 4, name, colour))
        return halo(parts)

    def diagonal(self, low: float, high: float) -> Markup:
        """The line where both axes have the same value."""
        ends = {"x1": self.x(low), "y1": self.y(low), "x2": self.x(high), "y2": self.y(high)}
        return element("line", **ends, style=f"stroke:{SOFT}", stroke_dasharray="3 4", stroke_width="1.5")


def name_tag(x: float, y: float, name: str, colour: str, anchor: str = "start") -> Markup:
    style = f"fill:{colour};font-weight:600"
    return element("text", cut(name, LONGEST), x=float(x), y=float(y), text_anchor=anchor, style=style)


@dataclass(frozen=True)
class Lines:
    """Values by layer, or along another axis of a few named steps; one line each."""

    title: str
    steps: Sequence[str]
    lines: Sequence[tuple[str, Sequence[float]]]
    unit: str = ".3f"
    x_label: str = "layer"
    inches: ClassVar[Position] = (9.0, 5.0)

    def html(self) -> Markup:
        known = [value for _, values in self.lines for value in values if math.isfinite(value)] or [0.0, 1.0]
        low, high = (min(known), max(known)) if max(known) > min(known) else (min(known) - 0.5, max(known) + 0.5)
        high = cap_fractions(high, most=max(known))
        right = 20 + widest(name for name, _ in self.lines)
        axes = Axes((0, max(1, len(self.steps) - 1)), (low, high), width=500 + right, height=290, right=right)
        parts = axes.frame(((n, cut(self.steps[n], 9)) for n in self._shown()), x_label=self.x_label, y_label="")
        ends = []
        for (name, values), colour in zip(self.lines, PALETTE * (1 + len(self.lines) // 10), strict=False):
            points = [(axes.x(n), axes.y(value), value) for n, value in enumerate(values) if math.isfinite(value)]
            if not points:
                continue
            parts.append(
                element(
                    "polyline", points=path((x, y) for x, y, _ in points), fill="none", stroke=colour, stroke_width=2
                )
            )
            for x, y, value in points:
                says = tooltip(f"{name}: {format(value, self.unit)}")
                parts.append(element("circle", says, cx=x, cy=y, r="3.4", fill=colour))
            ends.append((name, colour, points[-1][1]))
        parts.append(axes.name_lines(ends))
        return drawing(parts, width=axes.width, height=axes.height, title=self.title)

    def _shown(self) -> range:
        """The steps that are named: at most twenty."""
        return range(0, len(self.steps), max(1, math.ceil(len(self.steps) / 20)))

    def draw(self, axes: Any) -> None:
        for name, values in self.lines:
            axes.plot(range(len(values)), values, marker="o", label=name)
        axes.set_xticks(self._shown(), [self.steps[number] for number in self._shown()])
        axes.set_xlabel(self.x_label)
        axes.legend()


@dataclass(frozen=True)
class Agreement:
    """Predicted against true numbers, on the same scale, and the line where both are equal."""

    title: str
    points: Sequence[Position]

    def html(self) -> Markup:
        numbers = [number for point in self.points for number in point]
        margin = 0.04 * (max(numbers) - min(numbers)) or 1.0
        low, high = min(numbers) - margin, max(numbers) + margin
        axes = Axes((low, high), (low, high), width=480, height=460)
        ticks = [(value, f"{value:g}") for value in axes.x_ticks()]
        parts = [*axes.frame(ticks, x_label="true", y_label="predicted"), axes.diagonal(low, high)]
        style = f"fill:{ACCENT};fill-opacity:{0.75 if len(self.points) < 200 else 0.4}"
        for x, y in self.points:
            says = tooltip(f"true {x:.4g}, predicted {y:.4g}")
            parts.append(element("circle", says, cx=axes.x(x), cy=axes.y(y), r="3.6", style=style))
        return drawing(parts, width=axes.width, height=axes.height, title=self.title)


class ReliabilityBin(NamedTuple):
    """Predictions of about the same confidence; all in percent."""

    low: float
    high: float
    size: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True)
class Reliability:
    """How often predictions are right by the confidence of the model; on the diagonal, it is calibrated."""

    title: str
    bins: Sequence[ReliabilityBin]

    def html(self) -> Markup:
        axes = Axes((0.0, 100.0), (0.0, 100.0), width=480)
        ticks = [(value, f"{value:g}") for value in axes.x_ticks()]
        labels = {"x_label": "confidence of the model, %", "y_label": "predictions that are right, %"}
        parts = axes.frame(ticks, **labels)
        most = max((each.size for each in self.bins), default=1)
        for each in self.bins:
            if each.confidence is None or each.accuracy is None:
                continue
            left, right, top = axes.x(each.low) + 1, axes.x(each.high) - 1, axes.y(each.accuracy)
            says = tooltip(
                f"{each.size:,} predictions of {each.confidence:.1f}% confidence: {each.accuracy:.1f}% are right"
            )
            box = {"x": left, "y": top, "width": right - left, "height": max(1.0, axes.y(0.0) - top)}
            style = f"fill:{ACCENT};fill-opacity:{0.2 + 0.35 * each.size / most:.2f}"
            parts.append(element("rect", says, **box, style=style))
            parts.append(element("circle", says, cx=axes.x(each.confidence), cy=top, r="3.4", style=f"fill:{INK}"))
            parts.append(label((left + right) / 2, axes.y(0.0) - 7, short(each.size), anchor="middle"))
        parts.append(axes.diagonal(0.0, 100.0))
        return drawing(parts, width=axes.width, height=axes.height, title=self.title)


def push_apart(positions: Sequence[float], *, apart: float) -> list[float]:
    """Rising positions, moved as little as possible until they are `apart`; those that collide gather round a mean."""
    groups: list[list[float]] = []  # each: the sum of the positions that its first member would like, and its members
    for number in positions:
        groups.append([number, 1])
        while len(groups) > 1:
            (above, many), (below, few) = groups[-2], groups[-1]
            if above / many + many * apart <= below / few:
                break
            groups[-2:] = [[above + below - few * many * apart, many + few]]
    return [total / many + i * apart for total, many in groups for i in range(int(many))]


def cap_fractions(top: float, *, most: float) -> float:
    """The top of an axis: no higher than 1 where no value is, since a fraction such as accuracy cannot be higher."""
    return min(top, 1.0) if most <= 1.0 else top


def linear_ticks(low: float, high: float) -> list[float]:
    """Four to ten round values between two."""
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 8)
    first = math.ceil(low / step - 1e-9)
    return [round(step * i, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between two values, with twos and fives where they are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    few = math.log10(high / low) < 2.2
    every = [factor * 10.0**power for power in powers for factor in ((1, 2, 5) if few else (1,))]
    return [value for value in every if low * 0.999 <= value <= high * 1.001]
