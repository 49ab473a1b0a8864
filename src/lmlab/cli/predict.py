"""lmlab predict: what a fine-tuned run says of texts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmlab.cli.texts import OVERWRITE, check_outputs, read_lines

if TYPE_CHECKING:
    from lmlab.data.reading.examples import Example
    from lmlab.tasks.predicting import Predictor
    from lmlab.tasks.task import Prediction


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run that was made by lmlab finetune.")],
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT|FILE]…",
            help="A text, two texts of a pair, a question with its choices; or a file, one text per line (pairs: with "
            "a tab between them); '-' reads standard input.",
        ),
    ] = None,
    context: Annotated[
        Path | None, typer.Option(help="Questions: the file of the text in which the answer stands.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Show so many labels or answers, the most probable first.")] = 3,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The file to write. (default: the screen)")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=OVERWRITE)] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Predict labels, tags, scores or answers with a fine-tuned run.

    Examples:

      lmlab predict runs/stars "a moving, beautiful film"

      lmlab predict runs/nli "A man sleeps." "Nobody is awake."

      lmlab predict runs/qa --context page.txt "Who wrote it?"

      lmlab predict runs/ner sentences.txt --json
    """
    from lmlab.language_model import load
    from lmlab.training.loop import choose_device

    files = [text for text in texts or [] if text == "-" or _is_file(text)]
    check_outputs({"-o": output}, inputs=[run, context, *files], overwrite=overwrite)
    predictor = load(run, device=choose_device(device)).predictor
    examples = read_examples(predictor, texts or [], context)
    predictions = predictor.predict(examples)
    lines = [tell_json(example, found) for example, found in zip(examples, predictions, strict=True)]
    if not json_:
        lines = [tell(predictor, each, found, top) for each, found in zip(examples, predictions, strict=True)]
    text = "".join(f"{line}\n" for line in lines)
    if output is None:
        sys.stdout.write(text)
        return
    from lmlab.checkpoint import write_bytes

    write_bytes(output, text.encode())
    print(f"wrote {output}", file=sys.stderr)


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # too long for a name
        return False


def read_examples(predictor: Predictor, texts: list[str], context: Path | None) -> list[Example]:
    """What is to be predicted, from the arguments or from the lines of a file."""
    from lmlab.data.reading.examples import Example

    task = predictor.task.name
    if not texts:
        raise ValueError("there is nothing to predict: give a text, or a file with one text per line")
    if task == "spans":
        if context is None:
            raise ValueError("in which text does the answer stand? give --context FILE")
        page = context.read_text(encoding="utf-8", errors="strict")
        questions = read_lines(texts[0]) if len(texts) == 1 and (texts[0] == "-" or _is_file(texts[0])) else texts
        return [Example(question, page) for question in questions]
    if context is not None:
        raise ValueError(f"--context is for questions, and this run does {task}")
    if len(texts) == 1 and (texts[0] == "-" or _is_file(texts[0])):
        return _read_file(task, texts[0])
    return [_example(task, texts)]


def _read_file(task: str, file: str) -> list[Example]:
    """The examples of a file, whose labels are not looked at; else one text per line, pairs with a tab between them."""
    from lmlab.data.reading.labelled import COLUMN_ENDINGS, JSON_ENDINGS, read_examples

    tagged = task == "tagging" and file != "-" and Path(file).stat().st_size > 0 and _has_columns(Path(file))
    if tagged or file.endswith((*JSON_ENDINGS, *COLUMN_ENDINGS, ".csv", ".tsv")):
        found = read_examples(file, task=task)  # type: ignore[arg-type]
        return [example._replace(label=None) for example in found.train]
    rows = [line.split("\t") for line in read_lines(file) if line.strip()]
    if not rows:
        raise ValueError(f"{file} has no line to predict: give a file with one text per line")
    return [_example(task, row) for row in rows]


def _has_columns(path: Path) -> bool:
    """Whether the words of a sentence stand below each other, with tags beside them."""
    from lmlab.data.reading.tagged import is_tagged
    from lmlab.data.reading.whole import read_whole

    return is_tagged(str(path), read_whole(path))


def _example(task: str, row: list[str]) -> Example:
    from lmlab.data.reading.examples import Example

    if task == "choice":
        if len(row) < 3:
            raise ValueError(f"a question with {len(row) - 1} choice(s): give it with two choices or more")
        return Example(row[0], choices=tuple(row[1:]))
    if task == "tagging":
        return Example(tuple(" ".join(row).split()))
    if len(row) > 2:
        raise ValueError(f"{len(row)} texts: give one, or the two of a pair; more of them in a file, one per line")
    return Example(row[0], row[1] if len(row) > 1 else None)


def tell_json(example: Example, found: Prediction) -> str:
    """A prediction as a line of JSON."""
    import json

    values: dict[str, Any] = {"text": example.a}
    if example.b is not None:
        values["second"] = example.b
    values |= {"predicted": found.value, "probability": found.probability}
    if found.scores:
        values["scores"] = dict(found.scores)
    if found.span is not None:
        values["span"] = found.span
    return json.dumps(values, ensure_ascii=False)


def tell(predictor: Predictor, example: Example, found: Prediction, top: int) -> str:
    """A prediction as people read it."""
    if predictor.task.name == "tagging":
        return " ".join(
            word if tag == "O" else f"{word}/{tag}" for word, tag in zip(example.a, found.value, strict=True)
        )
    if predictor.task.name == "regression":
        return f"{found.value:.4g}\t{example.a}"
    ranked = sorted(found.scores.items(), key=lambda each: -each[1])[:top]
    named = "   ".join(f"{name or 'no answer'} {share:.1%}" for name, share in ranked)
    return f"{named}\t{example.a}"
