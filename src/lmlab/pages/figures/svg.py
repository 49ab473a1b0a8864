"""SVG elements. Whatever is put into them is escaped, so a token or a name can never become markup.

Colours are custom properties of the page with a fallback: the same drawing fits a light page, a dark page and a
notebook, and `standalone` turns it into a file for a paper.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from markupsafe import Markup

from lmlab.messages import printable
from lmlab.pages.figures.palette import CORNERS, shape_number

INK, SOFT, LINE = "var(--ink,#1d2330)", "var(--soft,#626b7a)", "var(--line,#e3e6ec)"
LETTER = 7.2
"""The approximate width of a letter in pixels."""
FONT = "12.5px system-ui,-apple-system,'Segoe UI',sans-serif"


def element(name: str, *children: str, **attributes: str | float | None) -> Markup:
    """An element. `class_` is written as class, `text_anchor` as text-anchor; None is left out, floats are rounded."""
    written = Markup("").join(
        Markup(' {}="{}"').format(
            key.rstrip("_").replace("_", "-"), _number(value) if isinstance(value, float) else value
        )
        for key, value in attributes.items()
        if value is not None
    )
    return Markup("<{0}{1}>{2}</{0}>").format(name, written, Markup("").join(children))


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def label(x: float, y: float, content: str, *, anchor: str = "start", fill: str = INK, turn: int = 0) -> Markup:
    """Text at a position."""
    return element(
        "text",
        content,
        x=float(x),
        y=float(y),
        text_anchor=None if anchor == "start" else anchor,
        style=f"fill:{fill}",
        transform=f"rotate({turn} {x:.1f} {y:.1f})" if turn else None,
    )


def tooltip(content: str) -> Markup:
    """What the pointer over an element shows."""
    return element("title", content)


def mark(x: float, y: float, radius: float, colour: str, content: str) -> Markup:
    """A mark of a line in the shape that goes with its colour, with a tooltip."""
    corners = CORNERS[shape_number(colour)]
    if not corners:
        return element("circle", tooltip(content), cx=x, cy=y, r=radius, fill=colour)
    points = path((x + radius * right, y + radius * down) for right, down in corners)
    return element("polygon", tooltip(content), points=points, fill=colour)


def path(points: Iterable[tuple[float, float]]) -> str:
    """Positions, for the attribute `points` of a polyline."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def halo(parts: Iterable[str]) -> Markup:
    """Text that stays readable on top of lines."""
    style = "paint-order:stroke;stroke:var(--card,#fff);stroke-width:3px;stroke-linejoin:round"
    return element("g", *parts, style=style)


def drawing(
    parts: Iterable[str], *, width: float, height: float, title: str, wide: bool = False, class_: str | None = None
) -> Markup:
    """The whole SVG. A `wide` one fills the width of its container up to 900 pixels; a class is styled by the page."""
    size = "width:100%;max-width:900px;margin:0 auto" if wide else "max-width:100%"
    content = element(
        "svg",
        *([] if wide or class_ else [tooltip(title)]),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        width=None if wide else round(width),
        height=None if wide else round(height),
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="img",
        aria_label=title,
        class_=class_,
        style=None if class_ else f"display:block;height:auto;{size};font:{FONT}",
    )
    return Markup(printable(content))


def standalone(svg: str) -> str:
    """The drawing as a file of its own: fixed colours on white."""
    fixed = re.sub(r"var\(--\w+,(#\w+)\)", r"\1", svg)
    return re.sub(r"(<svg [^>]*>)", r'\1<rect width="100%" height="100%" fill="#fff"/>', fixed, count=1)


def cut(text: str, longest: int = 24) -> str:
    """A label that is not too long."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def widest(names: Iterable[str], longest: int = 24) -> float:
    """The width in pixels of the longest of some labels."""
    return LETTER * max((len(cut(name, longest)) for name in names), default=1)
