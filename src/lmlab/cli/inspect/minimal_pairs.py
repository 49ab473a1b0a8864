"""lmlab inspect minimal-pairs: does a model prefer the right sentence of two?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.options import Batch, Device, Json, OutputAnalysis, Overwrite


def minimal_pairs(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run directory; '-' if PAIRS holds scores (.tab).")],
    pairs: Annotated[
        Path, typer.Argument(metavar="PAIRS", help="Table with good and bad; BLiMP zip or folder; .gold, .tab.")
    ],
    region: Annotated[
        str | None, typer.Option(help="What to score: full (sentence) or critical (differing words).")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of pairs of each paradigm.")] = None,
    output: OutputAnalysis = None,
    json_: Json = False,
    overwrite: Overwrite = False,
    batch: Batch = 64,
    device: Device = "auto",
) -> None:
    """Accuracy on pairs of a right and a wrong sentence: BLiMP …

    A model that knows the grammar gives "The keys are here." a higher probability than "The keys is here." Accuracy
    is given with its 95% interval, by phenomenon if the file has such a column, and with published results.

    Examples:

      lmlab inspect minimal-pairs runs/book pairs.tsv --json

      lmlab inspect minimal-pairs runs/gpt2 BLiMP.zip -o blimp.html

      lmlab inspect minimal-pairs runs/lstm generated.gold --region critical

      lmlab inspect minimal-pairs - best_model.tab

    pairs.tsv has a header with good and bad, and optionally phenomenon and set. A masked model (bert …) is scored by
    pseudo-log-likelihood. In agreement sets only the verb is scored, as their authors do.
    """
    from lmlab.analysis.minimal_pairs import choose_region, compare_pairs, compare_scores
    from lmlab.analysis.pair_sets import PairSet, read_pairs, read_scored
    from lmlab.cli.console import progress_bar
    from lmlab.cli.inspect.display import check_output, open_run, show

    check_output(output, inputs=[run, pairs], overwrite=overwrite)
    if run == "-":
        scored = read_scored(pairs)
        found = compare_scores(PairSet("Gulordava", scored.pairs), scored.good, scored.bad)
        show(found, output=output, json_=json_, subtitle=pairs.name)
        return
    given = read_pairs(pairs)
    choose_region(region, given.name)
    if limit is not None:
        given = given.first(limit)
    with progress_bar("judging") as progress:
        found = compare_pairs(open_run(Path(run), device), given, region=region, batch=batch, progress=progress)
    show(found, output=output, json_=json_, subtitle=run)
