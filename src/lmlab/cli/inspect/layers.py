"""lmlab inspect layers: which layers a fine-tuned run reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.inspect.showing import JSON, OUTPUT, REPLACE


def layers(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Runs that were fine-tuned with --how mix.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help=OUTPUT)] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON)] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=REPLACE)] = False,
) -> None:
    """Which layers does a fine-tuned run read? ELMo's learnt mix.

    Example:  lmlab inspect layers runs/sentiment runs/tags -o layers.html

    A run that was fine-tuned with --how mix has learnt how much of each layer its task needs. The score of each frozen
    layer by itself is that of a probe: lmlab inspect probes RUN DATA.
    """
    from lmlab.analysis.task_layers import TaskLayers, read_mix
    from lmlab.checkpoint import TASK, read_heads, read_json
    from lmlab.cli.inspect.showing import check_output, show

    check_output(output, inputs=list(runs), overwrite=overwrite)
    found = []
    for run in runs:
        if not (run / TASK).is_file():
            raise ValueError(f"{run} has not learnt a task: lmlab finetune RUN DATA -o {run} --how mix")
        found.append(read_mix(run.name, str(read_json(run / TASK).get("kind", "task")), read_heads(run)))
    show(TaskLayers(found), output=output, json_=json_, about=", ".join(run.name for run in runs))
