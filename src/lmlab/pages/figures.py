"""Figures of the analyses as data: each draws itself as SVG or HTML by our own hand, and on matplotlib's axes for PNG.

Colours are laid over the ground with an opacity, so that they do on white, in dark mode and in greyscale: the stronger,
the more. Where numbers have a sign, blue is above zero and orange below. Every mark tells its number (`<title>`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple, Protocol

from lmlab.pages.charts import PALETTE

INK, SOFT, LINE = "var(--ink,#1d2330)", "var(--soft,#626b7a)", "var(--line,#e3e6ec)"
ABOVE, BELOW = "#3a62c9", "#d9822b"
LETTER, CELL, LONGEST = 7.2, 22, 24


class Figure(Protocol):
    """What can be drawn."""

    @property
    def title(self) -> str: ...

    def html(self) -> str:
        """As HTML or SVG that needs nothing else."""

    def draw(self, axes: Any) -> None:
        """On axes of matplotlib."""


def strength(value: float, most: float) -> float:
    """0 to 1, how strong the colour of a number is."""
    return min(1.0, abs(value) / most) if most > 0 and math.isfinite(value) else 0.0


def cut(text: str, most: int = LONGEST) -> str:
    """A label that is not too long."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _svg(parts: Sequence[str], *, width: float, height: float, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(title)}" '
        f'style="max-width:100%;height:auto;font:12.5px system-ui,sans-serif"><title>{escape(title)}</title>'
        f"{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", fill: str = INK, turn: int = 0) -> str:
    turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" style="fill:{fill}"{turned}>{escape(text)}</text>'


@dataclass(frozen=True)
class Heatmap:
    """Numbers by row and column, the stronger the colour the larger."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float]]
    most: float | None = None
    """The number whose colour is strongest; without it the largest."""
    unit: str = ".3f"
    cell: int = CELL

    @property
    def scale(self) -> float:
        """The number at full colour."""
        found = [abs(value) for row in self.values for value in row if math.isfinite(value)]
        return self.most if self.most is not None else max(found, default=1.0)

    def html(self) -> str:
        cell, most = self.cell, self.scale
        left = 18 + LETTER * max((len(cut(row)) for row in self.rows), default=1)
        rise = LETTER * max((len(cut(column)) for column in self.columns), default=1)
        top = 14 + 0.8 * rise
        parts = []
        for number, column in enumerate(self.columns):
            parts.append(_text(left + cell * (number + 0.6), top - 6, cut(column), turn=-52))
        for number, (row, values) in enumerate(zip(self.rows, self.values, strict=True)):
            y = top + cell * number
            parts.append(_text(left - 6, y + cell / 2 + 4, cut(row), anchor="end"))
            for place, value in enumerate(values):
                told = f"{row} → {self.columns[place]}: {format(value, self.unit)}"
                colour = ABOVE if value >= 0 else BELOW
                parts.append(
                    f'<rect x="{left + cell * place:.1f}" y="{y:.1f}" width="{cell - 1}" height="{cell - 1}" rx="3" '
                    f'fill="{colour}" fill-opacity="{strength(value, most):.3f}" stroke="{ABOVE}" stroke-opacity=".12">'
                    f"<title>{escape(told)}</title></rect>"
                )
        width = left + cell * len(self.columns) + 0.65 * rise + 8
        return _svg(parts, width=width, height=top + cell * len(self.rows) + 8, title=self.title)

    def draw(self, axes: Any) -> None:
        signed = any(value < 0 for row in self.values for value in row)
        low = -self.scale if signed else 0.0
        axes.imshow(self.values, cmap="PuOr_r" if signed else "Blues", vmin=low, vmax=self.scale, aspect="auto")
        axes.set_xticks(range(len(self.columns)), [cut(name) for name in self.columns], rotation=60, ha="right")
        axes.set_yticks(range(len(self.rows)), [cut(name) for name in self.rows])


class Bar(NamedTuple):
    """A number with its interval, and numbers of others that stand beside it, by name."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    beside: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Bars:
    """Numbers beside each other, with whiskers, and small marks for what others found."""

    title: str
    bars: Sequence[Bar]
    unit: str = ".1%"
    least: float = 0.0
    most: float | None = None
    line: float | None = None
    """Where chance is."""

    @property
    def range(self) -> tuple[float, float]:
        """From where to where."""
        seen = [end for bar in self.bars for end in (bar.value, bar.low, bar.high, *(v for _, v in bar.beside))]
        known = [end for end in seen if end is not None and math.isfinite(end)]
        top = self.most if self.most is not None else max(known, default=1.0)
        least = min([self.least, *known])
        return least, top if top > least else least + 1.0

    def html(self) -> str:
        left = 22 + LETTER * max((len(cut(bar.name, 40)) for bar in self.bars), default=1)
        wide, high = 420.0, 24.0
        least, most = self.range
        others = list(dict.fromkeys(name for bar in self.bars for name, _ in bar.beside))
        colours = dict(zip(others, PALETTE[1:] * (1 + len(others) // 9), strict=False))

        def x(value: float) -> float:
            return left + wide * (min(most, max(least, value)) - least) / (most - least)

        parts = []
        for number, bar in enumerate(self.bars):
            y = 6 + high * number
            start, end = sorted((x(max(0.0, least)), x(bar.value if math.isfinite(bar.value) else 0.0)))
            told = f"{bar.name}: {format(bar.value, self.unit)}"
            if bar.low is not None and bar.high is not None:
                told += f", 95% interval {format(bar.low, self.unit)} to {format(bar.high, self.unit)}"
            parts.append(_text(left - 8, y + 14, cut(bar.name, 40), anchor="end"))
            parts.append(
                f'<rect x="{start:.1f}" y="{y + 3:.1f}" width="{max(1.0, end - start):.1f}" height="{high - 9:.0f}" '
                f'rx="3" fill="{ABOVE}" fill-opacity=".75"><title>{escape(told)}</title></rect>'
            )
            if bar.low is not None and bar.high is not None:
                a, b, middle = x(bar.low), x(bar.high), y + high / 2 - 1.5
                parts.append(
                    f'<path d="M{a:.1f},{middle:.1f}H{b:.1f}M{a:.1f},{middle - 4:.1f}v8M{b:.1f},{middle - 4:.1f}v8" '
                    f'style="stroke:{INK}" fill="none"/>'
                )
            parts.extend(
                f'<circle cx="{x(value):.1f}" cy="{y + high / 2 - 1.5:.1f}" r="4" fill="none" '
                f'stroke="{colours[name]}" stroke-width="2"><title>{escape(name)}: {format(value, self.unit)}</title>'
                f"</circle>"
                for name, value in bar.beside
            )
            parts.append(_text(left + wide + 12, y + 14, format(bar.value, self.unit)))
        foot = 6 + high * len(self.bars)
        if self.line is not None:
            at = x(self.line)
            parts.append(
                f'<line x1="{at:.1f}" x2="{at:.1f}" y1="2" y2="{foot:.1f}" style="stroke:{SOFT}" '
                f'stroke-dasharray="3 4"/>'
            )
        place = left
        for name in others:
            parts.append(
                f'<circle cx="{place + 5:.1f}" cy="{foot + 12:.1f}" r="4" fill="none" stroke="{colours[name]}" '
                f'stroke-width="2"/>'
            )
            parts.append(_text(place + 14, foot + 16, name, fill=SOFT))
            place += 28 + LETTER * len(name)
        return _svg(parts, width=max(left + wide + 70, place), height=foot + 24, title=self.title)

    def draw(self, axes: Any) -> None:
        places = range(len(self.bars))
        axes.barh(places, [bar.value for bar in self.bars], color=ABOVE, alpha=0.75)
        for place, bar in zip(places, self.bars, strict=True):
            if bar.low is not None and bar.high is not None:
                axes.plot([bar.low, bar.high], [place, place], color="black", linewidth=1)
        axes.set_yticks(places, [cut(bar.name, 40) for bar in self.bars])
        axes.invert_yaxis()
        axes.set_xlim(*self.range)
        if self.line is not None:
            axes.axvline(self.line, linestyle=":", color="gray")


@dataclass(frozen=True)
class Lines:
    """Numbers by layer, or along any other axis of a few steps; one line each."""

    title: str
    steps: Sequence[str]
    lines: Sequence[tuple[str, Sequence[float]]]
    unit: str = ".3f"
    x_label: str = "layer"

    def html(self) -> str:
        right = 20 + LETTER * max((len(cut(name)) for name, _ in self.lines), default=1)
        left, top, wide, high = 54.0, 12.0, 440.0, 220.0
        known = [value for _, values in self.lines for value in values if math.isfinite(value)] or [0.0, 1.0]
        low, most = min(known), max(known)
        low, most = (low, most) if most > low else (low - 0.5, most + 0.5)

        def at(step: int, value: float) -> tuple[float, float]:
            across = step / max(1, len(self.steps) - 1)
            return left + wide * across, top + high * (most - value) / (most - low)

        parts = []
        for value in (low, (low + most) / 2, most):
            _, y = at(0, value)
            parts.append(f'<line x1="{left}" x2="{left + wide}" y1="{y:.1f}" y2="{y:.1f}" style="stroke:{LINE}"/>')
            parts.append(_text(left - 6, y + 4, format(value, self.unit), anchor="end", fill=SOFT))
        every = max(1, math.ceil(len(self.steps) / 20))
        for number, step in enumerate(self.steps):
            if number % every == 0:
                parts.append(_text(at(number, low)[0], top + high + 18, cut(step, 9), anchor="middle", fill=SOFT))
        parts.append(_text(left + wide / 2, top + high + 36, self.x_label, anchor="middle", fill=SOFT))
        ends: list[float] = []
        for (name, values), colour in zip(self.lines, PALETTE * (1 + len(self.lines) // 10), strict=False):
            places = [at(number, value) for number, value in enumerate(values) if math.isfinite(value)]
            if not places:
                continue
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            for (x, y), value in zip(places, [v for v in values if math.isfinite(v)], strict=True):
                parts.append(
                    f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4" fill="{colour}">'
                    f"<title>{escape(name)}: {format(value, self.unit)}</title></circle>"
                )
            y = places[-1][1] + 4
            while any(abs(y - other) < 13 for other in ends):
                y += 13
            ends.append(y)
            parts.append(_text(places[-1][0] + 9, y, cut(name), fill=colour))
        return _svg(parts, width=left + wide + right, height=max([top + high + 44, *ends]), title=self.title)

    def draw(self, axes: Any) -> None:
        for name, values in self.lines:
            axes.plot(range(len(values)), values, marker="o", label=name)
        every = max(1, math.ceil(len(self.steps) / 20))
        axes.set_xticks(range(0, len(self.steps), every), list(self.steps)[::every])
        axes.set_xlabel(self.x_label)
        axes.legend()


class Dot(NamedTuple):
    """A point, its group, and what it stands for."""

    x: float
    y: float
    group: str
    told: str


@dataclass(frozen=True)
class Scatter:
    """Points of several groups in a plane whose axes mean nothing by themselves."""

    title: str
    dots: Sequence[Dot] = field(default_factory=tuple)
    size: int = 460

    @property
    def groups(self) -> dict[str, str]:
        """The colour of each group."""
        names = list(dict.fromkeys(dot.group for dot in self.dots))
        return dict(zip(names, PALETTE * (1 + len(names) // 10), strict=False))

    def html(self) -> str:
        xs, ys = [dot.x for dot in self.dots], [dot.y for dot in self.dots]
        low = (min(xs, default=0.0), min(ys, default=0.0))
        wide = (max(xs, default=1.0) - low[0] or 1.0, max(ys, default=1.0) - low[1] or 1.0)
        size = self.size
        parts = [f'<rect x="1" y="1" width="{size}" height="{size}" rx="8" fill="none" style="stroke:{LINE}"/>']
        for dot in self.dots:
            x, y = 12 + (size - 24) * (dot.x - low[0]) / wide[0], size - 12 - (size - 24) * (dot.y - low[1]) / wide[1]
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{self.groups[dot.group]}" fill-opacity=".7">'
                f"<title>{escape(dot.group)}: {escape(dot.told)}</title></circle>"
            )
        for number, (name, colour) in enumerate(self.groups.items()):
            parts.append(f'<circle cx="{size + 20}" cy="{16 + 20 * number}" r="5" fill="{colour}"/>')
            parts.append(_text(size + 32, 20 + 20 * number, cut(name, 30)))
        right = 40 + LETTER * max((len(cut(name, 30)) for name in self.groups), default=1)
        return _svg(parts, width=size + right, height=size + 2, title=self.title)

    def draw(self, axes: Any) -> None:
        for name, colour in self.groups.items():
            chosen = [dot for dot in self.dots if dot.group == name]
            axes.scatter([d.x for d in chosen], [d.y for d in chosen], s=14, alpha=0.7, color=colour, label=name)
        axes.legend()
        axes.set(xticks=[], yticks=[])


@dataclass(frozen=True)
class ColouredText:
    """A text, piece by piece, each on a ground as strong as its number."""

    title: str
    pieces: Sequence[tuple[str, float]]
    most: float
    unit: str = ".2f"
    spaced: bool = False
    """Whether pieces are words, with a space between them."""

    def html(self) -> str:
        shown = (" " if self.spaced else "").join(self._piece(text, value) for text, value in self.pieces)
        style = "white-space:pre-wrap;line-height:2;font:14px/2 ui-monospace,monospace;overflow-wrap:anywhere"
        return f'<div role="img" aria-label="{escape(self.title)}" style="{style}">{shown}</div>'

    def _piece(self, text: str, value: float) -> str:
        colour = (58, 98, 201) if value >= 0 else (217, 130, 43)
        ground = f"rgba({colour[0]},{colour[1]},{colour[2]},{0.85 * strength(value, self.most):.2f})"
        told = f"{text.strip() or 'white space'}: {format(value, self.unit)}"
        dark = ";color:#fff" if strength(value, self.most) > 0.62 else ""
        shown = escape(text.replace("\n", "⏎\n")) or "∅"
        return (
            f'<span tabindex="0" style="background:{ground}{dark};border-radius:3px" title="{escape(told)}">'
            f"{shown}</span>"
        )

    def draw(self, axes: Any) -> None:
        columns, x, y = 90, 0, 0
        for text, value in self.pieces:
            whole = text.replace("\n", "⏎") + (" " if self.spaced else "")
            if x + len(whole) > columns:
                x, y = 0, y + 1
            colour = (ABOVE if value >= 0 else BELOW) + f"{int(217 * strength(value, self.most)):02x}"
            box = {"facecolor": colour, "edgecolor": "none", "pad": 1.0}
            axes.text(x, -y, whole, family="monospace", fontsize=8, bbox=box)
            x += len(whole)
            if text.endswith("\n"):
                x, y = 0, y + 1
        axes.set(xlim=(0, columns), ylim=(-y - 1, 1))
        axes.axis("off")


def save_png(figures: Sequence[Figure], path: Any) -> None:
    """All figures below each other as PNG; a ValueError names what to install where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        raise ValueError(
            f"{path}: PNG needs matplotlib: pip install 'lmlab[report]', or give a name that ends with .html"
        ) from None
    if not figures:
        raise ValueError(f"{path}: this analysis has no picture; give a name that ends with .json, .csv or .html")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn, all_axes = pyplot.subplots(
        len(figures), 1, figsize=(9, 5 * len(figures)), layout="constrained", squeeze=False
    )
    for figure, axes in zip(figures, all_axes[:, 0], strict=True):
        figure.draw(axes)
        axes.set_title(figure.title)
    drawn.savefig(path, dpi=130)
    pyplot.close(drawn)
