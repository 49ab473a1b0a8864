"""Parts of a page that several pages share: bars with whiskers, tabs, cards, a table of differences, lists of facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any


def table(head: Sequence[str], rows: Iterable[str], *, kind: str = "") -> str:
    """Rows of cells, all of them HTML, under a head."""
    cells = "".join(f"<th>{cell}</th>" for cell in head)
    opened = f'<table class="{kind}">' if kind else "<table>"
    return f"{opened}<thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def name_tag(name: str, colour: str, *, mark: str = "") -> str:
    """A name with its colour, and a mark after it."""
    return f'<b class="name" style="--c:{colour}">{escape(name)}{mark}</b>'


def bar(value: float, widest: float, colour: str, *, low: float | None = None, high: float | None = None) -> str:
    """A bar as long as a value, with a whisker over its interval."""
    whisker = ""
    if low is not None and high is not None:
        whisker = f'<i style="left:{_share(low, widest)};width:{_share(high - low, widest)}"></i>'
    return f'<div><span style="width:{_share(value, widest)};--c:{colour}"></span>{whisker}</div>'


def _share(value: float, widest: float) -> str:
    return f"{100 * value / widest:.2f}%"


def chips(items: Iterable[str]) -> str:
    """Short items, HTML each, side by side."""
    return f"<ul class=chips>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def facts(told: Mapping[str, Any]) -> str:
    """Names and values, for a definition list."""
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in told.items())


def section(title: str, how: str, content: str) -> str:
    """A part of a page under its title, all of it HTML, with a line of what it is about."""
    about = f'<p class="how">{how}</p>' if how else ""
    return f"<section>\n<h2>{title}</h2>\n{about}\n{content}\n</section>"
