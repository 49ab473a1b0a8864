"""lmlab inspect neighbours: the nearest tokens by embedding."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.inspect.showing import DEVICE, JSON, OUTPUT, REPLACE


def neighbours(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory of a neural model.")],
    words: Annotated[list[str], typer.Argument(metavar="WORD", help="One word; or three: a is to b as c is to what?")],
    top: Annotated[int, typer.Option(min=1, help="How many tokens to show.")] = 10,
    output: Annotated[Path | None, typer.Option("-o", "--output", help=OUTPUT)] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON)] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=REPLACE)] = False,
    device: Annotated[str, typer.Option(help=DEVICE)] = "auto",
) -> None:
    """Which tokens lie nearest to a word? And analogies.

    Examples:

      lmlab inspect neighbours runs/gpt2 king

      lmlab inspect neighbours runs/bert man king woman

    By the cosine of the token vectors that enter the model. Of a word of several tokens it is their mean.
    """
    from lmlab.analysis.neighbours import find_neighbours
    from lmlab.cli.inspect.showing import check_output, open_run, show

    check_output(output, inputs=[run], overwrite=overwrite)
    show(find_neighbours(open_run(run, device), words, top=top), output=output, json_=json_, about=str(run))
