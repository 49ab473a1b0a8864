"""lmlab inspect layers: which layers a fine-tuned run reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.inspect.showing import JSON, OUTPUT, REPLACE


def layers(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Runs with a learnt mix: --how mix, or taggers.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help=OUTPUT)] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON)] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=REPLACE)] = False,
) -> None:
    """Which layers does a fine-tuned run read? ELMo's learnt mix.

    Example:  lmlab inspect layers runs/sentiment runs/tags -o layers.html

    A run that was fine-tuned with --how mix has learnt how much of each layer its task needs, and so has a tagger over
    the states of a language model (--states RUN --set objective.state_layers=mix). The score of each frozen layer by
    itself is that of a probe: lmlab inspect probes RUN DATA.
    """
    from lmlab.analysis.layer_mix import TaskLayers, describe_mix
    from lmlab.cli.inspect.showing import check_output, show
    from lmlab.runs.checkpoint import read_mix

    check_output(output, inputs=list(runs), overwrite=overwrite)
    found = [describe_mix(run.name, *read_mix(run)) for run in runs]
    show(TaskLayers(found), output=output, json_=json_, about=", ".join(run.name for run in runs))
