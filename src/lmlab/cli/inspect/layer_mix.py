"""lmlab inspect layer-mix: the layer weights that a fine-tuned run has learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.options import Json, OutputAnalysis, Overwrite


def layer_mix(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Runs with a learnt mix: --how mix, or taggers.")],
    output: OutputAnalysis = None,
    json_: Json = False,
    overwrite: Overwrite = False,
) -> None:
    """The layer weights that a fine-tuned run has learnt (ELMo).

    Example:  lmlab inspect layer-mix runs/sentiment runs/tags -o layers.html

    A run that was fine-tuned with --how mix has learnt a weight for each layer, and so has a tagger over the states of
    a language model (--states RUN --set objective.state_layers=mix). The score of each frozen layer alone is that of a
    probe: lmlab inspect probing RUN DATA.
    """
    from lmlab.analysis.layer_mix import TaskLayers, describe_mix
    from lmlab.cli.inspect.display import check_output, show
    from lmlab.runs.model_files import read_mix

    check_output(output, inputs=list(runs), overwrite=overwrite)
    found = [describe_mix(run.name, *read_mix(run)) for run in runs]
    show(TaskLayers(found), output=output, json_=json_, subtitle=", ".join(run.name for run in runs))
