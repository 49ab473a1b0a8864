"""lmlab inspect bias: which of two groups a model finds more probable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.inspect.showing import DEVICE, JSON, OUTPUT, REPLACE


def bias(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory: next-token, masked, or a translator.")],
    data: Annotated[
        Path | None,
        typer.Argument(metavar="[DATA]", help="Templates (.toml), CrowS-Pairs (.csv), or the folder of Winogender."),
    ] = None,
    source: Annotated[str | None, typer.Option(help="Of a translator: the text to translate.")] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Of a translator: a translation to weigh; give two or more.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help=OUTPUT)] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON)] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=REPLACE)] = False,
    batch: Annotated[int, typer.Option(min=1, help="Batch size in sentences; changes only the speed.")] = 64,
    device: Annotated[str, typer.Option(help=DEVICE)] = "auto",
) -> None:
    """Which of two groups is more probable, word by word?

    Examples:

      lmlab inspect bias runs/gpt2

      lmlab inspect bias runs/bert my-templates.toml -o bias.html

      lmlab inspect bias runs/bert crows_pairs_anonymized.csv

      lmlab inspect bias runs/lstm winogender/

      lmlab inspect bias runs/en-de --source "The nurse sleeps." --target "Die Schwester schläft." --target "Der …"

    Without DATA it is "she" and "he" with occupations. What such a test cannot tell is printed with its result.
    """
    from lmlab.analysis.bias import measure_bias, read_templates, weigh_translations
    from lmlab.analysis.bias_sets import judge_crows, judge_winogender
    from lmlab.analysis.readers import read_crows_pairs, read_winogender
    from lmlab.analysis.view import Viewed
    from lmlab.cli.bars import counting
    from lmlab.cli.inspect.showing import check_output, open_run, show

    check_output(output, inputs=[run, data], overwrite=overwrite)
    if (source is None) != (target is None):
        raise ValueError("--source and --target belong together: one text, and two or more translations of it")
    with counting("scoring") as progress:
        if source is not None:
            found: Viewed = weigh_translations(open_run(run, device), source, target or [])
        elif data is not None and data.is_dir():
            schemas = read_winogender(data)
            found = judge_winogender(open_run(run, device), schemas, batch=batch, progress=progress)
        elif data is not None and data.suffix == ".csv":
            pairs = read_crows_pairs(data)
            found = judge_crows(open_run(run, device), pairs, batch=batch, progress=progress)
        else:
            templates = read_templates(data)
            found = measure_bias(open_run(run, device), templates, batch=batch, progress=progress)
    show(found, output=output, json_=json_, about=str(run))
