"""Filling a page: one file that needs nothing else, with the style that all pages share in its head."""

from __future__ import annotations

from pathlib import Path
from string import Template


def fill_page(name: str, *, title: str, **parts: str) -> str:
    """The template of this name with its parts, all of them HTML; `$head` stands for title and house style.

    A page's own rules come after the head, so it has to say only what differs there.
    """
    return fill_part(name, head=fill_part("head.html", title=title), **parts)


def fill_part(name: str, **parts: str) -> str:
    """The template of this name, of a part of a page, with its own parts."""
    return Template(Path(__file__).with_name(name).read_text(encoding="utf-8")).substitute(parts)


def house_style() -> str:
    """The style that all pages share, as a style sheet for pages that are served and may have none of their own."""
    head = Path(__file__).with_name("head.html").read_text(encoding="utf-8")
    return head.partition("<style>")[2].partition("</style>")[0].lstrip()
