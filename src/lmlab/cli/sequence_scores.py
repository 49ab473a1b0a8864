"""The scores of a run of music, pixels, episodes or several kinds of data on its held-out items."""

from __future__ import annotations

from pathlib import Path


def evaluate_sequences(run: Path, *, output: Path | None, overwrite: bool, json_: bool, device: str) -> None:
    """Print the scores of each kind, or write them to a file."""
    from lmlab.analysis.kind_scores import measure_kinds
    from lmlab.cli.console import progress_bar
    from lmlab.cli.inspect.display import check_output, show
    from lmlab.models.abilities import learns_by_gradient
    from lmlab.runs.held_out import find_held_out_split
    from lmlab.runs.model_files import load_model
    from lmlab.tokenizers.processors import load_processor
    from lmlab.training.devices import choose_device

    check_output(output, inputs=[run], overwrite=overwrite)
    found = find_held_out_split(run)
    model, _ = load_model(run)
    if learns_by_gradient(model):
        model.to(choose_device(device)).eval()
    with progress_bar("scoring") as progress:
        scores = measure_kinds(
            model,
            load_processor(run),
            found.split,
            run=run.name,
            name=found.name,
            progress=progress,
        )
    show(scores, output=output, json_=json_, about=str(run))
