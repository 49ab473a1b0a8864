"""Charts as data, drawn as SVG by our own hand; as PNG where matplotlib is installed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Literal

Point = tuple[float, float]

PALETTE = ("#4c78a8", "#e45756", "#54a24b", "#f58518", "#8e6bbf", "#1b9e9e", "#c2557f", "#8a6d3b", "#5f7f1f", "#6b7a8f")
WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 58, 128, 16, 48
LINE = 15
"""The least distance between labels."""
STYLE = (
    "text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#3d4450;paint-order:stroke;stroke:#fff;"
    "stroke-width:3px;stroke-linejoin:round}.tick{fill:#6a7280;font-size:11px}"
    ".grid{stroke:#dfe3e8;stroke-width:1}.front{stroke:#8a929e}.halo{fill:#ffffff}"
)


@dataclass(frozen=True)
class Series:
    """One system: a line through its points, or a single mark."""

    name: str
    colour: str
    points: list[Point]
    level: bool = False
    """A dashed line at the height of its only point: a system that has no curve along this axis."""
    guess: Point | None = None
    """Where the line would come to if it went on like this; drawn in dots."""

    @property
    def reach(self) -> list[Point]:
        """All its points, the guess too."""
        return [*self.points, self.guess] if self.guess is not None else self.points


@dataclass(frozen=True)
class Chart:
    """Quality against something that is spent."""

    name: str
    title: str
    x_label: str
    y_label: str
    series: list[Series]
    front: list[Point] = field(default_factory=list)
    """The best that can be had for each cost."""
    logarithmic: bool = True
    """Whether what is spent counts by its logarithm."""


def pareto_front(points: Sequence[Point], *, better: Literal["lower", "higher"] = "lower") -> list[Point]:
    """The points that no other beats in both: cheapest first, each better than all cheaper ones."""
    sign = 1 if better == "lower" else -1
    front: list[Point] = []
    for x, y in sorted(points, key=lambda point: (point[0], sign * point[1])):
        if not front or sign * y < sign * front[-1][1]:
            front.append((x, y))
    return front


def to_svg(chart: Chart, *, alone: bool = False) -> str:
    """The chart as SVG; `alone` stateful its own colours and a white ground, to stand in a paper."""
    scale = _Scale(chart)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(chart.title, quote=True)}">'
    ]
    if alone:
        parts.append(f'<style>{STYLE}</style><rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>')
    parts += _axes(chart, scale)
    if len(chart.front) > 1:
        path = " ".join(f"{scale.x(x):.1f},{scale.y(y):.1f}" for x, y in _stairs(chart.front))
        parts.append(f'<polyline class="front" points="{path}" fill="none" stroke-dasharray="2 4" stroke-width="1.5"/>')
    for series in chart.series:
        parts.append(_draw(series, scale, chart))
    lines = [series for series in chart.series if series.level or len(series.points) > 1]
    marks = [series for series in chart.series if not series.level and len(series.points) == 1]
    parts += _line_labels([(scale.y(series.reach[-1][1]), series) for series in lines])
    parts += _mark_labels([((scale.x(series.points[0][0]), scale.y(series.points[0][1])), series) for series in marks])
    return "".join(parts) + "</svg>"


class _Scale:
    """From values to places on the page."""

    def __init__(self, chart: Chart) -> None:
        xs = [x for series in chart.series for x, _ in series.reach if x > 0 and not series.level]
        ys = [y for series in chart.series for _, y in series.reach]
        low, high = (min(xs), max(xs)) if xs else (1.0, 10.0)
        if high / low < 1.5:  # all spent about the same
            low, high = low / 1.6, high * 1.6
        self.along = math.log if chart.logarithmic else float
        margin = 0.03 * (self.along(high) - self.along(low))
        self.low, self.high = self.along(low) - margin, self.along(high) + margin
        bottom, top = (min(ys), max(ys)) if ys else (0.0, 1.0)
        spread = max(top - bottom, 0.02 * max(abs(top), 1e-9))
        self.bottom, self.top = bottom - 0.08 * spread, top + 0.08 * spread

    def x(self, value: float) -> float:
        share = (self.along(value) - self.low) / (self.high - self.low) if value > 0 else 0.0
        return LEFT + min(1.0, max(0.0, share)) * (WIDTH - LEFT - RIGHT)

    def x_ticks(self) -> list[float]:
        if self.along is math.log:
            return log_ticks(math.exp(self.low), math.exp(self.high))
        return linear_ticks(self.low, self.high)

    def y(self, value: float) -> float:
        return TOP + (self.top - value) / (self.top - self.bottom) * (HEIGHT - TOP - BOTTOM)


def _axes(chart: Chart, scale: _Scale) -> list[str]:
    parts = []
    right, foot = WIDTH - RIGHT, HEIGHT - BOTTOM
    for value in linear_ticks(scale.bottom, scale.top):
        y = scale.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in scale.x_ticks():
        x = scale.x(value)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{foot}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{foot + 17}" text-anchor="middle">{short(value)}</text>')
    middle = (LEFT + right) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(chart.x_label)}</text>')
    parts.append(
        f'<text x="14" y="{(TOP + foot) / 2}" text-anchor="middle" transform="rotate(-90 14 {(TOP + foot) / 2})">'
        f"{escape(chart.y_label)}</text>"
    )
    return parts


def _draw(series: Series, scale: _Scale, chart: Chart) -> str:
    if not series.points:
        return ""
    marks = ""
    if series.level:
        y = scale.y(series.points[-1][1])
        return (
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{series.colour}" '
            f'stroke-width="2" stroke-dasharray="7 5"><title>{escape(series.name)}</title></line>'
        )
    if len(series.points) > 1:
        path = " ".join(f"{scale.x(x):.1f},{scale.y(y):.1f}" for x, y in series.points)
        marks = (
            f'<polyline points="{path}" fill="none" stroke="{series.colour}" stroke-width="2.2" '
            f'stroke-linejoin="round"><title>{escape(series.name)}</title></polyline>'
        )
    if series.guess is not None:
        path = " ".join(f"{scale.x(x):.1f},{scale.y(y):.1f}" for x, y in (series.points[-1], series.guess))
        marks += (
            f'<polyline points="{path}" fill="none" stroke="{series.colour}" stroke-width="1.6" '
            'stroke-dasharray="1.5 4" stroke-linecap="round"/>'
        )
    for x, y in series.points if len(series.points) > 1 else series.points[-1:]:
        size = 2.6 if len(series.points) > 1 else 7
        told = f"{series.name}: {y:.3f} {chart.y_label} at {short(x)} {chart.x_label}"
        marks += (
            f'<circle cx="{scale.x(x):.1f}" cy="{scale.y(y):.1f}" r="{size}" fill="{series.colour}">'
            f"<title>{escape(told)}</title></circle>"
        )
    return marks


def _line_labels(ends: Sequence[tuple[float, Series]]) -> list[str]:
    """Names to the right of the lines, as near to their ends as they go without touching."""
    parts = []
    ordered = sorted(ends, key=lambda end: end[0])
    right = WIDTH - RIGHT
    for (y, series), at in zip(ordered, spread([y for y, _ in ordered], apart=LINE), strict=True):
        if abs(at - y) > 3:
            path = f"{right + 2},{y:.1f} {right + 11},{at:.1f}"
            parts.append(f'<polyline points="{path}" fill="none" stroke="{series.colour}" stroke-opacity=".5"/>')
        parts.append(_text(right + 14, at + 4, series))
    return parts


def spread(places: Sequence[float], *, apart: float) -> list[float]:
    """Rising places moved as little as possible until they are `apart`: those that collide gather round their mean."""
    groups: list[list[float]] = []  # each: the sum of the places that its first member would like, and its members
    for number in places:
        groups.append([number, 1])
        while len(groups) > 1:
            (above, many), (below, few) = groups[-2], groups[-1]
            if above / many + many * apart <= below / few:
                break
            groups[-2:] = [[above + below - few * many * apart, many + few]]
    return [total / many + i * apart for total, many in groups for i in range(int(many))]


def _mark_labels(marks: Sequence[tuple[Point, Series]]) -> list[str]:
    """Names beside single marks: to the right, else to the left, above or below, wherever there is room."""
    taken = [(x - 7, y - 7, x + 7, y + 7) for (x, y), _ in marks]
    parts = []
    for (x, y), series in sorted(marks, key=lambda mark: mark[0]):
        width = 7.4 * len(series.name)
        choices = {
            "start": (x + 11, y + 4, (x + 9, y - 8, x + 11 + width, y + 8)),
            "end": (x - 11, y + 4, (x - 11 - width, y - 8, x - 9, y + 8)),
            "middle": (x, y - 12, (x - width / 2, y - 26, x + width / 2, y - 8)),
            "below": (x, y + 22, (x - width / 2, y + 9, x + width / 2, y + 26)),
        }
        free = [name for name, (_, _, box) in choices.items() if not any(_touch(box, other) for other in taken)]
        name = next((name for name in free if choices[name][2][0] > LEFT), "start")
        left, top, box = choices[name]
        taken.append(box)
        parts.append(_text(left, top, series, anchor="middle" if name == "below" else name))
    return parts


def _touch(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _text(x: float, y: float, series: Series, *, anchor: str = "start") -> str:
    style = f"fill:{series.colour};font-weight:600"
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" style="{style}">{escape(series.name)}</text>'


def _stairs(front: Sequence[Point]) -> list[Point]:
    corners: list[Point] = [front[0]]
    for (_, above), (x, y) in pairwise(front):
        corners += [(x, above), (x, y)]
    return corners


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


def short(value: float) -> str:
    """A number as people read it: 1.2M, 340k, 0.05; powers of ten where it is larger than that."""
    if value == 0:
        return "0"
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= abs(value) < 1e12:
            return f"{value / size:.3g}{sign}"
    if 0.001 <= abs(value) < 1000:
        return f"{value:.3g}"
    power = math.floor(math.log10(abs(value)))
    digits = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    factor = f"{value / 10.0**power:.3g}"
    return f"10{digits}" if factor == "1" else f"{factor}·10{digits}"


def save(charts: Sequence[Chart], folder: Path) -> bool:
    """Write each chart as SVG, and as PNG if matplotlib is there; True if it was."""
    folder.mkdir(parents=True, exist_ok=True)
    for chart in charts:
        (folder / f"{chart.name}.svg").write_text(to_svg(chart, alone=True), encoding="utf-8")
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    for chart in charts:
        _save_png(chart, folder / f"{chart.name}.png")
    return True


def _save_png(chart: Chart, path: Path) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")
    for series in chart.series:
        if series.level:
            axes.axhline(series.points[-1][1], color=series.colour, linestyle="--", label=series.name)
        elif series.points:
            x, y = zip(*series.points, strict=True)
            axes.plot(x, y, color=series.colour, marker="o", markersize=3 if len(x) > 1 else 8, label=series.name)
            if series.guess is not None:
                x, y = zip(series.points[-1], series.guess, strict=True)
                axes.plot(x, y, color=series.colour, linestyle=":")
    if len(chart.front) > 1:
        axes.step(*zip(*chart.front, strict=True), where="post", color="#8a929e", linestyle=":", zorder=0)
    if chart.logarithmic:
        axes.set_xscale("log")
        axes.minorticks_off()
    ticks = _Scale(chart).x_ticks()
    axes.set_xticks(ticks, [short(value) for value in ticks])
    axes.set(xlabel=chart.x_label, ylabel=chart.y_label, title=chart.title)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    figure.savefig(path, dpi=200)
    pyplot.close(figure)
