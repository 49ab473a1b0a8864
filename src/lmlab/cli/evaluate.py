"""lmlab evaluate: score a fine-tuned run, a translator or a run of other data on a test set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmlab.cli.options import (
    MOST_TEXTS,
    Batch,
    Columns,
    Device,
    DropBadLabels,
    Json,
    LengthPenalty,
    Limit,
    Mix,
    NoRepeat,
    Overwrite,
    Templates,
)
from lmlab.cli.texts import check_outputs


def evaluate(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="Fine-tuned run, translator, or run of other data than text."),
    ],
    data: Annotated[
        str | None,
        typer.Argument(metavar="[DATA]", help="Examples to score; by default those that the run held out."),
    ] = None,
    others: Mix = None,
    columns: Columns = None,
    drop_bad_labels: DropBadLabels = False,
    source: Annotated[Path | None, typer.Option(help="Source sentences of a translator, one per line.")] = None,
    target: Annotated[Path | None, typer.Option(help="Target sentences, line by line.")] = None,
    beams: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_TEXTS, help="Beam size; 1 is greedy search. (default: 5 for translations, else 1)"
        ),
    ] = None,
    length_penalty: LengthPenalty = 0.6,
    no_repeat: NoRepeat = 0,
    template: Templates = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    limit: Limit = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File of predictions or translations to write.")
    ] = None,
    overwrite: Overwrite = False,
    json_: Json = False,
    batch: Batch = 32,
    device: Device = "auto",
) -> None:
    """Score a run on a test set, or on the examples that it held out.

    Examples:

      lmlab evaluate runs/stars test.tsv

      lmlab evaluate runs/stars

      lmlab evaluate runs/en-de --source test.en --target test.de --beams 5

      lmlab evaluate runs/whisper clips.tsv --json

      lmlab evaluate runs/cart-pole episodes.npz

      lmlab evaluate runs/clip captions.tsv --json

      lmlab evaluate runs/clip FOLDER --template "a picture of a {}"

      lmlab evaluate runs/scenes captions.tsv

      lmlab evaluate runs/tunes

    Without DATA the held-out examples of the run's own data are scored. '-' reads standard input. --limit scores only
    the first examples.

    A fine-tuned run is measured by the metric of its task, with a 95% interval: accuracy, F1, Matthews correlation,
    Pearson and Spearman correlation, exact match.

    A speech recognizer is measured by its word and character error rates, of texts in lower case without punctuation,
    and of texts as they are. A captioner is measured by exact match with one of the captions of a picture, and by BLEU.
    The search of both is greedy unless --beams says otherwise.

    A policy is measured by the actions that it predicts in episodes; lmlab act shows how well it acts.

    A model of pictures and texts (clip) is measured by recall@1, 5 and 10 in both directions on pictures with captions,
    and by its zero-shot accuracy on pictures with classes, each with what chance would give. Its own data are split as
    in training, and the test pictures are used.

    A run that has learnt music, pixels, episodes as tokens, or several kinds of data takes no DATA: it is measured on
    its held-out items, each kind in its own unit (bits per byte, bits per dimension, nats per event or action).

    BLEU and chrF are those of sacrebleu, with its signature; quote both. They need: pip install 'lmlab\\[eval]'
    """
    from lmlab.runs.storage import TASK

    inputs = [path for path in (run, data, source, target) if path is not None]
    if (run / TASK).is_file():
        from lmlab.cli.evaluation.tasks import evaluate_task

        given = {"--source": source, "--target": target, "--lowercase": lowercase}
        if wrong := [name for name, value in given.items() if value]:
            raise ValueError(f"{run} has learnt a task, so it takes no {', '.join(wrong)}: lmlab evaluate {run} DATA")
        runs = [run, *(others or [])]
        check_outputs({"-o": output}, inputs=[*runs, *inputs], overwrite=overwrite)
        evaluate_task(
            runs,
            data,
            columns=columns,
            drop_bad_labels=drop_bad_labels,
            limit=limit,
            output=output,
            json_=json_,
            device=device,
        )
        return
    if can(run, "pictures and texts"):
        from lmlab.cli.picture_texts import evaluate_matches

        if output is not None:
            raise ValueError("-o: the scores of pictures and texts are printed; leave it out, or use --json")
        evaluate_matches(run, data, columns=columns, templates=template, limit=limit, json_=json_, device=device)
        return
    if template:
        raise ValueError(f"--template is for a model of pictures and texts (clip), and {run} is none")
    check_outputs({"-o": output}, inputs=inputs, overwrite=overwrite)
    if can(run, "captions"):
        from lmlab.cli.evaluation.captions import evaluate_captions

        evaluate_captions(
            run, data, columns=columns, beams=beams or 1, limit=limit, output=output, json_=json_, device=device
        )
    elif can(run, "transcripts"):
        from lmlab.cli.evaluation.transcriptions import evaluate_speech

        evaluate_speech(run, data, beams=beams or 1, limit=limit, output=output, json_=json_, device=device)
    elif can(run, "actions") and not reads_sequences(run):
        from lmlab.cli.evaluation.sequences import evaluate_actions

        evaluate_actions(run, data, limit=limit, output=output, overwrite=overwrite, json_=json_, device=device)
    elif data is None and source is None and reads_sequences(run):
        from lmlab.cli.evaluation.sequences import evaluate_sequences

        evaluate_sequences(run, limit=limit, output=output, overwrite=overwrite, json_=json_, device=device)
    elif data is not None or columns is not None or others or drop_bad_labels or not can(run, "target text"):
        raise ValueError(without_task(run))
    else:
        from lmlab.cli.evaluation.translations import Search, evaluate_translations

        search = Search(beams or 5, length_penalty, no_repeat, batch)
        evaluate_translations(
            run, source, target, search, lowercase=lowercase, limit=limit, output=output, json_=json_, device=device
        )


def can(run: Path, ability: str) -> bool:
    """Whether the system of a run is listed with an ability, without loading its weights."""
    from lmlab.models import find
    from lmlab.runs.storage import read_json

    config = read_json(run / "config.json") if (run / "config.json").is_file() else {}
    return isinstance(config, dict) and "kind" in config and ability in find(str(config["kind"])).does


def reads_sequences(run: Path) -> bool:
    """Whether a run has learnt music, pixels or episodes as tokens, or several kinds of data."""
    from lmlab.tokenizers.processors import load_processor
    from lmlab.tokenizers.processors.sequences import SequenceTokenizer

    return isinstance(load_processor(run), SequenceTokenizer)


def without_task(run: Path) -> str:
    """What to do with a run that has learnt no task, by the system that it was trained as."""
    from lmlab.models import find
    from lmlab.models.descriptions import describe_use
    from lmlab.runs.storage import read_json

    if not run.is_dir():
        return f"{run} does not exist; give the folder of a run"
    config = read_json(run / "config.json") if (run / "config.json").is_file() else {}
    kind = config.get("kind") if isinstance(config, dict) else None
    if kind is None:
        return f"{run} is no run: it has no config.json"
    held_out = f"; its held-out text is scored by lmlab score {run} --held-out" if can(run, "next token") else ""
    return describe_use(run, find(str(kind))) + held_out
