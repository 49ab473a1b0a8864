"""lmlab inspect neighbours: the nearest tokens by embedding."""

from __future__ import annotations

from typing import Annotated

import typer

from lmlab.cli.options import Device, Json, NeuralRun, OutputAnalysis, Overwrite, Top


def neighbours(
    run: NeuralRun,
    words: Annotated[list[str], typer.Argument(metavar="WORD", help="One word; or three for an analogy.")],
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

    Tokens are ranked by the cosine of their input embeddings. The vector of a word of several tokens is their mean.
    Three words a, b, c ask: a is to b as c is to what?
    """
    from lmlab.analysis.neighbours import find_neighbours
    from lmlab.cli.inspect.display import check_output, open_run, show

    check_output(output, inputs=[run], overwrite=overwrite)
    show(find_neighbours(open_run(run, device), words, top=top), output=output, json_=json_, about=str(run))
