"""The scores of a run of music, pixels, episodes or several kinds of data on its held-out items."""

from __future__ import annotations

from pathlib import Path


def evaluate_actions(
    run: Path,
    data: str | None,
    *,
    limit: int | None,
    output: Path | None,
    overwrite: bool,
    json_: bool,
    device: str,
) -> None:
    """Print the errors of the actions that a policy predicts in episodes: in a file, or in those held out."""
    from lmlab.analysis.policies.action_errors import measure_actions
    from lmlab.cli.console import progress_bar
    from lmlab.cli.inspect.display import check_output, open_run, show
    from lmlab.data.corpora.episodes import EpisodeSplit, make_split, read_all
    from lmlab.runs.held_out import find_held_out_split

    check_output(output, inputs=[run, data], overwrite=overwrite)
    actor = open_run(run, device).actor
    if data is not None:
        split = make_split([each.episode for each in read_all([data])], actor.processor)
    else:
        found = find_held_out_split(run).split
        assert isinstance(found, EpisodeSplit), "a policy has learnt from episodes"
        split = found
    with progress_bar("reading") as progress:
        errors = measure_actions(actor, split.first(limit), run=run.name, progress=progress)
    show(errors, output=output, json_=json_, subtitle=str(run))


def evaluate_sequences(
    run: Path, *, limit: int | None, output: Path | None, overwrite: bool, json_: bool, device: str
) -> None:
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
            limit=limit,
            progress=progress,
        )
    show(scores, output=output, json_=json_, subtitle=str(run))
