"""lmlab inspect surprisal: how much each word surprises a model, or two."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.inspect.showing import DEVICE, JSON, OUTPUT, REPLACE


def surprisal(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="Texts, one per line; '-' reads standard input.")
    ] = None,
    text: Annotated[list[str] | None, typer.Option(help="A text; several may be given.")] = None,
    versus: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Show the difference to this run, by word.")
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show tokens and not words.")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help=OUTPUT)] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON)] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=REPLACE)] = False,
    device: Annotated[str, typer.Option(help=DEVICE)] = "auto",
) -> None:
    """How much does each word surprise it, in bits? Or two runs?

    Examples:

      lmlab inspect surprisal runs/book --text "The horse raced past the barn fell."

      lmlab inspect surprisal runs/book sentences.txt -o surprisal.csv

      lmlab inspect surprisal runs/gpt2 --versus runs/lstm --text "The keys to the cabinet are here." -o both.html

    A word is what stands between white space; its surprisal is the sum over its tokens, so runs with different
    tokenizers can be compared. The CSV has one line per word, with its place, length and number of tokens.
    """
    from lmlab.analysis.surprisal import compare_surprisals, read_surprisals
    from lmlab.analysis.view import Viewed
    from lmlab.cli.bars import counting
    from lmlab.cli.inspect.showing import check_output, open_run, show
    from lmlab.cli.texts import read_lines

    check_output(output, inputs=[run, file, versus], overwrite=overwrite)
    texts = [*(text or []), *(read_lines(file) if file is not None else [])]
    texts = [each for each in texts if each.strip()]
    if not texts:
        raise ValueError("nothing to read: give FILE (or - for standard input), or --text TEXT")
    with counting("reading") as progress:
        one = read_surprisals(
            open_run(run, device), texts, run=str(run), by_token=tokens and versus is None, progress=progress
        )
        found: Viewed = one
        if versus is not None:
            other = read_surprisals(open_run(versus, device), texts, run=str(versus), progress=progress)
            found = compare_surprisals(one, other)
    show(found, output=output, json_=json_, about=str(run))
