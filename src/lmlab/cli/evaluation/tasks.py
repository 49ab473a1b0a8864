"""lmlab evaluate of a run that has learnt a task."""

from __future__ import annotations

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmlab.cli.texts import is_stream, spooled
from lmlab.messages import printable

if TYPE_CHECKING:
    from lmlab.transfer.evaluation import Evaluated


def evaluate_task(
    runs: list[Path],
    data: str | None,
    *,
    columns: str | None,
    drop_bad_labels: bool,
    limit: int | None,
    output: Path | None,
    json_: bool,
    device: str,
) -> None:
    """Print the metrics of a fine-tuned run, or of several together, on a file or on the held-out examples."""
    from dataclasses import replace

    from lmlab.cli.console import progress_bar
    from lmlab.data.readers.labelled.columns import parse_columns
    from lmlab.language_model import load_ensemble
    from lmlab.tasks.predicting import describe_left_out
    from lmlab.training.devices import choose_device
    from lmlab.transfer.evaluation import evaluate_file, find_trained_on, format_trained_on
    from lmlab.transfer.trials import write_predictions

    run = runs[0]
    predictor = load_ensemble(runs, device=choose_device(device))
    begin = time.perf_counter()
    with progress_bar("predicting") as progress, spooled(data) if data else nullcontext() as file:
        found = evaluate_file(
            replace(predictor, progress=progress),
            file,
            run=run,
            columns=parse_columns(columns) if columns else None,
            drop_bad_labels=drop_bad_labels,
            limit=limit,
        )
    seconds = time.perf_counter() - begin
    source = f"{run}'s own data" if data is None else "standard input" if is_stream(data) else data
    notes = [note.replace(file, source) if file else note for note in found.notes]
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    seen: set[int] = set()
    for each_run in dict.fromkeys(runs):
        if own := find_trained_on(each_run, found.examples):
            print(format_trained_on(each_run, len(own), len(found.examples)), file=sys.stderr)
            seen |= own
    if (left_out := describe_left_out(predictor.task, found.predictions)) is not None:
        print(f"warning: {left_out}", file=sys.stderr)
    if output is not None:
        write_predictions(output, found.predictions, found.examples)
        print(printable(f"wrote {output}"), file=sys.stderr)
    if json_:
        _print_json(found, seconds=seconds, trained_on=len(seen), notes=notes)
    else:
        _print_scores(found, source, seconds=seconds)


def _print_json(found: Evaluated, *, seconds: float, trained_on: int, notes: list[str]) -> None:
    values: dict[str, Any] = {name: each.value for name, each in found.values.items()}
    intervals = {name: [each.low, each.high] for name, each in found.values.items()}
    values |= {"intervals": intervals, "examples": len(found.examples), "split": found.split, "seconds": seconds}
    print(json.dumps(values | {"trained_on": trained_on, "notes": notes}))


def _print_scores(found: Evaluated, source: str, *, seconds: float) -> None:
    from lmlab.cli.console import Console
    from lmlab.pages.scores import format_score

    console = Console(highlight=False, soft_wrap=True)
    for name, each in found.values.items():
        interval = "" if each.low is None else f"   95% interval {format_score(each.low)} to {format_score(each.high)}"
        console.print(f"[bold]{format_score(each.value)}[/bold] {name.replace('_', ' ')}{interval}")
    part = "" if found.split is None else f" ({found.split})"
    console.print(f"{len(found.examples):,} examples of {source}{part}: {seconds:.1f} s", markup=False)
