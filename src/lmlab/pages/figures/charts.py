"""Figures on two axes: lines and marks with intervals, lines by layer, agreement with the truth, reliability."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

from markupsafe import Markup

from lmlab.pages.figures.svg import (
    INK,
    LETTER,
    LINE,
    PALETTE,
    SOFT,
    cut,
    drawing,
    element,
    halo,
    label,
    linear_ticks,
    log_ticks,
    path,
    spread,
    tooltip,
    widest,
)
from lmlab.pages.formats import short

Place = tuple[float, float]
ACCENT = "var(--accent,#3a62c9)"
LEFT, TOP, BOTTOM = 58, 16, 48
APART = 15
"""The least distance between labels."""
LONGEST = 34


class Point(NamedTuple):
    """A point with its 95% interval and the values of single seeds, where they are known."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    seeds: Sequence[float] = ()

    @property
    def heights(self) -> list[float]:
        """All values that have to fit: its own, its interval and its seeds."""
        return [self.y, *(end for end in (self.low, self.high) if end is not None), *self.seeds]


@dataclass(frozen=True)
class Series:
    """A line through points, or a single mark."""

    name: str
    colour: str
    points: Sequence[Point]
    level: bool = False
    """A dashed line at the height of its only point: a system that has no curve along this axis."""
    guess: Place | None = None
    """An extrapolation of the line, drawn in dots."""
    dashed: bool = False

    @property
    def end(self) -> Place:
        """Where the name of the line belongs."""
        return self.guess or (self.points[-1].x, self.points[-1].y)


class Axes:
    """Two axes, and the places of values between them."""

    def __init__(
        self, x: Place, y: Place, *, width: float, height: float = 420, right: float = 20, log: bool = False
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
        for (name, colour, y), at in zip(ordered, spread([y for *_, y in ordered], apart=APART), strict=True):
            if abs(at - y) > 3:
                points = path([(self.edge + 2, y), (self.edge + 11, at)])
                parts.append(element("polyline", points=points, fill="none", stroke=colour, stroke_opacity=".5"))
            parts.append(_name(self.edge + 14, at + 4, name, colour))
        return halo(parts)

    def diagonal(self, low: float, high: float) -> Markup:
        """The line where both axes have the same value."""
        ends = {"x1": self.x(low), "y1": self.y(low), "x2": self.x(high), "y2": self.y(high)}
        return element("line", **ends, style=f"stroke:{SOFT}", stroke_dasharray="3 4", stroke_width="1.5")


def _name(x: float, y: float, name: str, colour: str, anchor: str = "start") -> Markup:
    style = f"fill:{colour};font-weight:600"
    return element("text", cut(name, LONGEST), x=float(x), y=float(y), text_anchor=anchor, style=style)


@dataclass(frozen=True)
class Chart:
    """Quality against something that is spent: lines with their names at the end, single marks beside theirs."""

    name: str
    """The name of its file, and of its element on a page."""
    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    front: Sequence[Place] = field(default_factory=list)
    """The Pareto front: the best quality at each cost."""
    logarithmic: bool = True
    x_ticks: Sequence[float] = ()
    """Where the ticks are; by default at round values."""
    unit: str = ".3f"
    """The format of a value."""
    inches: ClassVar[Place] = (9.0, 5.0)

    @property
    def axes(self) -> Axes:
        """Axes with room for all points, whiskers and names."""
        drawn = [series for series in self.series if series.points]
        spans = [each for each in drawn if not each.level]
        xs = [point.x for each in spans for point in each.points] + [each.end[0] for each in spans]
        xs = [x for x in xs if x > 0 or not self.logarithmic]
        ys = [y for each in drawn for point in each.points for y in point.heights] + [each.end[1] for each in drawn]
        low, high = (min(xs), max(xs)) if xs else (1.0, 10.0)
        along = math.log if self.logarithmic else float
        if high / low < 1.5 if self.logarithmic else high == low:  # all spent about the same
            low, high = low / 1.6, high * 1.6
        margin = 0.03 * (along(high) - along(low))
        low, high = along(low) - margin, along(high) + margin
        bottom, top = (min(ys), max(ys)) if ys else (0.0, 1.0)
        room = 0.08 * max(top - bottom, 0.02 * max(abs(top), 1e-9))
        right = max(128.0, 24 + widest((each.name for each in drawn if _is_line(each)), LONGEST))
        x = (math.exp(low), math.exp(high)) if self.logarithmic else (low, high)
        return Axes(x, (bottom - room, top + room), width=632 + right, right=right, log=self.logarithmic)

    def ticks(self, axes: Axes) -> list[tuple[float, str]]:
        """Values along the x axis with their labels; labels that would touch are left out, never the last."""
        if not self.x_ticks:
            return [(value, short(value)) for value in axes.x_ticks()]
        kept: list[float] = []
        for value in reversed(self.x_ticks):
            if not kept or axes.x(kept[-1]) - axes.x(value) > 44:
                kept.append(value)
        return [(value, f"{value:,.0f}") for value in kept]

    def html(self) -> Markup:
        axes = self.axes
        parts = axes.frame(self.ticks(axes), x_label=self.x_label, y_label=self.y_label)
        if len(self.front) > 1:
            points = path((axes.x(x), axes.y(y)) for x, y in _steps(self.front))
            style = f"fill:none;stroke:{SOFT}"
            parts.append(element("polyline", points=points, style=style, stroke_dasharray="2 4", stroke_width="1.5"))
        lines = [series for series in self.series if _is_line(series)]
        for series in self.series:
            if series.points:
                parts += self._draw(series, axes, aside=_aside(lines, series))
        parts.append(axes.name_lines((each.name, each.colour, axes.y(each.end[1])) for each in lines))
        marks = [series for series in self.series if series.points and not _is_line(series)]
        parts.append(halo(_name_marks([((axes.x(m.points[0].x), axes.y(m.points[0].y)), m) for m in marks])))
        return drawing(parts, width=axes.width, height=axes.height, title=self.title, wide=True)

    def _draw(self, series: Series, axes: Axes, *, aside: float) -> list[Markup]:
        colour, name = series.colour, tooltip(series.name)
        if series.level:
            y = axes.y(series.points[-1].y)
            ends = {"x1": LEFT, "x2": axes.edge, "y1": y, "y2": y}
            return [element("line", name, **ends, stroke=colour, stroke_width=2, stroke_dasharray="7 5")]
        places = [(axes.x(point.x) + aside, axes.y(point.y)) for point in series.points]
        parts = []
        if len(places) > 1:
            line = {"points": path(places), "fill": "none", "stroke": colour, "stroke_width": "2.2"}
            dashes = "6 5" if series.dashed else None
            parts.append(element("polyline", name, **line, stroke_linejoin="round", stroke_dasharray=dashes))
        if series.guess is not None:
            points = path([places[-1], (axes.x(series.guess[0]), axes.y(series.guess[1]))])
            line = {"points": points, "fill": "none", "stroke": colour, "stroke_width": "1.6"}
            parts.append(element("polyline", **line, stroke_dasharray="1.5 4", stroke_linecap="round"))
        radius = 7.0 if len(places) == 1 else 4.0 if any(point.low is not None for point in series.points) else 2.6
        for (x, y), point in zip(places, series.points, strict=True):
            parts += _interval(x, point, axes, colour)
            parts.append(element("circle", tooltip(self._describe(series, point)), cx=x, cy=y, r=radius, fill=colour))
        return parts

    def _describe(self, series: Series, point: Point) -> str:
        """What the pointer over a point shows."""
        x = f"{point.x:,.0f}" if self.x_ticks else short(point.x)
        told = f"{series.name}: {format(point.y, self.unit)} {self.y_label} at {x} {self.x_label}"
        if point.low is not None and point.high is not None:
            told += f", 95% interval {format(point.low, self.unit)} to {format(point.high, self.unit)}"
        if len(point.seeds) > 1:
            told += f"; each seed: {', '.join(format(seed, self.unit) for seed in point.seeds)}"
        return told

    def draw(self, axes: Any) -> None:
        for series in self.series:
            if series.level:
                axes.axhline(series.points[-1].y, color=series.colour, linestyle="--", label=series.name)
            elif series.points:
                x, y = [point.x for point in series.points], [point.y for point in series.points]
                style = {"color": series.colour, "marker": "o", "markersize": 3 if len(x) > 1 else 8}
                axes.plot(x, y, **style, linestyle="--" if series.dashed else "-", label=series.name)
                if series.guess is not None:
                    axes.plot([x[-1], series.guess[0]], [y[-1], series.guess[1]], color=series.colour, linestyle=":")
        if len(self.front) > 1:
            axes.step(*zip(*self.front, strict=True), where="post", color="#8a929e", linestyle=":", zorder=0)
        if self.logarithmic:
            axes.set_xscale("log")
            axes.minorticks_off()
        ticks = self.ticks(self.axes)
        axes.set_xticks([value for value, _ in ticks], [shown for _, shown in ticks])
        axes.set(xlabel=self.x_label, ylabel=self.y_label)
        axes.grid(alpha=0.3)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False)


def _is_line(series: Series) -> bool:
    return bool(series.points) and (series.level or len(series.points) > 1)


def _aside(lines: Sequence[Series], series: Series) -> float:
    """Pixels to the side by which a line with whiskers is moved, so that they do not cover each other."""
    if series not in lines or all(point.low is None for point in series.points):
        return 0.0
    return max(-16.0, min(16.0, 5 * (lines.index(series) - (len(lines) - 1) / 2)))


def _interval(x: float, point: Point, axes: Axes, colour: str) -> list[Markup]:
    """The whisker of a point, and a ring for each seed."""
    parts = []
    if point.low is not None and point.high is not None:
        top, foot = axes.y(point.high), axes.y(point.low)
        d = f"M{x:.1f},{top:.1f}V{foot:.1f}M{x - 4:.1f},{top:.1f}h8M{x - 4:.1f},{foot:.1f}h8"
        parts.append(element("path", d=d, fill="none", stroke=colour, stroke_width="1.4", stroke_opacity=".65"))
    if len(point.seeds) > 1:
        parts += [element("circle", cx=x, cy=axes.y(seed), r="2.4", fill="none", stroke=colour) for seed in point.seeds]
    return parts


def _name_marks(marks: Sequence[tuple[Place, Series]]) -> list[Markup]:
    """Names beside single marks: to the right, else to the left, above or below, wherever there is room."""
    taken = [(x - 7, y - 7, x + 7, y + 7) for (x, y), _ in marks]
    parts = []
    for (x, y), series in sorted(marks, key=lambda mark: mark[0]):
        width = LETTER * len(cut(series.name, LONGEST))
        choices = {
            "start": (x + 11, y + 4, (x + 9, y - 8, x + 11 + width, y + 8)),
            "end": (x - 11, y + 4, (x - 11 - width, y - 8, x - 9, y + 8)),
            "middle": (x, y - 12, (x - width / 2, y - 26, x + width / 2, y - 8)),
            "below": (x, y + 22, (x - width / 2, y + 9, x + width / 2, y + 26)),
        }
        free = [name for name, (_, _, box) in choices.items() if not any(_touch(box, other) for other in taken)]
        chosen = next((name for name in free if choices[name][2][0] > LEFT), "start")
        left, top, box = choices[chosen]
        taken.append(box)
        parts.append(_name(left, top, series.name, series.colour, "middle" if chosen == "below" else chosen))
    return parts


def _touch(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _steps(front: Sequence[Place]) -> list[Place]:
    corners: list[Place] = [front[0]]
    for (_, above), (x, y) in pairwise(front):
        corners += [(x, above), (x, y)]
    return corners


def pareto_front(points: Sequence[Place], *, better: Literal["lower", "higher"] = "lower") -> list[Place]:
    """The points that no other beats in both: cheapest first, each better than all cheaper ones."""
    sign = 1 if better == "lower" else -1
    front: list[Place] = []
    for x, y in sorted(points, key=lambda point: (point[0], sign * point[1])):
        if not front or sign * y < sign * front[-1][1]:
            front.append((x, y))
    return front


@dataclass(frozen=True)
class Lines:
    """Values by layer, or along another axis of a few named steps; one line each."""

    title: str
    steps: Sequence[str]
    lines: Sequence[tuple[str, Sequence[float]]]
    unit: str = ".3f"
    x_label: str = "layer"
    inches: ClassVar[Place] = (9.0, 5.0)

    def html(self) -> Markup:
        known = [value for _, values in self.lines for value in values if math.isfinite(value)] or [0.0, 1.0]
        low, high = (min(known), max(known)) if max(known) > min(known) else (min(known) - 0.5, max(known) + 0.5)
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
    points: Sequence[Place]

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


class Bin(NamedTuple):
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
    bins: Sequence[Bin]

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
