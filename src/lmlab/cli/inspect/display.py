"""What an analysis found where the user wants it: as a table on the screen, as JSON, or as a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmlab.cli.texts import check_outputs
from lmlab.messages import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmlab.analysis.view import Viewed
    from lmlab.language_model import LanguageModel
    from lmlab.pages.views import Table as Figures

SUFFIXES = (".html", ".png", ".json", ".csv")
SHORTEST = 8
"""Letters of a column of text, at least, where all columns together are too wide."""
GAP = 3
"""Between two columns."""
MOST_LINES = 200
"""Rows of a table on the screen; files have all."""


def check_output(output: Path | None, *, inputs: Sequence[str | Path | None], overwrite: bool) -> None:
    """Refuse what cannot be written before any work is done."""
    if output is None:
        return
    if output.suffix not in SUFFIXES:
        raise ValueError(f"-o {output}: end the name with {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    check_outputs({"-o": output}, inputs=inputs, overwrite=overwrite)


def open_run(run: Path, device: str) -> LanguageModel:
    """The model of a run, on the given device."""
    from lmlab.language_model import load
    from lmlab.training.devices import choose_device

    return load(run, device=choose_device(device))


def show(view: Viewed, *, output: Path | None, json_: bool, subtitle: str = "") -> None:
    """Write the file, if one is asked for; print JSON, or the table with its notes."""
    if output is not None:
        write(view, output, subtitle=subtitle)
        print(printable(f"wrote {output}"), file=sys.stderr)
    if json_:
        print(to_json(view))
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from lmlab.cli.console import Console

    found, console = view.table(), Console(highlight=False)
    console.print(Text(view.lead(), style="bold"))
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    rows = [found.format_row(row) for row in found.rows[:MOST_LINES]]
    widths = fit(found, rows, room=console.width)
    for name, how, width in zip(found.columns, found.formats, widths, strict=True):
        grid.add_column(Text(name), justify="right" if how else "left", overflow="fold", width=width)
    for cells in rows:
        grid.add_row(*map(Text, cells))
    whole = sum(widths) + GAP * (len(widths) - 1)
    wide = console if whole <= console.width else Console(highlight=False, width=whole)  # no number is ever cut
    wide.print(grid)
    if len(found.rows) > MOST_LINES:
        console.print(f"{len(found.rows) - MOST_LINES:,} more rows: -o FILE.csv or --json has all")
    for note in view.notes():
        console.print(Text(f"note: {note}", style="dim"))


def fit(found: Figures, rows: Sequence[Sequence[str]], *, room: int) -> list[int]:
    """The widths of columns: names and texts are folded where there is no room for all, numbers never."""
    from rich.cells import cell_len

    def longest(texts: Sequence[str]) -> int:
        return max(map(cell_len, texts), default=0)

    cells = [longest([row[column] for row in rows]) for column in range(len(found.columns))]
    widths = [max(width, cell_len(name)) for width, name in zip(cells, found.columns, strict=True)]
    room -= GAP * (len(widths) - 1)
    if sum(widths) <= room:
        return widths
    for column, (name, how) in enumerate(zip(found.columns, found.formats, strict=True)):
        if how:
            widths[column] = max(cells[column], longest(name.split()))
    texts = [column for column, how in enumerate(found.formats) if not how]
    while sum(widths) > room and texts and widths[widest := max(texts, key=lambda column: widths[column])] > SHORTEST:
        widths[widest] -= 1
    return widths


def to_json(view: Viewed) -> str:
    """All of a record as one line of JSON."""
    import json

    from lmlab.analysis.view import plain

    return json.dumps(plain(view.as_json()), ensure_ascii=False, allow_nan=False)


def write(view: Viewed, output: Path, *, subtitle: str = "") -> None:
    """Write the record in the form that the name of the file asks for, whole or not at all."""
    from lmlab.files import write_bytes
    from lmlab.pages.figures import save_png
    from lmlab.pages.views import to_csv, to_page

    if output.suffix == ".png":
        save_png(view.figures(), output)
        return
    content: dict[str, Any] = {
        ".html": lambda: to_page(view, subtitle=subtitle),
        ".json": lambda: to_json(view) + "\n",
        ".csv": lambda: to_csv(view.table()),
    }
    write_bytes(output, content[output.suffix]().encode())
