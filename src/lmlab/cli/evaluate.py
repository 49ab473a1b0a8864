"""lmlab evaluate: score a fine-tuned run, a translator or a run of other data on a test set."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmlab.cli.options import (
    MOST_TEXTS,
    Batch,
    Columns,
    Device,
    DropBadLabels,
    Json,
    LengthPenalty,
    Mix,
    NoRepeat,
    Overwrite,
    Templates,
)
from lmlab.cli.texts import check_outputs, is_stream, spooled
from lmlab.messages import printable

if TYPE_CHECKING:
    from lmlab.decoding.translator import Translator


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Fine-tuned run, or a translator.")],
    data: Annotated[
        str | None,
        typer.Argument(metavar="[DATA]", help="Labelled examples, as for lmlab finetune; '-' reads standard input."),
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
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File of predictions or translations to write.")
    ] = None,
    overwrite: Overwrite = False,
    json_: Json = False,
    batch: Batch = 32,
    device: Device = "auto",
) -> None:
    """Score a fine-tuned run, or a translator, on a test set.

    Examples:

      lmlab evaluate runs/stars test.tsv

      lmlab evaluate runs/en-de --source test.en --target test.de --beams 5

      lmlab evaluate runs/whisper clips.tsv --json

      lmlab evaluate runs/cart-pole episodes.npz

      lmlab evaluate runs/clip captions.tsv --json

      lmlab evaluate runs/clip FOLDER --template "a picture of a {}"

      lmlab evaluate runs/scenes captions.tsv

      lmlab evaluate runs/tunes

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

    if (run / TASK).is_file():
        given = {"--source": source, "--target": target, "--lowercase": lowercase}
        if wrong := [name for name, value in given.items() if value]:
            raise ValueError(f"{run} has learnt a task, so it takes no {', '.join(wrong)}: lmlab evaluate {run} DATA")
        _evaluate_task(
            [run, *(others or [])],
            data,
            columns=columns,
            drop_bad_labels=drop_bad_labels,
            output=output,
            overwrite=overwrite,
            json_=json_,
            device=device,
        )
        return
    if data is not None and run.is_dir() and can(run, "pictures and texts"):
        from lmlab.cli.picture_texts import evaluate_matches

        if output is not None:
            raise ValueError("-o: the scores of pictures and texts are printed; leave it out, or use --json")
        evaluate_matches(run, data, columns=columns, templates=template, json_=json_, device=device)
        return
    if template:
        raise ValueError(f"--template is for a model of pictures and texts (clip), and {run} is none")
    if data is not None and run.is_dir() and can(run, "captions"):
        from lmlab.cli.caption_scores import evaluate_captions

        check_outputs({"-o": output}, inputs=[run, data], overwrite=overwrite)
        evaluate_captions(run, data, columns=columns, beams=beams or 1, output=output, json_=json_, device=device)
        return
    if data is not None and run.is_dir() and can(run, "transcripts"):
        from lmlab.cli.transcription_scores import evaluate_speech

        check_outputs({"-o": output}, inputs=[run, data], overwrite=overwrite)
        evaluate_speech(run, data, beams=beams or 1, output=output, json_=json_, device=device)
        return
    if data is not None and run.is_dir() and can(run, "actions"):
        from lmlab.analysis.policies.action_errors import measure_actions
        from lmlab.cli.console import progress_bar
        from lmlab.cli.inspect.display import check_output, open_run, show

        check_output(output, inputs=[run, data], overwrite=overwrite)
        with progress_bar("reading") as progress:
            errors = measure_actions(open_run(run, device).actor, [data], run=run.name, progress=progress)
        show(errors, output=output, json_=json_, about=str(run))
        return
    if data is None and source is None and reads_sequences(run):
        from lmlab.cli.sequence_scores import evaluate_sequences

        evaluate_sequences(run, output=output, overwrite=overwrite, json_=json_, device=device)
        return
    if data is not None or columns is not None or others or drop_bad_labels:
        if not run.is_dir():
            raise ValueError(f"{run} does not exist; give the folder of a fine-tuned run")
        raise ValueError(without_task(run))
    from lmlab.cli.console import progress_bar
    from lmlab.language_model import load
    from lmlab.metrics.bleu import translation_metrics
    from lmlab.training.devices import choose_device

    check_outputs({"-o": output}, inputs=[run, source, target], overwrite=overwrite)
    metrics = translation_metrics(lowercase=lowercase)
    model = load(run, device=choose_device(device))
    translator = model.translator
    if source is None or target is None:
        raise ValueError("there is nothing to translate: give --source FILE and --target FILE")
    sources, references = _read(source, target)
    values = _loss(translator, sources, references, batch)
    begin = time.perf_counter()
    with progress_bar("translating") as progress:
        found = model.translate(
            sources,
            beams=beams or 5,
            length_penalty=length_penalty,
            no_repeat=no_repeat,
            longest=None,
            batch=batch,
            progress=progress,
        )
    seconds = time.perf_counter() - begin
    if output is not None:
        output.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
        print(printable(f"wrote {output}"), file=sys.stderr)
    fold = str.casefold if lowercase else str
    same = sum(fold(a) == fold(b) for a, b in zip(found, references, strict=True))
    for name, metric in metrics.items():
        values[name] = metric.corpus_score(list(found), [references]).score
        values[f"{name}_signature"] = str(metric.get_signature())
    values |= {"exact_match": same / len(references), "sentences": len(references), "seconds": seconds}
    values |= {"beams": beams or 5, "length_penalty": length_penalty}
    _print(values, json_=json_)


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

    config = read_json(run / "config.json") if (run / "config.json").is_file() else {}
    kind = config.get("kind") if isinstance(config, dict) else None
    return f"{run} is no run: it has no config.json" if kind is None else describe_use(run, find(str(kind)))


def _evaluate_task(
    runs: list[Path],
    data: str | None,
    *,
    columns: str | None,
    drop_bad_labels: bool,
    output: Path | None,
    overwrite: bool,
    json_: bool,
    device: str,
) -> None:
    """The metrics of a fine-tuned run, or of several together, on a file of examples."""
    from dataclasses import replace

    from lmlab.cli.console import progress_bar
    from lmlab.data.readers.labelled.columns import parse_columns
    from lmlab.language_model import load_ensemble
    from lmlab.tasks.predicting import describe_left_out
    from lmlab.training.devices import choose_device
    from lmlab.transfer.evaluation import evaluate_file, find_trained_on, format_trained_on
    from lmlab.transfer.trials import write_predictions

    run = runs[0]
    if data is None:
        from lmlab.runs.storage import TASK, read_json
        from lmlab.tasks import load_task

        ending = load_task(read_json(run / TASK)["kind"]).wording.ending
        raise ValueError(f"on which examples? name a file: lmlab evaluate {run} test.{ending}")
    check_outputs({"-o": output}, inputs=[*runs, data], overwrite=overwrite)
    predictor = load_ensemble(runs, device=choose_device(device))
    begin = time.perf_counter()
    with spooled(data) as file, progress_bar("predicting") as progress:
        found = evaluate_file(
            replace(predictor, progress=progress),
            file,
            run=run,
            columns=parse_columns(columns) if columns else None,
            drop_bad_labels=drop_bad_labels,
        )
    seconds = time.perf_counter() - begin
    source = "standard input" if is_stream(data) else data
    notes = [note.replace(file, source) for note in found.notes]
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
        import json

        values: dict[str, Any] = {name: each.value for name, each in found.values.items()}
        intervals = {name: [each.low, each.high] for name, each in found.values.items()}
        values |= {"intervals": intervals, "examples": len(found.examples), "split": found.split, "seconds": seconds}
        values |= {"trained_on": len(seen), "notes": notes}
        print(json.dumps(values))
        return
    from lmlab.cli.console import Console
    from lmlab.pages.scores import format_score

    console = Console(highlight=False, soft_wrap=True)
    for name, each in found.values.items():
        interval = "" if each.low is None else f"   95% interval {format_score(each.low)} to {format_score(each.high)}"
        console.print(f"[bold]{format_score(each.value)}[/bold] {name.replace('_', ' ')}{interval}")
    part = "" if found.split is None else f" ({found.split})"
    console.print(f"{len(found.examples):,} examples of {source}{part}: {seconds:.1f} s", markup=False)


def _read(source: Path, target: Path) -> tuple[list[str], list[str]]:
    from lmlab.data.readers.pairs import Aligned, read_pairs
    from lmlab.data.readers.text import Source

    for path in (source, target):
        if not path.is_file():
            raise ValueError(f"{path} does not exist, or is not a file")
    pairs = list(read_pairs(Aligned(Source(str(source), source), Source(str(target), target))))
    if not any(map(any, pairs)):
        raise ValueError(f"{source} and {target} are empty: there is nothing to evaluate")
    sources, references = zip(*pairs, strict=True)
    return list(sources), list(references)


def _loss(translator: Translator, sources: list[str], references: list[str], batch: int) -> dict[str, Any]:
    import math

    from lmlab.cli.console import progress_bar

    with progress_bar("scoring") as progress:
        nats = translator.score(sources, references, batch=batch, progress=progress)
    total, count = float(sum(part.sum() for part in nats)), sum(map(len, nats))
    return {"loss": total / count, "perplexity": math.exp(min(700.0, total / count)), "target_tokens": count}


def _print(values: dict[str, Any], *, json_: bool) -> None:
    if json_:
        import json

        print(json.dumps(values))
        return
    from lmlab.cli.console import Console

    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"[bold]{values['bleu']:.2f}[/bold] BLEU   {values['bleu_signature']}\n"
        f"[bold]{values['chrf']:.2f}[/bold] chrF   {values['chrf_signature']}\n"
        f"[bold]{values['exact_match']:.1%}[/bold] of {values['sentences']:,} sentences are exactly the reference\n"
        f"[bold]{values['loss']:.4f}[/bold] nats per target token, perplexity {values['perplexity']:,.2f} "
        f"({values['target_tokens']:,} tokens)\n"
        f"{values['beams']} beams, length penalty {values['length_penalty']:g}: {values['seconds']:.1f} s, "
        f"{values['sentences'] / values['seconds']:,.1f} sentences/s"
    )
