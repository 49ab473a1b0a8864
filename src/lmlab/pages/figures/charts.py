"""Charts: quality against something that is spent, as lines and marks with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

from markupsafe import Markup

from lmlab.pages.figures.axes import LEFT, LONGEST, Axes, Position, cap_fractions, name_tag
from lmlab.pages.figures.palette import PLOT_MARKERS, shape_number
from lmlab.pages.figures.svg import LETTER, SOFT, cut, drawing, element, halo, mark, path, tooltip, widest
from lmlab.pages.formats import short


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
    extrapolation: Position | None = None
    """The end of the line if it went on in the same way, drawn in dots."""
    dashed: bool = False

    @property
    def end(self) -> Position:
        """Where the name of the line belongs."""
        return self.extrapolation or (self.points[-1].x, self.points[-1].y)


@dataclass(frozen=True)
class Chart:
    """Quality against something that is spent: lines with their names at the end, single marks next to theirs."""

    name: str
    """The name of its file, and of its element on a page."""
    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    front: Sequence[Position] = field(default_factory=list)
    """The Pareto front: the best quality at each cost."""
    logarithmic: bool = True
    x_ticks: Sequence[float] = ()
    """Where the ticks are; by default at round values."""
    unit: str = ".3f"
    """The format of a value."""
    inches: ClassVar[Position] = (9.0, 5.0)

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
        return Axes(
            x,
            (bottom - room, cap_fractions(top + room, most=top)),
            width=632 + right,
            right=right,
            log=self.logarithmic,
        )

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
        positions = [(axes.x(point.x) + aside, axes.y(point.y)) for point in series.points]
        parts = []
        if len(positions) > 1:
            line = {"points": path(positions), "fill": "none", "stroke": colour, "stroke_width": "2.2"}
            dashes = "6 5" if series.dashed else None
            parts.append(element("polyline", name, **line, stroke_linejoin="round", stroke_dasharray=dashes))
        if series.extrapolation is not None:
            points = path([positions[-1], (axes.x(series.extrapolation[0]), axes.y(series.extrapolation[1]))])
            line = {"points": points, "fill": "none", "stroke": colour, "stroke_width": "1.6"}
            parts.append(element("polyline", **line, stroke_dasharray="1.5 4", stroke_linecap="round"))
        radius = 7.0 if len(positions) == 1 else 4.0 if any(point.low is not None for point in series.points) else 3.0
        for (x, y), point in zip(positions, series.points, strict=True):
            parts += _interval(x, point, axes, colour)
            parts.append(mark(x, y, radius, colour, self._describe(series, point)))
        return parts

    def _describe(self, series: Series, point: Point) -> str:
        """What the pointer over a point shows."""
        x = f"{point.x:,.0f}" if self.x_ticks else short(point.x)
        text = f"{series.name}: {format(point.y, self.unit)} {self.y_label} at {x} {self.x_label}"
        if point.low is not None and point.high is not None:
            text += f", 95% interval {format(point.low, self.unit)} to {format(point.high, self.unit)}"
        if len(point.seeds) > 1:
            text += f"; each seed: {', '.join(format(seed, self.unit) for seed in point.seeds)}"
        return text

    def draw(self, axes: Any) -> None:
        for series in self.series:
            if series.level:
                axes.axhline(series.points[-1].y, color=series.colour, linestyle="--", label=series.name)
            elif series.points:
                x, y = [point.x for point in series.points], [point.y for point in series.points]
                marker = PLOT_MARKERS[shape_number(series.colour)]
                style = {"color": series.colour, "marker": marker, "markersize": 3 if len(x) > 1 else 8}
                axes.plot(x, y, **style, linestyle="--" if series.dashed else "-", label=series.name)
                if series.extrapolation is not None:
                    axes.plot(
                        [x[-1], series.extrapolation[0]],
                        [y[-1], series.extrapolation[1]],
                        color=series.colour,
                        linestyle=":",
                    )
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


def _name_marks(marks: Sequence[tuple[Position, Series]]) -> list[Markup]:
    """Names of single marks: to the right, else to the left, above or below, if there is room."""
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
        parts.append(name_tag(left, top, series.name, series.colour, "middle" if chosen == "below" else chosen))
    return parts


def _touch(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _steps(front: Sequence[Position]) -> list[Position]:
    corners: list[Position] = [front[0]]
    for (_, above), (x, y) in pairwise(front):
        corners += [(x, above), (x, y)]
    return corners


def pareto_front(points: Sequence[Position], *, better: Literal["lower", "higher"] = "lower") -> list[Position]:
    """The points that no other beats in both: cheapest first, each better than all cheaper ones."""
    sign = 1 if better == "lower" else -1
    front: list[Position] = []
    for x, y in sorted(points, key=lambda point: (point[0], sign * point[1])):
        if not front or sign * y < sign * front[-1][1]:
            front.append((x, y))
    return front
