"""Plots on two axes as SVG: learning curves with whiskers, predicted against true numbers, confidence against truth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple

from lmlab.pages.figures.svg import linear_ticks, spread
from lmlab.pages.formats import short

LINE = 15

LEFT, TOP, BOTTOM = 56, 18, 48
LETTER = 7.2
"""The width of a letter of a label, about."""
LONGEST = 34


class Measured(NamedTuple):
    """A point of a curve: what it is at, its value with its interval, and the values of single seeds."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    seeds: Sequence[float] = ()


@dataclass(frozen=True)
class Curve:
    """A line through measured points, with a name."""

    name: str
    colour: str
    points: list[Measured] = field(default_factory=list)
    dashed: bool = False


class Plane:
    """Two axes, and from values to places between them."""

    def __init__(
        self,
        x: tuple[float, float],
        y: tuple[float, float],
        *,
        width: int,
        height: int,
        right: int = 20,
        log: bool = False,
    ) -> None:
        self.width, self.height, self.right, self.log = width, height, right, log
        self.range_x = (math.log(x[0]), math.log(x[1])) if log else x
        self.range_y = y

    def x(self, value: float) -> float:
        """From the left."""
        low, high = self.range_x
        share = ((math.log(value) if self.log else value) - low) / (high - low)
        return LEFT + min(1.0, max(0.0, share)) * (self.width - LEFT - self.right)

    def y(self, value: float) -> float:
        """From the top."""
        low, high = self.range_y
        share = (high - min(high, max(low, value))) / (high - low)
        return TOP + share * (self.height - TOP - BOTTOM)

    def svg(
        self, drawn: Iterable[str], *, title: str, x_label: str, y_label: str, marks: Sequence[float] | None = None
    ) -> str:
        """What was drawn, between the axes; `marks` are the numbers below the axis, where they are not round ones."""
        edge, foot = self.width - self.right, self.height - BOTTOM
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(title)}" style="max-width:{self.width}px"><title>{escape(title)}</title>'
        ]
        for value in linear_ticks(*self.range_y):
            y = self.y(value)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{edge}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
        if marks is None:
            marks = linear_ticks(*self.range_x)
        for value in marks:
            x = self.x(value)
            parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{foot}"/>')
            shown = f"{value:,.0f}" if self.log else f"{value:g}"
            parts.append(f'<text class="tick" x="{x:.1f}" y="{foot + 17}" text-anchor="middle">{shown}</text>')
        middle = (TOP + foot) / 2
        parts.append(
            f'<text x="{(LEFT + edge) / 2}" y="{self.height - 8}" text-anchor="middle">{escape(x_label)}</text>'
            f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">'
            f"{escape(y_label)}</text>"
        )
        return "".join((*parts, *drawn, "</svg>"))


def draw_curves(curves: Sequence[Curve], *, title: str, x_label: str, y_label: str) -> str:
    """Curves on a logarithmic axis, with whiskers, a dot for each seed, and their names at their ends."""
    points = [point for curve in curves for point in curve.points]
    xs = [point.x for point in points]
    ys = [point.y for point in points] + [seed for point in points for seed in point.seeds]
    if not ys:
        return ""
    ys += [end for point in points for end in (point.low, point.high) if end is not None]
    names = {id(curve): _cut(curve.name) for curve in curves}
    right = round(24 + LETTER * max(map(len, names.values())))
    margin = 0.05 * max(max(ys) - min(ys), 1.0)
    plane = Plane(
        (min(xs) / 1.25, max(xs) * 1.25),
        (min(ys) - margin, max(ys) + margin),
        width=620 + right,
        height=420,
        right=right,
        log=True,
    )
    drawn: list[str] = []
    for number, curve in enumerate(curves):
        aside = 5 * (number - (len(curves) - 1) / 2)
        drawn.append(_curve(curve, plane, aside=max(-16, min(16, aside)), y_label=y_label))
    ends = sorted(((plane.y(curve.points[-1].y), curve) for curve in curves if curve.points), key=lambda end: end[0])
    edge = plane.width - right
    for (y, curve), at in zip(ends, spread([y for y, _ in ends], apart=LINE), strict=True):
        if abs(at - y) > 3:
            path = f"{edge + 2},{y:.1f} {edge + 11},{at:.1f}"
            drawn.append(f'<polyline points="{path}" fill="none" stroke="{curve.colour}" stroke-opacity=".5"/>')
        style = f"fill:{curve.colour};font-weight:600"
        drawn.append(f'<text x="{edge + 14}" y="{at + 4:.1f}" style="{style}">{escape(names[id(curve)])}</text>')
    return plane.svg(drawn, title=title, x_label=x_label, y_label=y_label, marks=_apart(sorted(set(xs)), plane))


def _apart(values: Sequence[float], plane: Plane) -> list[float]:
    """Those values whose numbers do not touch below the axis; the last is always among them."""
    kept: list[float] = []
    for value in reversed(values):
        if not kept or plane.x(kept[-1]) - plane.x(value) > 44:
            kept.append(value)
    return kept


def _curve(curve: Curve, plane: Plane, *, aside: float, y_label: str) -> str:
    places = [(plane.x(point.x) + aside, plane.y(point.y)) for point in curve.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dashes = ' stroke-dasharray="6 5"' if curve.dashed else ""
    drawn = f'<polyline points="{path}" fill="none" stroke="{curve.colour}" stroke-width="2.2"{dashes}/>'
    for (x, y), point in zip(places, curve.points, strict=True):
        told = f"{curve.name}: {point.y:.1f} {y_label} with {point.x:,.0f} examples"
        if point.low is not None and point.high is not None:
            told += f", 95% interval {point.low:.1f} to {point.high:.1f}"
            top, foot = plane.y(point.high), plane.y(point.low)
            drawn += (
                f'<path d="M{x:.1f},{top:.1f}V{foot:.1f}M{x - 4:.1f},{top:.1f}h8M{x - 4:.1f},{foot:.1f}h8" '
                f'stroke="{curve.colour}" stroke-width="1.4" stroke-opacity=".65" fill="none"/>'
            )
        if len(point.seeds) > 1:
            told += f"; each seed: {', '.join(f'{seed:.1f}' for seed in point.seeds)}"
            drawn += "".join(
                f'<circle cx="{x:.1f}" cy="{plane.y(seed):.1f}" r="2.4" fill="none" stroke="{curve.colour}"/>'
                for seed in point.seeds
            )
        drawn += f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{curve.colour}"><title>{escape(told)}</title></circle>'
    return drawn


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def draw_scatter(points: Sequence[tuple[float, float]], *, title: str, x_label: str, y_label: str) -> str:
    """Points of two numbers on the same scale, and the line where both are equal."""
    numbers = [number for point in points for number in point]
    low, high = min(numbers), max(numbers)
    margin = 0.04 * (high - low) or 1.0
    low, high = low - margin, high + margin
    plane = Plane((low, high), (low, high), width=480, height=460)
    drawn = [_diagonal(plane, low, high)]
    opacity = 0.75 if len(points) < 200 else 0.4
    for x, y in points:
        drawn.append(
            f'<circle class="dot" cx="{plane.x(x):.1f}" cy="{plane.y(y):.1f}" r="3.6" fill-opacity="{opacity}">'
            f"<title>true {x:.4g}, predicted {y:.4g}</title></circle>"
        )
    return plane.svg(drawn, title=title, x_label=x_label, y_label=y_label)


class Bin(NamedTuple):
    """Predictions of about the same confidence, in percent."""

    low: float
    high: float
    size: int
    confidence: float | None
    accuracy: float | None


def draw_reliability(bins: Sequence[Bin], *, title: str) -> str:
    """How often predictions are right, by how sure the model was; on the line where it is as sure as it is right."""
    plane = Plane((0.0, 100.0), (0.0, 100.0), width=480, height=420)
    most = max((each.size for each in bins), default=1)
    drawn = []
    for each in bins:
        if each.confidence is None or each.accuracy is None:
            continue
        left, right, top = plane.x(each.low) + 1, plane.x(each.high) - 1, plane.y(each.accuracy)
        told = f"{each.size:,} predictions of {each.confidence:.1f}% confidence: {each.accuracy:.1f}% are right"
        drawn.append(
            f'<rect class="bin" x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" '
            f'height="{max(1.0, plane.y(0.0) - top):.1f}" fill-opacity="{0.2 + 0.35 * each.size / most:.2f}">'
            f"<title>{told}</title></rect>"
            f'<circle class="mean" cx="{plane.x(each.confidence):.1f}" cy="{top:.1f}" r="3.4">'
            f"<title>{told}</title></circle>"
            f'<text class="count" x="{(left + right) / 2:.1f}" y="{plane.y(0.0) - 7:.1f}" text-anchor="middle">'
            f"{short(each.size)}</text>"
        )
    drawn.append(_diagonal(plane, 0.0, 100.0))
    return plane.svg(drawn, title=title, x_label="confidence of the model, %", y_label="predictions that are right, %")


def _diagonal(plane: Plane, low: float, high: float) -> str:
    return (
        f'<line class="front" x1="{plane.x(low):.1f}" y1="{plane.y(low):.1f}" x2="{plane.x(high):.1f}" '
        f'y2="{plane.y(high):.1f}" stroke-dasharray="3 4" stroke-width="1.5"/>'
    )
