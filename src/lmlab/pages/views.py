"""Analyses and alignments as pages, and what a notebook shows: analyses, surprisals, whole pages, cards."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from markupsafe import Markup

from lmlab.pages.figures import ColouredText, Figure, Heatmap
from lmlab.pages.page import render, render_macro

MOST_ROWS = 500
"""Rows of the table that a page shows; JSON and CSV have all."""
MOST_ALIGNMENTS = 100
"""Matrices on one page."""
STRONGEST = 12.0
"""Bits of surprisal at and above which the colour is strongest."""


class Table(NamedTuple):
    """Values in rows; `formats` are those of the columns ("" for text, ".1%", ",d", ".3f")."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    formats: tuple[str, ...]

    def format_row(self, row: Sequence[Any]) -> list[str]:
        """The cells of a row as text; a dash where there is nothing."""
        return [format_cell(cell, how) for cell, how in zip(row, self.formats, strict=True)]

    def shown(self) -> list[list[str]]:
        """The rows of a page."""
        return [self.format_row(row) for row in self.rows[:MOST_ROWS]]

    @property
    def hidden(self) -> int:
        """How many rows a page leaves out."""
        return max(0, len(self.rows) - MOST_ROWS)


class View(Protocol):
    """A record that can be shown: every analysis returns one."""

    @property
    def title(self) -> str: ...

    def lead(self) -> str: ...

    def notes(self) -> Sequence[str]: ...

    def table(self) -> Table: ...

    def figures(self) -> Sequence[Figure]: ...


class Alignment(Protocol):
    """Attention of target tokens to source tokens (see `analysis.alignment`)."""

    @property
    def source(self) -> Sequence[str]: ...
    @property
    def target(self) -> Sequence[str]: ...
    @property
    def weights(self) -> Sequence[Sequence[float]]: ...
    @property
    def texts(self) -> tuple[str, str]: ...


def format_cell(cell: Any, how: str) -> str:
    """A cell as text; a dash where there is nothing."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "–"
    return format(cell, how) if how and not isinstance(cell, str) else str(cell)


def to_csv(table: Table) -> str:
    """All rows, with numbers in full."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(table.rows)
    return out.getvalue()


def show_table(title: str, table: Table) -> Markup:
    """The first rows for a notebook, below a title."""
    return render_macro("titled", title, table)


def to_fragment(view: View) -> Markup:
    """The analysis for a notebook."""
    return render("view.html", view=view)


def to_page(view: View, *, subtitle: str = "") -> Markup:
    """The analysis as a page that needs nothing else; `about` names the run."""
    return render("inspection.html", view=view, subtitle=subtitle)


def draw_alignment(source: Sequence[str], target: Sequence[str], weights: Sequence[Sequence[float]]) -> Heatmap:
    """Attention weights as a matrix: target tokens in rows, source tokens in columns.

    The last token of each side, which is the boundary, is shown as ■, a space as a dot.
    """
    columns, rows = ([*(token.replace(" ", "·") for token in side[:-1]), "■"] for side in (source, target))
    title = f"Attention of {len(rows)} target tokens to {len(columns)} source tokens"
    return Heatmap(title, rows, columns, weights, most=1.0, unit=".1%", cell=26)


def to_alignments_page(
    alignments: Sequence[Alignment], *, numbers: Sequence[int] | None = None, model: str = "", what: str = ""
) -> Markup:
    """The page of the first `MOST_ALIGNMENTS` sentences; `what` describes the weights that are shown.

    `numbers` are those of the sentences, by default from 1.
    """
    shown = list(zip(numbers or range(1, len(alignments) + 1), alignments, strict=True))[:MOST_ALIGNMENTS]
    drawn = [(number, each, draw_alignment(each.source, each.target, each.weights)) for number, each in shown]
    return render("alignments.html", alignments=drawn, count=len(alignments), model=model, what=what)


class CaptionedPicture(NamedTuple):
    """A picture with its caption, and a figure of the picture for each word."""

    name: str
    text: str
    figures: Sequence[Figure]


def to_captions_page(captions: Sequence[CaptionedPicture], *, model: str = "") -> Markup:
    """The page of captions, with the attention of each word."""
    return render("captions.html", captions=captions, model=model)


def show_surprisals(pieces: Sequence[tuple[str, float]], *, caption: str, spaced: bool) -> Markup:
    """Tokens for a notebook, on a background as strong as their bits, below a line of text."""
    figure = ColouredText("Surprisal in bits", pieces, STRONGEST, unit=".1f", spaced=spaced)
    return render_macro("captioned", caption, figure)


def show_page(page: str, *, height: int = 560) -> Markup:
    """A whole page for a notebook, in a frame that may run its own script and nothing else."""
    return render_macro("framed", str(page), height)


def show_card(title: str, facts: Mapping[str, Any]) -> Markup:
    """A title and facts for a notebook, a line each."""
    return render_macro("card", title, facts)
