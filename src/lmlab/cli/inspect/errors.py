"""lmlab inspect errors: what happens off the beaten track."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.inspect.showing import DEVICE, JSON, OUTPUT, REPLACE


def errors(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory: a translator, or a next-token model.")],
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="Sources or prompts, one per line; '-' reads standard input.")
    ] = None,
    text: Annotated[list[str] | None, typer.Option(help="A source or prompt; several may be given.")] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Only the texts as they are: nothing scrambled, doubled or repeated.")
    ] = False,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens written, at most.")] = 80,
    limit: Annotated[int, typer.Option(min=1, help="Lines tried, at most.")] = 100,
    seed: Annotated[int, typer.Option(help="Of what is scrambled.")] = 0,
    output: Annotated[Path | None, typer.Option("-o", "--output", help=OUTPUT)] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON)] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=REPLACE)] = False,
    device: Annotated[str, typer.Option(help=DEVICE)] = "auto",
) -> None:
    """What happens off the beaten track? Loops, copies, inventions.

    Examples:

      lmlab inspect errors runs/en-de --text "There is a paper jam." -o errors.html

      lmlab inspect errors runs/en-de test.en --limit 50 --json

      lmlab inspect errors runs/gpt2 prompts.txt

    Each text is tried as it is, scrambled, doubled and with one word repeated, and "ag ag ag ag" besides. Counted are
    outputs with loops, with words copied from the source, and, by attention, with dropped and invented words.
    """
    from lmlab.analysis.errors import find_errors
    from lmlab.cli.inspect.showing import check_output, open_run, show
    from lmlab.cli.texts import read_lines

    check_output(output, inputs=[run, file], overwrite=overwrite)
    texts = [*(text or []), *(read_lines(file) if file is not None else [])]
    texts = [each for each in texts if each.strip()][:limit]
    if not texts:
        raise ValueError("nothing to try: give FILE (or - for standard input), or --text TEXT")
    found = find_errors(open_run(run, device), texts, tokens=tokens, seed=seed, provoked=not plain)
    show(found, output=output, json_=json_, about=str(run))
