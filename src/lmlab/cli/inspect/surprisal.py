"""lmlab inspect surprisal: how much each word surprises a model, or two."""

from __future__ import annotations

from typing import Annotated

import typer

from lmlab.cli.options import ByToken, Device, Json, OutputAnalysis, Overwrite, Run, Text, Versus


def surprisal(
    run: Run,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="Texts, one per line; '-' reads standard input.")
    ] = None,
    text: Text = None,
    versus: Versus = None,
    by_token: ByToken = False,
    output: OutputAnalysis = None,
    json_: Json = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Surprisal of each word in bits, of one run or of two.

    Examples:

      lmlab inspect surprisal runs/book --text "The horse raced past the barn fell."

      lmlab inspect surprisal runs/book sentences.txt -o surprisal.csv

      lmlab inspect surprisal runs/gpt2 --versus runs/lstm --text "The keys to the cabinet are here." -o both.html

    Words are separated by white space; the surprisal of a word is the sum over its tokens, so runs with different
    tokenizers can be compared. The CSV has one line per word, with its position, length and number of tokens.
    """
    from lmlab.analysis.surprisal import compare_surprisals, read_surprisals
    from lmlab.analysis.view import Viewed
    from lmlab.cli.console import progress_bar
    from lmlab.cli.inspect.display import check_output, open_run, show
    from lmlab.cli.texts import read_lines

    check_output(output, inputs=[run, file, versus], overwrite=overwrite)
    texts = [*(text or []), *(read_lines(file) if file is not None else [])]
    texts = [each for each in texts if each.strip()]
    if not texts:
        raise ValueError("nothing to read: give FILE (or - for standard input), or --text TEXT")
    with progress_bar("reading") as progress:
        one = read_surprisals(
            open_run(run, device), texts, run=str(run), by_token=by_token and versus is None, progress=progress
        )
        found: Viewed = one
        if versus is not None:
            other = read_surprisals(open_run(versus, device), texts, run=str(versus), progress=progress)
            found = compare_surprisals(one, other)
    show(found, output=output, json_=json_, subtitle=str(run))
