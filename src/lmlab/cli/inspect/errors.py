"""lmlab inspect errors: loops, copies and inventions on unusual input."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.options import Device, Json, OutputAnalysis, Overwrite, Text


def errors(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory: a translator, or a next-token model.")],
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="Sources or prompts, one per line; '-' reads standard input.")
    ] = None,
    text: Text = None,
    plain: Annotated[bool, typer.Option("--plain", help="Use the texts unchanged only.")] = False,
    tokens: Annotated[int, typer.Option(min=1, help="Maximum number of tokens to generate.")] = 80,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of lines to read.")] = 100,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    output: OutputAnalysis = None,
    json_: Json = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Loops, copies and inventions on unusual input.

    Examples:

      lmlab inspect errors runs/en-de --text "There is a paper jam." -o errors.html

      lmlab inspect errors runs/en-de test.en --limit 50 --json

      lmlab inspect errors runs/gpt2 prompts.txt

    Each text is tried unchanged, scrambled, doubled and with one word repeated, and "ag ag ag ag" as well. The table
    counts outputs with loops, with words copied from the source, and, by attention, with dropped and invented words.
    """
    from lmlab.analysis.errors import find_errors
    from lmlab.cli.inspect.display import check_output, open_run, show
    from lmlab.cli.texts import read_lines

    check_output(output, inputs=[run, file], overwrite=overwrite)
    texts = [*(text or []), *(read_lines(file) if file is not None else [])]
    texts = [each for each in texts if each.strip()][:limit]
    if not texts:
        raise ValueError("nothing to try: give FILE (or - for standard input), or --text TEXT")
    found = find_errors(open_run(run, device), texts, tokens=tokens, seed=seed, provoked=not plain)
    show(found, output=output, json_=json_, subtitle=str(run))
