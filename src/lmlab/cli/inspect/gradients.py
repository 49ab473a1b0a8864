"""lmlab inspect gradients: what speaks for a prediction."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.inspect.showing import DEVICE, JSON, OUTPUT, REPLACE


def gradients(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory of a neural model.")],
    text: Annotated[str, typer.Argument(help="The text before the prediction, or one with a \\[MASK]; '-': stdin.")],
    target: Annotated[
        str | None, typer.Option(help="The token that is predicted. (default: the most probable)")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help=OUTPUT)] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON)] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=REPLACE)] = False,
    device: Annotated[str, typer.Option(help=DEVICE)] = "auto",
) -> None:
    """Which tokens speak for a prediction? Gradient × input.

    Examples:

      lmlab inspect gradients runs/gpt2 "The keys to the cabinet" --target are -o keys.html

      lmlab inspect gradients runs/bert "The keys to the cabinet \\[MASK] here." --target are

    Blue tokens speak for the prediction, orange ones against it, to first order.
    """
    from lmlab.analysis.attribution import attribute
    from lmlab.cli.inspect.showing import check_output, open_run, show

    check_output(output, inputs=[run], overwrite=overwrite)
    given = sys.stdin.read().strip("\n") if text == "-" else text
    show(attribute(open_run(run, device), given, target=target), output=output, json_=json_, about=str(run))
