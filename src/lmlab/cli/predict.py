"""lmlab predict: labels, tags, scores or answers for texts."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmlab.cli.options import Columns, Device, Json, Mix, OutputFile, Overwrite, Templates, Top, Weights
from lmlab.cli.texts import check_outputs, is_input, is_stream, note_file_name, read_lines
from lmlab.messages import printable

if TYPE_CHECKING:
    from lmlab.data.readers.examples import Example
    from lmlab.tasks.predicting import Predicts
    from lmlab.tasks.task import Task


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Fine-tuned run.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT|FILE]…", help="One or more texts, or a file; '-' reads standard input."),
    ] = None,
    context: Annotated[Path | None, typer.Option(help="Text file with the answers to questions.")] = None,
    question: Annotated[str | None, typer.Option(help="Question about the pictures that are given.")] = None,
    others: Mix = None,
    columns: Columns = None,
    labels: Annotated[str | None, typer.Option(help='Zero-shot labels of pictures: "cat,dog".')] = None,
    template: Templates = None,
    top: Top = 3,
    json_: Json = False,
    output: OutputFile = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    weights: Weights = "fp32",
) -> None:
    """Predict labels, tags, scores or answers with a fine-tuned run.

    Examples:

      lmlab predict runs/stars "a moving, beautiful film"

      lmlab predict runs/nli "A man sleeps." "Nobody is awake."

      lmlab predict runs/qa --context page.txt "Who wrote it?"

      lmlab predict runs/ner sentences.txt --json

      lmlab predict runs/questions picture.png --question "what colour is the circle?"

      lmlab predict runs/forwards reviews.txt --mix runs/backwards

      lmlab predict runs/clip photo.png --labels "cat,dog" --template "a picture of a {}"

    Give a text, the two texts of a pair, or a question with its choices. A file has one text per line (pairs with a tab
    between them), or any format of lmlab finetune. --json prints one object per line. --labels is for a model of
    pictures and texts (clip), which has learnt no labels: a picture gets the label whose text is nearest to it.
    """
    from dataclasses import replace

    from lmlab.cli.console import progress_bar
    from lmlab.language_model import load_ensemble
    from lmlab.runs.storage import TASK
    from lmlab.tasks.predicting import describe_left_out, to_json
    from lmlab.training.devices import choose_device

    files = [text for text in texts or [] if is_input(text)]
    check_outputs({"-o": output}, inputs=[run, *(others or []), context, *files], overwrite=overwrite)
    if labels is not None or template:
        from lmlab.cli.picture_texts import predict_labels

        if labels is None:
            raise ValueError('--template belongs to zero-shot labels: give them, as --labels "cat,dog"')
        lines = predict_labels(run, texts or [], labels, template, top=top, json_=json_, device=device, weights=weights)
        _write_lines(lines, output)
        return
    from lmlab.cli.evaluate import can

    if can(run, "pictures and texts") and not (run / TASK).is_file():
        raise ValueError(f'{run} has learnt no labels: name some, as in --labels "cat,dog"')
    predictor = load_ensemble([run, *(others or [])], device=choose_device(device), weights=weights)
    examples = read_examples(predictor, texts or [], context, question=question, columns=columns)
    with progress_bar("predicting") as progress:
        predictions = replace(predictor, progress=progress).predict(examples)
    if note := describe_left_out(predictor.task, predictions):
        print(f"warning: {note}", file=sys.stderr)
    pairs = zip(examples, predictions, strict=True)
    lines = [to_json(*pair) if json_ else predictor.task.format_prediction(*pair, top=top) for pair in pairs]
    _write_lines(lines, output)


def _write_lines(lines: list[str], output: Path | None) -> None:
    """Write lines to the screen, or to a file, whole or not at all."""
    text = "".join(f"{line}\n" for line in lines)
    if output is None:
        sys.stdout.write(text)
        return
    from lmlab.runs.storage import write_bytes

    write_bytes(output, text.encode())
    print(printable(f"wrote {output}"), file=sys.stderr)


def read_examples(
    predictor: Predicts,
    texts: list[str],
    context: Path | None = None,
    *,
    question: str | None = None,
    columns: str | None = None,
) -> list[Example]:
    """What is to be predicted, from the arguments or from the rows of a file."""
    from lmlab.data.readers.examples import Example

    task = predictor.task
    if question is not None:
        return _ask_about(task, texts, question)
    if texts and (pictures := task.read_paths(texts)) is not None:
        return pictures
    if (
        len(texts) == 1
        and not is_input(texts[0])
        and re.fullmatch(r"\S+\.(txt|tsv|csv|json|jsonl|conll|conllu)", texts[0])
    ):
        raise ValueError(f"{texts[0]} does not exist, and looks like the name of a file; a text goes between quotes")
    if texts and not "".join(texts).strip():
        raise ValueError("the text is empty: give some words")
    if not texts:
        raise ValueError("there is nothing to predict: give a text, or a file with one text per line")
    file = texts[0] if len(texts) == 1 and is_input(texts[0]) else None
    if file is None:
        for text in texts:
            note_file_name(text)
    if context is not None:
        if not task.groups_by_context:
            raise ValueError(f"--context is for questions, and this run does {task.name}")
        page = context.read_text(encoding="utf-8", errors="strict")
        return [Example(question, page) for question in (texts if file is None else _read_questions(file))]
    if columns is not None and file is None:
        raise ValueError("--columns is for a file: give one file of texts")
    if file is not None:
        return _read_file(task, file, columns)
    if task.groups_by_context:
        raise ValueError("which text has the answer? give --context FILE")
    return [task.make_example(texts)]


def _ask_about(task: Task, paths: list[str], question: str) -> list[Example]:
    """The same question about each picture."""
    from lmlab.data.readers.pictures.files import list_pictures

    if "captions" not in task.reads:
        raise ValueError(f"--question is for runs that answer questions about pictures, and this run does {task.name}")
    return [task.make_example([str(path), question]) for path in list_pictures(paths)]


def _read_questions(file: str) -> list[str]:
    lines = read_lines(file)
    kept = [line for line in lines if line.strip()]
    if not kept:
        raise ValueError(f"{file} has no line to predict: give a file with one question per line")
    _print_left_out(file, {"no text": len(lines) - len(kept)})
    return kept


def _read_file(task: Task, file: str, columns: str | None) -> list[Example]:
    """An example for each row of a file, whose labels are not looked at."""
    from lmlab.data.readers.examples import task_name
    from lmlab.data.readers.files import read_text
    from lmlab.data.readers.labelled.columns import parse_columns
    from lmlab.data.readers.unlabelled import TABLE_ENDINGS, read_unlabelled

    table = file.lower().removesuffix(".gz").endswith(TABLE_ENDINGS)
    found = read_unlabelled(
        "standard input" if is_stream(file) else file,
        read_text(Path(file)) if table else "\n".join(read_lines(file)),
        task=task_name(task.name),
        pair=task.pair,
        columns=parse_columns(columns) if columns else None,
    )
    for note in found.notes:
        print(note, file=sys.stderr)
    _print_left_out(file, found.left_out)
    return list(found.examples)


def _print_left_out(file: str, left_out: Mapping[str, int]) -> None:
    """One line that says how many rows have no prediction."""
    why = ", ".join(f"{count:,} with {reason}" for reason, count in left_out.items() if count)
    if why:
        print(f"{file}: rows left out: {why}", file=sys.stderr)
