"""Pages: jinja2 templates that escape whatever is put into them. A page is one file that needs nothing else."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from lmlab.messages import printable
from lmlab.pages import formats

TEMPLATES = Path(__file__).with_name("templates")


class Tile(NamedTuple):
    """A key number of a page, and its meaning."""

    value: str
    what: str


class Cell(NamedTuple):
    """A cell of a table, with a note in small print."""

    value: str
    note: str = ""


def render(template: str, **values: Any) -> Markup:
    """A template filled with values; control characters in them are shown as escapes, such as \\x00."""
    return Markup(printable(_environment().get_template(template).render(values)))


def render_macro(name: str, *arguments: Any) -> Markup:
    """A part of a page: the macro of this name in macros.html."""
    return Markup(printable(getattr(_environment().get_template("macros.html").module, name)(*arguments)))


def house_style() -> str:
    """The style sheet that all pages share."""
    return (TEMPLATES / "house.css").read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "short": formats.short,
        "number": formats.number,
        "duration": formats.duration,
        "size": formats.size,
        "energy": formats.energy,
        "thousands": lambda value: f"{value:,}",
        "decimals": lambda value, digits: f"{value:,.{digits}f}",
        "capital": lambda text: f"{text[:1].upper()}{text[1:]}",
    }
    return environment
