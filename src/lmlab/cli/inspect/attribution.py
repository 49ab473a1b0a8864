"""lmlab inspect attribution: which tokens a prediction depends on, and gradients by distance."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.options import Device, Json, NeuralRun, OutputAnalysis, Overwrite
from lmlab.cli.texts import is_stream, text_of

LONGEST = 200_000
"""Maximum number of characters of held-out text."""


def attribution(
    run: NeuralRun,
    text: Annotated[
        str | None,
        typer.Argument(metavar="[TEXT]", help="Prompt, text with \\[MASK], or text to classify; '-': standard input."),
    ] = None,
    prediction: Annotated[
        str | None, typer.Option(help="Token or class to explain. (default: the most probable)")
    ] = None,
    by_distance: Annotated[
        int | None, typer.Option(min=2, metavar="TOKENS", help="Mean gradient 1, 2, … TOKENS before the prediction.")
    ] = None,
    versus: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="Compare with this run, with --by-distance; repeatable."),
    ] = None,
    output: OutputAnalysis = None,
    json_: Json = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """The tokens that a prediction depends on: gradient × input.

    Examples:

      lmlab inspect attribution runs/gpt2 "The keys to the cabinet" --prediction are -o keys.html

      lmlab inspect attribution runs/bert "The keys to the cabinet \\[MASK] here." --prediction are

      lmlab inspect attribution runs/rnn --by-distance 30 --versus runs/lstm -o distance.png

      lmlab inspect attribution runs/stars "a moving, beautiful film"

    Blue tokens raise the probability of the prediction, orange ones lower it, to first order. The texts of a pair are
    separated by a tab. --by-distance shows how strongly a prediction depends on tokens 1, 2, … positions back: in an
    RNN the gradient vanishes. Without TEXT it is the mean over the held-out text of RUN.
    """
    from lmlab.analysis.attribution import attribute, read_gradients
    from lmlab.analysis.view import Viewed
    from lmlab.cli.inspect.display import check_output, open_run, show
    from lmlab.runs.held_out import held_out

    check_output(output, inputs=[run, *(versus or [])], overwrite=overwrite)
    given = None if text is None else text_of(text).strip("\n") if is_stream(text) else text_of(text)
    if by_distance is None:
        if given is None:
            raise ValueError("nothing to explain: give TEXT (or - for standard input), or --by-distance TOKENS")
        if versus:
            raise ValueError("--versus compares gradients by distance: give --by-distance too")
        found: Viewed = attribute(open_run(run, device), given, prediction=prediction)
    else:
        if prediction is not None:
            raise ValueError("--prediction is for one text: leave it out, or --by-distance")
        if given is None:
            given = "\n".join(each for each in held_out(run) if isinstance(each, str))[:LONGEST]
        models = {str(each): open_run(each, device) for each in (run, *(versus or []))}
        found = read_gradients(models, given, distance=by_distance)
    show(found, output=output, json_=json_, subtitle=str(run))
