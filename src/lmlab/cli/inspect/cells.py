"""lmlab inspect cells: units over a text, and the search for those that detect a property."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.options import Device, Json, OutputAnalysis, Overwrite, Top

LONGEST = 100_000
"""Maximum number of characters, unless --limit."""


def cells(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory: rnn, gru, lstm, or a Transformer.")],
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="Text to read; '-' reads standard input.")] = None,
    text: Annotated[str | None, typer.Option(help="Text to read, instead of FILE.")] = None,
    find: Annotated[
        str | None, typer.Option(help="Find units that detect: quotes, brackets, line, capitals, if.")
    ] = None,
    regex: Annotated[
        str | None, typer.Option(help="Find units that detect matches of this regular expression.")
    ] = None,
    part: Annotated[
        list[str] | None, typer.Option(help="cell, hidden, input_gate, forget_gate … or neurons; repeatable.")
    ] = None,
    layer: Annotated[int, typer.Option(min=0, help="Layer of the unit to show, from 0.")] = 0,
    unit: Annotated[int, typer.Option(min=0, help="Unit to show, from 0.")] = 0,
    top: Top = 20,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of characters to read.")] = LONGEST,
    output: OutputAnalysis = None,
    json_: Json = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Cells and neurons that detect quotes, brackets, anything.

    Examples:

      lmlab inspect cells runs/lstm novel.txt --find quotes -o quotes.html

      lmlab inspect cells runs/gpt2 code.py --regex "#.*" --part neurons

      lmlab inspect cells runs/lstm --text "He said: (nothing)." --layer 1 --unit 17 --part forget_gate -o unit.html

    --find and --regex rank all units on the first half of the text and test the best on the second half, by their area
    under the ROC curve (AUC): 0.5 is chance, 1 is perfect. The order is that of the first half. Use a text that the run
    was not trained on. `line` means late in the line.
    """
    from lmlab.analysis.cells.activations import CellText, choose_parts, read_cells
    from lmlab.analysis.cells.properties import find_property, matches
    from lmlab.analysis.cells.search import search_cells
    from lmlab.analysis.view import Viewed
    from lmlab.cli.inspect.display import check_output, open_run, show
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
        read = read_cells(model, given[:limit], parts=[parts[0].name])
        found: Viewed = CellText.of(read, layer=layer, part=parts[0].name, unit=unit)
    else:
        name = find or str(regex)
        found = search_cells(model, given[:limit], wanted, name=name, parts=part or [], top=top)
    show(found, output=output, json_=json_, subtitle=str(run))
