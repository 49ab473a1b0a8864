"""lmlab inspect minimal-pairs: does a model prefer the right sentence of two?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.inspect.showing import DEVICE, JSON, OUTPUT, REPLACE


def minimal_pairs(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory; '-' if PAIRS holds scores (.tab).")],
    pairs: Annotated[
        Path,
        typer.Argument(metavar="PAIRS", help="A table with good and bad; BLiMP's zip or folder; .gold, .tab."),
    ],
    region: Annotated[
        str | None,
        typer.Option(help="What decides: full (the sentence) or critical (the words that differ, given the rest)."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Judge only so many pairs of each paradigm, the first.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help=OUTPUT)] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON)] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=REPLACE)] = False,
    batch: Annotated[int, typer.Option(min=1, help="Batch size in sentences; changes only the speed.")] = 64,
    device: Annotated[str, typer.Option(help=DEVICE)] = "auto",
) -> None:
    """Does it prefer the right sentence of two? BLiMP …

    A model that knows the grammar gives "The keys are here." a higher probability than "The keys is here." Accuracy
    is given with its 95% interval, by phenomenon if the file has a column of that name, beside published figures.

    Examples:

      lmlab inspect minimal-pairs runs/book pairs.tsv --json

      lmlab inspect minimal-pairs runs/gpt2 BLiMP.zip -o blimp.html

      lmlab inspect minimal-pairs runs/lstm generated.gold --region critical

      lmlab inspect minimal-pairs - best_model.tab

    pairs.tsv has a header with good and bad, and perhaps phenomenon and set. A masked model (bert …) is scored by
    pseudo-log-likelihood. Sets of agreement items are judged by the verb alone, as their authors do.
    """
    from lmlab.analysis.minimal_pairs import choose_region, judge, judge_scores
    from lmlab.analysis.pair_sets import PairSet, read_pairs, read_scored
    from lmlab.cli.bars import counting
    from lmlab.cli.inspect.showing import check_output, open_run, show

    check_output(output, inputs=[run, pairs], overwrite=overwrite)
    if run == "-":
        scored = read_scored(pairs)
        found = judge_scores(PairSet("Gulordava", scored.pairs), scored.good, scored.bad)
        show(found, output=output, json_=json_, about=pairs.name)
        return
    given = read_pairs(pairs)
    choose_region(region, given.name)
    if limit is not None:
        given = given.first(limit)
    with counting("judging") as progress:
        found = judge(open_run(Path(run), device), given, region=region, batch=batch, progress=progress)
    show(found, output=output, json_=json_, about=run)
