"""lmlab inspect bias: which of two groups a model finds more probable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.options import Batch, Device, Json, OutputAnalysis, Overwrite


def bias(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory: next-token, masked, or translator.")],
    data: Annotated[
        Path | None,
        typer.Argument(metavar="[DATA]", help="Templates (.toml), CrowS-Pairs (.csv), or the Winogender folder."),
    ] = None,
    text: Annotated[str | None, typer.Option(help="Text to translate.")] = None,
    translation: Annotated[list[str] | None, typer.Option(help="A translation of --text; give two or more.")] = None,
    output: OutputAnalysis = None,
    json_: Json = False,
    overwrite: Overwrite = False,
    batch: Batch = 64,
    device: Device = "auto",
) -> None:
    """Which of two groups is more probable, word by word.

    Examples:

      lmlab inspect bias runs/gpt2

      lmlab inspect bias runs/bert my-templates.toml -o bias.html

      lmlab inspect bias runs/bert crows_pairs_anonymized.csv

      lmlab inspect bias runs/lstm winogender/

      lmlab inspect bias runs/en-de --text "The nurse sleeps." --translation "Die Schwester …" --translation "Der …"

    Without DATA it compares "she" and "he" with occupations. The limits of such a test are printed with its result.
    """
    from lmlab.analysis.bias import measure_bias, read_templates, weigh_translations
    from lmlab.analysis.bias_sets import judge_crows, judge_winogender
    from lmlab.analysis.readers import read_crows_pairs, read_winogender
    from lmlab.analysis.view import Viewed
    from lmlab.cli.console import progress_bar
    from lmlab.cli.inspect.display import check_output, open_run, show

    check_output(output, inputs=[run, data], overwrite=overwrite)
    if (text is None) != (translation is None):
        raise ValueError("--text and --translation belong together: give one text, and two or more translations of it")
    with progress_bar("scoring") as progress:
        if text is not None:
            found: Viewed = weigh_translations(open_run(run, device), text, translation or [])
        elif data is not None and data.is_dir():
            schemas = read_winogender(data)
            found = judge_winogender(open_run(run, device), schemas, batch=batch, progress=progress)
        elif data is not None and data.suffix == ".csv":
            pairs = read_crows_pairs(data)
            found = judge_crows(open_run(run, device), pairs, batch=batch, progress=progress)
        else:
            templates = read_templates(data)
            found = measure_bias(open_run(run, device), templates, batch=batch, progress=progress)
    show(found, output=output, json_=json_, subtitle=str(run))
