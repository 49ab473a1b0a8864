"""What the pictures of the documentation share: one style for light and dark pages, boxes, and the file around them."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from lmlab.pages.figures.svg import element

STYLE = """
svg{font:15px system-ui,-apple-system,"Segoe UI",sans-serif}
svg{--card:#fff;--band:#f3f5f8;--box:#fff;--ink:#1d2330;--soft:#555e6d;--line:#7b8595;--accent:#1f5fae}
@media (prefers-color-scheme:dark){svg{
--card:#1b1f27;--band:#232833;--box:#2b313d;--ink:#eef1f6;--soft:#b4bcc9;--line:#8b95a5;--accent:#7fb3f5}}
text{fill:var(--ink)} .soft{fill:var(--soft)} .head{font-weight:600}
.card{fill:var(--card)} .band{fill:var(--band)} .box{fill:var(--box);stroke:var(--line)}
.edge{fill:none;stroke:var(--line);stroke-width:1.3} .second{stroke-dasharray:4 3} .tip{fill:var(--line)}
a{cursor:pointer} a:hover .box,a:focus .box{stroke:var(--accent);stroke-width:2.5} a:focus{outline:none}
.system:hover .edge,.system:focus-within .edge{stroke:var(--accent);stroke-width:2.2}
.system:hover .tip,.system:focus-within .tip{fill:var(--accent)}
"""
"""The card is opaque, so that the picture is readable where the page has another scheme than the system."""


def words(x: float, y: float, content: str, *, class_: str | None = None, anchor: str | None = None) -> Markup:
    """Text at a position."""
    return element("text", content, x=float(x), y=float(y), class_=class_, text_anchor=anchor)


def rectangle(x: float, y: float, width: float, height: float, *, class_: str, radius: float = 0.0) -> Markup:
    """A rectangle in one of the styles."""
    sizes = {"x": float(x), "y": float(y), "width": float(width), "height": float(height)}
    return element("rect", **sizes, rx=radius or None, class_=class_)


def arrow(points: Iterable[tuple[float, float]], *, second: bool = False) -> Markup:
    """A line through some points, with a head at its end."""
    reached = [*points]
    (x0, _), (x, y) = reached[-2:]
    across, down = (0, 1) if x == x0 else (1 if x > x0 else -1, 0)
    tip = f"M{x:.1f} {y:.1f}l{-6 * across - 3.5 * down:.1f} {-6 * down - 3.5 * across:.1f}"
    tip += f"l{7 * down:.1f} {7 * across:.1f}z".replace("-0.0", "0.0")
    line = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in reached)
    return element("path", d=line, class_="edge second" if second else "edge") + element("path", d=tip, class_="tip")


def picture(parts: Iterable[str], *, width: float, height: float, title: str) -> str:
    """The file: the parts on an opaque card."""
    card = rectangle(0, 0, width, height, class_="card")
    svg = element(
        "svg",
        element("title", title),
        Markup("<style>{}</style>").format(Markup(STYLE)),
        card,
        *(Markup("\n") + Markup(part) for part in parts),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
    )
    return f"{svg}\n"
