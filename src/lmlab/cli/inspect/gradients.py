"""lmlab inspect gradients: what speaks for a prediction, and how far back gradients reach."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.inspect.showing import DEVICE, JSON, OUTPUT, REPLACE
from lmlab.cli.texts import is_stream, text_of

LONGEST = 200_000
"""Characters of held-out text that are read."""


def gradients(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory of a neural model.")],
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEXT]",
            help="The text before the prediction, one with a \\[MASK], or one to classify (a tab between the texts "
            "of a pair); '-': standard input.",
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The token or class that is predicted. (default: the most probable)")
    ] = None,
    by_distance: Annotated[
        int | None,
        typer.Option(min=2, metavar="TOKENS", help="How large is the gradient 1, 2, … TOKENS back? A mean over TEXT."),
    ] = None,
    versus: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="With --by-distance: another run beside it (may be given several times)."),
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

      lmlab inspect gradients runs/rnn --by-distance 30 --versus runs/lstm -o reach.png

      lmlab inspect gradients runs/stars "a moving, beautiful film"

    Blue tokens speak for the prediction, orange ones against it, to first order. With --by-distance it is how strongly
    a prediction depends on the token so many places back: in an RNN that vanishes. Without TEXT it is the mean over
    text that RUN did not learn from.
    """
    from lmlab.analysis.attribution import attribute, read_gradients
    from lmlab.analysis.view import Viewed
    from lmlab.cli.inspect.showing import check_output, open_run, show
    from lmlab.runs.held_out import held_out

    check_output(output, inputs=[run, *(versus or [])], overwrite=overwrite)
    given = None if text is None else text_of(text).strip("\n") if is_stream(text) else text_of(text)
    if by_distance is None:
        if given is None:
            raise ValueError("nothing to explain: give TEXT (or - for standard input), or --by-distance TOKENS")
        if versus:
            raise ValueError("--versus belongs to --by-distance: one prediction is of one run")
        found: Viewed = attribute(open_run(run, device), given, target=target)
    else:
        if target is not None:
            raise ValueError("--target belongs to one prediction: leave it out, or --by-distance")
        if given is None:
            given = "\n".join(each for each in held_out(run) if isinstance(each, str))[:LONGEST]
        models = {str(each): open_run(each, device) for each in (run, *(versus or []))}
        found = read_gradients(models, given, distance=by_distance)
    show(found, output=output, json_=json_, about=str(run))
