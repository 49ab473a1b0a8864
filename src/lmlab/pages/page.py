"""Filling a page: one file that needs nothing else, with the style that all pages share in its head."""

from __future__ import annotations

from pathlib import Path
from string import Template


def fill_page(path: Path, *, title: str, **parts: str) -> str:
    """The template at `path` with its parts, all of them HTML; `$head` stands for title and house style.

    A page's own rules come after the head, so it has to say only what differs there.
    """
    head = Template(Path(__file__).with_name("head.html").read_text(encoding="utf-8")).substitute(title=title)
    return Template(path.read_text(encoding="utf-8")).substitute(parts, head=head)
