"""lmlab inspect typographic: zero-shot labels of pictures after a word is written on them."""

from __future__ import annotations

from typing import Annotated

import typer

from lmlab.cli.options import Device, Json, NeuralRun, OutputAnalysis, Overwrite, Templates


def typographic(
    run: NeuralRun,
    data: Annotated[str, typer.Argument(metavar="PICTURE", help="A picture, or a folder, table or .zip of pictures.")],
    word: Annotated[str | None, typer.Option(help="Word to write. (default: a wrong label)")] = None,
    labels: Annotated[str | None, typer.Option(help='Zero-shot labels of pictures: "cat,dog".')] = None,
    template: Templates = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of items to read.")] = 200,
    output: OutputAnalysis = None,
    json_: Json = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Labels of pictures after a word is written on them (CLIP).

    Examples:

      lmlab inspect typographic runs/clip cup.jpg --word apple --labels "cup,cat,dog" -o attack.html

      lmlab inspect typographic runs/signs builtin:signs --template "a red {}" -o attack.html

    The run is a model of pictures and texts (clip). Each picture is labelled as it is, with an empty label on it, and
    with the word on it. Without --labels these are the classes of the data, and without --word each picture gets a
    wrong one of them. Data with a test part are read there.
    """
    from lmlab.analysis.pictures.matching import PLAIN, held_out_rows
    from lmlab.analysis.pictures.typographic import attack
    from lmlab.cli.inspect.display import check_output, open_run, show
    from lmlab.data.readers.pictures.files import find_pictures

    check_output(output, inputs=[run, data], overwrite=overwrite)
    names = [] if labels is None else [label.strip() for label in labels.split(",") if label.strip()]
    rows = held_out_rows(find_pictures(data))[0][:limit]
    matcher = open_run(run, device).matcher
    found = attack(matcher, rows, word=word, labels=names, templates=template or PLAIN)
    show(found, output=output, json_=json_, subtitle=str(run))
