"""Figures without numeric axes: bars, clouds of points, coloured text, the circles of a hash.

Colours are laid over the background with an opacity, so that they work on white, in dark mode and in greyscale: the
stronger, the larger the value. Where values have a sign, blue is positive and orange negative. Every mark shows its
value to the pointer (`<title>`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from markupsafe import Markup

from lmlab.messages import printable
from lmlab.pages.figures.heatmap import ABOVE, BELOW, strength
from lmlab.pages.figures.palette import PALETTE
from lmlab.pages.figures.svg import (
    INK,
    LETTER,
    LINE,
    SOFT,
    cut,
    drawing,
    element,
    label,
    standalone,
    tooltip,
    widest,
)


class Bar(NamedTuple):
    """A value with its interval, and named values of others, shown as rings."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    others: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Bars:
    """Values as bars with whiskers, and small rings for the values of others."""

    title: str
    bars: Sequence[Bar]
    unit: str = ".1%"
    least: float = 0.0
    most: float | None = None
    line: float | None = None
    """Where chance is."""
    inches: ClassVar[tuple[float, float]] = (9.0, 5.0)

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest value that fit."""
        seen = [end for bar in self.bars for end in (bar.value, bar.low, bar.high, *(v for _, v in bar.others))]
        known = [end for end in seen if end is not None and math.isfinite(end)]
        top = self.most if self.most is not None else max(known, default=1.0)
        least = min([self.least, *known])
        return least, top if top > least else least + 1.0

    @property
    def colours(self) -> dict[str, str]:
        """The colour of each of the others."""
        others = list(dict.fromkeys(name for bar in self.bars for name, _ in bar.others))
        return dict(zip(others, PALETTE[1:] * (1 + len(others) // 9), strict=False))

    def html(self) -> Markup:
        left, wide, high = 22 + widest((bar.name for bar in self.bars), 40), 420.0, 24.0
        least, most = self.range

        def x(value: float) -> float:
            return left + wide * (min(most, max(least, value)) - least) / (most - least)

        parts = []
        for number, bar in enumerate(self.bars):
            y = 6 + high * number
            start, end = sorted((x(max(0.0, least)), x(bar.value if math.isfinite(bar.value) else 0.0)))
            box = {"x": start, "y": y + 3, "width": max(1.0, end - start), "height": high - 9, "rx": 3}
            parts.append(label(left - 8, y + 14, cut(bar.name, 40), anchor="end"))
            parts.append(element("rect", tooltip(self._describe(bar)), **box, fill=ABOVE, fill_opacity=".75"))
            middle = y + high / 2 - 1.5
            if bar.low is not None and bar.high is not None:
                a, b = x(bar.low), x(bar.high)
                d = f"M{a:.1f},{middle:.1f}H{b:.1f}M{a:.1f},{middle - 4:.1f}v8M{b:.1f},{middle - 4:.1f}v8"
                parts.append(element("path", d=d, style=f"stroke:{INK}", fill="none"))
            for name, value in bar.others:
                says = tooltip(f"{name}: {format(value, self.unit)}")
                parts.append(_ring(x(value), middle, self.colours[name], says))
            parts.append(label(left + wide + 12, y + 14, format(bar.value, self.unit)))
        foot = 6 + high * len(self.bars)
        if self.line is not None:
            at = x(self.line)
            parts.append(element("line", x1=at, x2=at, y1=2, y2=foot, style=f"stroke:{SOFT}", stroke_dasharray="3 4"))
        end = left
        for name, colour in self.colours.items():
            parts += [_ring(end + 5, foot + 12, colour), label(end + 14, foot + 16, name, fill=SOFT)]
            end += 28 + LETTER * len(name)
        return drawing(parts, width=max(left + wide + 70, end), height=foot + 24, title=self.title)

    def _describe(self, bar: Bar) -> str:
        text = f"{bar.name}: {format(bar.value, self.unit)}"
        if bar.low is not None and bar.high is not None:
            text += f", 95% interval {format(bar.low, self.unit)} to {format(bar.high, self.unit)}"
        return text

    def draw(self, axes: Any) -> None:
        positions = range(len(self.bars))
        axes.barh(positions, [bar.value for bar in self.bars], color=ABOVE, alpha=0.75)
        for position, bar in zip(positions, self.bars, strict=True):
            if bar.low is not None and bar.high is not None:
                axes.plot([bar.low, bar.high], [position, position], color="black", linewidth=1)
        axes.set_yticks(positions, [cut(bar.name, 40) for bar in self.bars])
        axes.invert_yaxis()
        axes.set_xlim(*self.range)
        if self.line is not None:
            axes.axvline(self.line, linestyle=":", color="gray")


def _ring(x: float, y: float, colour: str, *says: Markup) -> Markup:
    return element("circle", *says, cx=x, cy=y, r=4, fill="none", stroke=colour, stroke_width=2)


class Dot(NamedTuple):
    """A point, its group, and the text that the pointer shows."""

    x: float
    y: float
    group: str
    label: str


@dataclass(frozen=True)
class Scatter:
    """Points of several groups in a plane whose axes have no meaning of their own."""

    title: str
    dots: Sequence[Dot] = field(default_factory=tuple)
    size: int = 460
    inches: ClassVar[tuple[float, float]] = (9.0, 5.0)

    @property
    def groups(self) -> dict[str, str]:
        """The colour of each group."""
        names = list(dict.fromkeys(dot.group for dot in self.dots))
        return dict(zip(names, PALETTE * (1 + len(names) // 10), strict=False))

    def html(self) -> Markup:
        xs, ys = [dot.x for dot in self.dots], [dot.y for dot in self.dots]
        low = (min(xs, default=0.0), min(ys, default=0.0))
        wide = (max(xs, default=1.0) - low[0] or 1.0, max(ys, default=1.0) - low[1] or 1.0)
        size, groups = self.size, self.groups
        parts = [element("rect", x=1, y=1, width=size, height=size, rx=8, fill="none", style=f"stroke:{LINE}")]
        for dot in self.dots:
            x, y = 12 + (size - 24) * (dot.x - low[0]) / wide[0], size - 12 - (size - 24) * (dot.y - low[1]) / wide[1]
            says = tooltip(f"{dot.group}: {dot.label}")
            parts.append(element("circle", says, cx=x, cy=y, r=4, fill=groups[dot.group], fill_opacity=".7"))
        for number, (name, colour) in enumerate(groups.items()):
            parts.append(element("circle", cx=size + 20, cy=16 + 20 * number, r=5, fill=colour))
            parts.append(label(size + 32, 20 + 20 * number, cut(name, 30)))
        return drawing(parts, width=size + 40 + widest(groups, 30), height=size + 2, title=self.title)

    def draw(self, axes: Any) -> None:
        for name, colour in self.groups.items():
            chosen = [dot for dot in self.dots if dot.group == name]
            axes.scatter([d.x for d in chosen], [d.y for d in chosen], s=14, alpha=0.7, color=colour, label=name)
        axes.legend()
        axes.set(xticks=[], yticks=[])


@dataclass(frozen=True)
class ColouredText:
    """A text in pieces, each on a background as strong as its value."""

    title: str
    pieces: Sequence[tuple[str, float]]
    most: float
    unit: str = ".2f"
    spaced: bool = False
    """Whether pieces are words, with a space between them."""
    inches: ClassVar[tuple[float, float]] = (9.0, 5.0)

    def html(self) -> Markup:
        shown = Markup(" " if self.spaced else "").join(self._piece(text, value) for text, value in self.pieces)
        style = "white-space:pre-wrap;line-height:2;font:14px/2 ui-monospace,monospace;overflow-wrap:anywhere"
        return Markup(printable(element("div", shown, role="img", aria_label=self.title, style=style)))

    def _piece(self, text: str, value: float) -> Markup:
        colour = "58,98,201" if value >= 0 else "217,130,43"
        strong = strength(value, self.most)
        style = f"background:rgba({colour},{0.85 * strong:.2f}){';color:#fff' * (strong > 0.62)};border-radius:3px"
        says = f"{text.strip() or 'white space'}: {format(value, self.unit)}"
        return element("span", text.replace("\n", "⏎\n") or "∅", tabindex=0, style=style, title=says)

    def draw(self, axes: Any) -> None:
        columns, x, y = 90, 0, 0
        for text, value in self.pieces:
            shown = text.replace("\n", "⏎") + (" " if self.spaced else "")
            if x + len(shown) > columns:
                x, y = 0, y + 1
            colour = (ABOVE if value >= 0 else BELOW) + f"{int(217 * strength(value, self.most)):02x}"
            box = {"facecolor": colour, "edgecolor": "none", "pad": 1.0}
            axes.text(x, -y, shown, family="monospace", fontsize=8, bbox=box)
            x += len(shown)
            if text.endswith("\n"):
                x, y = 0, y + 1
        axes.set(xlim=(0, columns), ylim=(-y - 1, 1))
        axes.axis("off")


RADIUS, ROOM = 70, 200
"""Of a circle of a hash, and the pixels for each."""


def draw_circles(rounds: Sequence[Sequence[int]], points: Sequence[float]) -> str:
    """Rounds of a hash as circles that are cut into its buckets, with some points on them, as an SVG file.

    A round has the bucket of each direction, evenly spaced from 0 degrees; points are given in degrees.
    """
    parts: list[Markup] = []
    for number, buckets in enumerate(rounds):
        x, y = ROOM * number + ROOM / 2, ROOM / 2
        for start, end in _runs(buckets):
            parts += _sector((x, y), start, end, steps=len(buckets), bucket=buckets[start])
        for degrees, name in zip(points, "xyzuvw", strict=False):
            (cx, cy), (at_x, at_y) = (_around((x, y), r, math.radians(degrees)) for r in (RADIUS, RADIUS + 13))
            parts.append(element("circle", cx=cx, cy=cy, r="4.5", style=f"fill:{INK}"))
            parts.append(label(at_x, at_y + 4, name, anchor="middle"))
        positions = [round(degrees / 360 * len(buckets)) % len(buckets) for degrees in points]
        same = len({buckets[position] for position in positions}) == 1
        text = f"round {number + 1}: {'same bucket' if same else 'different buckets'}"
        parts.append(label(x, ROOM + 2, text, anchor="middle"))
    title = f"{len(rounds)} rounds of hashing"
    return standalone(drawing(parts, width=ROOM * len(rounds), height=ROOM + 30, title=title))


def _runs(buckets: Sequence[int]) -> list[tuple[int, int]]:
    """Where neighbouring directions share a bucket: the first, and the one after the last."""
    cuts = [each for each in range(len(buckets)) if buckets[each] != buckets[each - 1]]
    if not cuts:
        return [(0, len(buckets))]
    return [(a, b) for a, b in zip(cuts, [*cuts[1:], cuts[0] + len(buckets)], strict=True)]


def _around(centre: tuple[float, float], radius: float, angle: float) -> tuple[float, float]:
    return centre[0] + radius * math.cos(angle), centre[1] - radius * math.sin(angle)


def _sector(centre: tuple[float, float], start: int, end: int, *, steps: int, bucket: int) -> list[Markup]:
    """From half a step before its first direction to half a step after its last."""
    a, b = ((each - 0.5) * 2 * math.pi / steps for each in (start, end))
    first, last = ("{:.2f} {:.2f}".format(*_around(centre, RADIUS, angle)) for angle in (a, b))
    d = f"M{centre[0]} {centre[1]}L{first}A{RADIUS} {RADIUS} 0 {int(b - a > math.pi)} 0 {last}Z"
    x, y = _around(centre, 0.6 * RADIUS, (a + b) / 2)
    colour = PALETTE[bucket % len(PALETTE)]
    return [
        element("path", d=d, fill=colour, fill_opacity=".35", stroke="#fff"),
        label(x, y + 4, str(bucket), anchor="middle"),
    ]
