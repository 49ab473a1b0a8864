"""lmlab inspect senses: one word in many sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.options import Device, Json, NeuralRun, OutputAnalysis, Overwrite


def senses(
    run: NeuralRun,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="CoarseWSD folder of a word, or sentences by line.")],
    word: Annotated[str | None, typer.Option(help="Word to look for, if DATA is a text.")] = None,
    layer: Annotated[int, typer.Option(help="Layer to plot: 0 the embeddings, -1 the last.")] = -1,
    projection: Annotated[str, typer.Option(help="pca, or tsne (needs scikit-learn).")] = "pca",
    limit: Annotated[int, typer.Option(min=3, help="Maximum number of sentences of each part.")] = 2000,
    output: OutputAnalysis = None,
    json_: Json = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """The vectors of one word in many sentences, by sense.

    Examples:

      lmlab inspect senses runs/bert coarsewsd20/bank -o bank.html

      lmlab inspect senses runs/gpt2 novel.txt --word spring --projection tsne -o spring.html

    With senses given (CoarseWSD-20), the sense of each test sentence is predicted by its nearest training sentence,
    layer by layer.
    """
    from lmlab.analysis.readers import find_occurrences, read_senses
    from lmlab.analysis.senses import read_senses_of
    from lmlab.cli.console import progress_bar
    from lmlab.cli.inspect.display import check_output, open_run, show
    from lmlab.cli.texts import read_lines

    check_output(output, inputs=[run, data], overwrite=overwrite)
    if data.is_dir():
        given = read_senses(data)
        name, own, against = given.word, given.test[:limit], given.train[:limit]
    elif word is None:
        raise ValueError("--word: give the word to show, for instance --word bank")
    else:
        name, own, against = word, find_occurrences(read_lines(str(data)), word)[:limit], []
    with progress_bar("reading") as progress:
        model = open_run(run, device)
        found = read_senses_of(model, name, own, against, layer=layer, projection=projection, progress=progress)
    show(found, output=output, json_=json_, subtitle=str(run))
