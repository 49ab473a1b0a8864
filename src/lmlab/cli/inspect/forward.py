"""lmlab inspect forward: the forward pass of a run over a text, step by step."""

from __future__ import annotations

from typing import Annotated

import typer

from lmlab.cli.options import Device, Json, OutputAnalysis, Overwrite, Run
from lmlab.cli.texts import text_of


def forward(
    run: Run,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text to read, or with \\[MASK]; '-': standard input.")],
    position: Annotated[
        int | None, typer.Option(min=0, help="Token whose prediction is shown. (default: the last, or the mask)")
    ] = None,
    temperature: Annotated[float, typer.Option(help="Temperature of the softmax.")] = 1.0,
    number: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Show where a number comes from: 0.query:1,5,3.")
    ] = None,
    output: OutputAnalysis = None,
    json_: Json = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """The forward pass step by step, from tokens to the next token.

    Examples:

      lmlab inspect forward runs/gpt2 "The cat sat on the"

      lmlab inspect forward runs/bert "The cat [MASK] on the mat." -o steps.html

      lmlab inspect forward runs/lstm "The cat" --number 0.forget_gate:1,3

    Each row shows the first numbers of a step. An address is the name of an array and the index in it: of layer 0,
    queries are 0.query:HEAD,TOKEN,UNIT and gates 0.forget_gate:TOKEN,UNIT; logits:TOKEN and probability:TOKEN are of
    the prediction. The view How it works of  lmlab studio  shows all numbers, and opens them by a click.
    """
    from lmlab.analysis.forward_pass.read import read_forward
    from lmlab.cli.inspect.display import check_output, open_run, show

    check_output(output, inputs=[run], overwrite=overwrite)
    found = read_forward(open_run(run, device), text_of(text), position=position, temperature=temperature)
    show(found.origin(number) if number else found, output=output, json_=json_, subtitle=str(run))
