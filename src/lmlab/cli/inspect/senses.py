"""lmlab inspect senses: one word in many sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.inspect.showing import DEVICE, JSON, OUTPUT, REPLACE


def senses(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory of any neural model.")],
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="A word's folder of CoarseWSD, or a text, a sentence per line.")
    ],
    word: Annotated[str | None, typer.Option(help="Of a text: the word whose occurrences are shown.")] = None,
    layer: Annotated[int, typer.Option(help="The layer to draw: 0 the embeddings, -1 the last.")] = -1,
    projection: Annotated[str, typer.Option(help="pca, or tsne (needs scikit-learn).")] = "pca",
    limit: Annotated[int, typer.Option(min=3, help="Sentences of each part, at most.")] = 2000,
    output: Annotated[Path | None, typer.Option("-o", "--output", help=OUTPUT)] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON)] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=REPLACE)] = False,
    device: Annotated[str, typer.Option(help=DEVICE)] = "auto",
) -> None:
    """Do the senses of a word lie apart? The picture of "bank".

    Examples:

      lmlab inspect senses runs/bert coarsewsd20/bank -o bank.html

      lmlab inspect senses runs/gpt2 novel.txt --word spring --projection tsne -o spring.html

    With senses given (CoarseWSD-20), each test sentence is judged by its nearest training sentence, layer by layer.
    """
    from lmlab.analysis.readers import find_occurrences, read_senses
    from lmlab.analysis.senses import read_senses_of
    from lmlab.cli.bars import counting
    from lmlab.cli.inspect.showing import check_output, open_run, show
    from lmlab.cli.texts import read_lines

    check_output(output, inputs=[run, data], overwrite=overwrite)
    if data.is_dir():
        given = read_senses(data)
        name, own, against = given.word, given.test[:limit], given.train[:limit]
    elif word is None:
        raise ValueError("--word: say whose occurrences in the text are to be shown, for instance --word bank")
    else:
        name, own, against = word, find_occurrences(read_lines(str(data)), word)[:limit], []
    with counting("reading") as progress:
        model = open_run(run, device)
        found = read_senses_of(model, name, own, against, layer=layer, projection=projection, progress=progress)
    show(found, output=output, json_=json_, about=str(run))
