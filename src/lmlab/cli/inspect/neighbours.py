"""lmlab inspect neighbours: the nearest tokens by embedding, and the nearest pictures."""

from __future__ import annotations

from typing import Annotated

import typer

from lmlab.cli.options import Device, Json, NeuralRun, OutputAnalysis, Overwrite, Top


def neighbours(
    run: NeuralRun,
    words: Annotated[
        list[str],
        typer.Argument(metavar="WORD|PICTURE", help="One word, or three for an analogy; a picture and a folder."),
    ],
    top: Top = 10,
    output: OutputAnalysis = None,
    json_: Json = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """The nearest tokens of a word, and analogies.

    Examples:

      lmlab inspect neighbours runs/gpt2 king

      lmlab inspect neighbours runs/bert man king woman

      lmlab inspect neighbours runs/vit photo.png pictures/ -o near.html

    Tokens are ranked by the cosine of their input embeddings. The vector of a word of several tokens is their mean.
    Three words a, b, c ask: a is to b as c is to what? To a model of pictures, give a picture and a folder, table or
    zip file of pictures: these are ranked by the cosine of their vectors.
    """
    from lmlab.analysis.neighbours import find_neighbours
    from lmlab.analysis.pictures.attention import reads_pictures
    from lmlab.analysis.pictures.neighbours import find_near_pictures
    from lmlab.cli.console import progress_bar
    from lmlab.cli.inspect.display import check_output, open_run, show

    check_output(output, inputs=[run], overwrite=overwrite)
    model = open_run(run, device)
    if not reads_pictures(model):
        show(find_neighbours(model, words, top=top), output=output, json_=json_, subtitle=str(run))
        return
    if len(words) != 2:
        raise ValueError(
            f"{run} reads pictures: give a picture and a folder, lmlab inspect neighbours RUN PICTURE FOLDER"
        )
    check_output(output, inputs=[run, *words], overwrite=overwrite)
    with progress_bar("reading pictures") as progress:
        found = find_near_pictures(model, words[0], words[1], top=top, progress=progress)
    show(found, output=output, json_=json_, subtitle=str(run))
