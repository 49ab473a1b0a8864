"""lmlab inspect cells: units over a text, and the search for those that tell a property."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.inspect.showing import DEVICE, JSON, OUTPUT, REPLACE

LONGEST = 100_000
"""Characters of a file that are read."""


def cells(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory: rnn, gru, lstm, or a Transformer.")],
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="The text to read; '-' reads standard input.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="Read this text.")] = None,
    find: Annotated[
        str | None, typer.Option(help="Search units that tell: quotes, brackets, line (late in it), capitals, if.")
    ] = None,
    regex: Annotated[
        str | None, typer.Option(help="Search units that tell what this regular expression finds.")
    ] = None,
    part: Annotated[
        list[str] | None,
        typer.Option(help="cell, hidden, input_gate, forget_gate, output_gate, update_gate, reset_gate, neurons …"),
    ] = None,
    layer: Annotated[int, typer.Option(min=0, help="Without a search: the layer of the unit, from 0.")] = 0,
    unit: Annotated[int, typer.Option(min=0, help="Without a search: the unit to show, from 0.")] = 0,
    top: Annotated[int, typer.Option(min=1, help="How many units a search names.")] = 20,
    characters: Annotated[int, typer.Option(min=1, help="Read only so many characters, the first.")] = LONGEST,
    output: Annotated[Path | None, typer.Option("-o", "--output", help=OUTPUT)] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON)] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=REPLACE)] = False,
    device: Annotated[str, typer.Option(help=DEVICE)] = "auto",
) -> None:
    """Which cells or neurons follow quotes, brackets, anything?

    Examples:

      lmlab inspect cells runs/lstm novel.txt --find quotes -o quotes.html

      lmlab inspect cells runs/gpt2 code.py --regex "#.*" --part neurons

      lmlab inspect cells runs/lstm --text "He said: (nothing)." --layer 1 --unit 17 --part forget_gate -o unit.html

    A search ranks all units on the first half of the text and judges the best by their area under the ROC curve (AUC)
    on the second half: 0.5 is chance, 1 is perfect; the order is that of the first half. The text should be one that
    the run was not trained on.
    """
    from lmlab.analysis.cell_search import search_cells
    from lmlab.analysis.cells import CellText, choose_parts, read_cells
    from lmlab.analysis.properties import find_property, matches
    from lmlab.analysis.view import Viewed
    from lmlab.cli.inspect.showing import check_output, open_run, show
    from lmlab.cli.texts import read_documents

    check_output(output, inputs=[run, file], overwrite=overwrite)
    if (file is None) == (text is None):
        raise ValueError("give FILE (or - for standard input), or --text TEXT")
    if find is not None and regex is not None:
        raise ValueError("--find and --regex are two searches: give one of them")
    wanted = find_property(find) if find is not None else matches(regex) if regex is not None else None
    given = text if text is not None else "\n".join(read_documents([str(file)], documents="file"))
    model = open_run(run, device)
    parts = choose_parts(model.model, part or [])
    if wanted is None:
        read = read_cells(model, given[:characters], parts=[parts[0].name])
        found: Viewed = CellText.of(read, layer=layer, part=parts[0].name, unit=unit)
    else:
        name = find or str(regex)
        found = search_cells(model, given[:characters], wanted, name=name, parts=part or [], top=top)
    show(found, output=output, json_=json_, about=str(run))
