"""What an analysis found, as a page that needs nothing else, as a part of a notebook, and as a table."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple, Protocol

from lmlab.pages.figures import Figure
from lmlab.pages.page import fill_page

MOST_ROWS = 500
"""Rows of the table that a page shows; JSON and CSV have all."""


class Table(NamedTuple):
    """Numbers and names in rows; `formats` say how each column is told ("" as it is, ".1%", ",d", ".3f")."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    formats: tuple[str, ...]

    def told(self, row: Sequence[Any]) -> list[str]:
        """The cells of a row as people read them; a dash where there is nothing."""
        return [tell(cell, how) for cell, how in zip(row, self.formats, strict=True)]


class View(Protocol):
    """What can be looked at: every analysis gives such a record."""

    @property
    def title(self) -> str: ...

    def lead(self) -> str: ...

    def notes(self) -> Sequence[str]: ...

    def table(self) -> Table: ...

    def figures(self) -> Sequence[Figure]: ...


def tell(cell: Any, how: str) -> str:
    """A cell in words."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "–"
    return format(cell, how) if how and not isinstance(cell, str) else str(cell)


def to_html_table(table: Table) -> str:
    """The first rows as HTML."""
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in table.told(row))}</tr>" for row in table.rows[:MOST_ROWS]
    )
    more = f"<p>{len(table.rows) - MOST_ROWS:,} more rows: in JSON and CSV</p>" if len(table.rows) > MOST_ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"


def to_csv(table: Table) -> str:
    """All rows, numbers in full."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return out.getvalue()


def to_fragment(view: View) -> str:
    """For a notebook: title, lead, figures, and the table behind them."""
    figures = "".join(
        f"<figure style='display:inline-block;vertical-align:top;margin:8px 20px 8px 0;max-width:100%;overflow-x:auto'>"
        f"<figcaption style='color:#626b7a'>{escape(each.title)}</figcaption>{each.html()}</figure>"
        for each in view.figures()
    )
    notes = "".join(f"<p style='color:#626b7a;margin:2px 0'>{escape(note)}</p>" for note in view.notes())
    table = to_html_table(view.table())
    behind = f"<details><summary>the numbers</summary>{table}</details>" if figures else table
    return (
        f"<div class='lmlab-view'><p style='margin:0'><b>{escape(view.title)}</b></p>"
        f"<p style='margin:2px 0 6px'>{escape(view.lead())}</p>{figures}{behind}{notes}</div>"
    )


def to_page(view: View, *, about: str = "") -> str:
    """One file that needs nothing else; `about` names the run."""
    figures = "".join(
        f'<section><h2>{escape(each.title)}</h2><div class="scroll">{each.html()}</div></section>'
        for each in view.figures()
    )
    return fill_page(
        "inspection.html",
        title=escape(f"{view.title} · {about}" if about else view.title),
        kind=escape(f"lmlab · inspect{' · ' + about if about else ''}"),
        heading=escape(view.title),
        lead=escape(view.lead()),
        figures=figures,
        table=to_html_table(view.table()),
        notes="".join(f'<p class="how">{escape(note)}</p>' for note in view.notes()),
    )
