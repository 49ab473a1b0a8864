"""An analysis as the studio draws it: its words, its table, and its figures as plain data with their kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lmlab.analysis.view import plain

if TYPE_CHECKING:
    from lmlab.pages.views import View

MOST_ROWS = 2000
"""Rows of a table that a page is sent."""


def show(view: View) -> dict[str, Any]:
    """A record that can be looked at, as JSON."""
    table = view.table()
    return {
        "title": view.title,
        "lead": view.lead(),
        "notes": list(view.notes()),
        "columns": list(table.columns),
        "rows": plain([list(row) for row in table.rows[:MOST_ROWS]]),
        "figures": [{"kind": type(figure).__name__, **plain(figure)} for figure in view.figures()],
    }
