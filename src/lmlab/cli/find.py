"""lmlab find: the pictures that are nearest to a text or to a picture."""

from __future__ import annotations

from typing import Annotated

import typer

from lmlab.cli.options import Device, Json, NeuralRun, OutputAnalysis, Overwrite, Top


def find(
    run: NeuralRun,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A text, or the path of a picture.")],
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="Folder, table or .zip of pictures; or a .txt file of texts.")
    ],
    top: Top = 5,
    output: OutputAnalysis = None,
    json_: Json = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Find the pictures that are nearest to a text or a picture.

    Examples:

      lmlab find runs/clip "a red circle" pictures/

      lmlab find runs/clip photo.png pictures/ --top 20 -o page.html

      lmlab find runs/clip photo.png captions.txt

    The run is a model of pictures and texts in one space (clip). Results are ranked by the cosine of their vectors with
    that of the query. A page (-o page.html) shows the pictures as the model reads them.
    """
    from dataclasses import replace

    from lmlab.analysis.pictures.search import search
    from lmlab.cli.console import progress_bar
    from lmlab.cli.inspect.display import check_output, open_run, show

    check_output(output, inputs=[run, data], overwrite=overwrite)
    matcher = open_run(run, device).matcher
    with progress_bar("reading pictures") as progress:
        found = search(replace(matcher, progress=progress), query, data, top=top)
    show(found, output=output, json_=json_, subtitle=str(run))
