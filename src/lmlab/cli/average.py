"""lmlab average: one model from the last checkpoints of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.messages import printable


def average(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory, trained with --set train.keep=N.")],
    last: Annotated[int, typer.Option(min=1, help="Number of checkpoints to average, the last ones.")] = 5,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Run directory to create. (default: RUN-averageN)")
    ] = None,
) -> None:
    """Average the weights of the last checkpoints of a run.

    The result is usually better than each of them, and costs no training.

    Example:

      lmlab train transformer --source train.en --target train.de -o runs/en-de --set train.keep=5

      lmlab average runs/en-de --last 5 -o runs/en-de-average
    """
    from lmlab.runs.averaging import average as average_run

    target = output or run.with_name(f"{run.name}-average{last}")
    steps = average_run(run, last=last, output=target)
    print(printable(f"wrote {target}: the mean of the weights after steps {', '.join(map(str, steps))}"))
