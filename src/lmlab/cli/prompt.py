"""lmlab prompt: tasks without training."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lmlab.cli.options import Device, Json, Seed, Versus
from lmlab.cli.texts import spooled

if TYPE_CHECKING:
    from lmlab.metrics.statistics import Estimate
    from lmlab.prompting import Asked
    from lmlab.prompting.asking import FinetunedScore


def prompt(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run that continues texts, trained or imported.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Labelled examples, as for lmlab finetune, or text.")],
    task: Annotated[str, typer.Option(help="Built-in task, or a TOML file with a template.")],
    shots: Annotated[str, typer.Option(help="Numbers of examples in the prompt, as 0,1,8.")] = "0",
    test: Annotated[Path | None, typer.Option(help="Test examples. (default: part of DATA)")] = None,
    examples: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of items to answer.")] = 200,
    finetuned: Versus = None,
    seed: Seed = 0,
    show: Annotated[bool, typer.Option("--show", help="Show the first prompt and its answer.")] = False,
    json_: Json = False,
    device: Device = "auto",
) -> None:
    """Do a task by prompting, without training (zero-shot, few-shot).

    A template turns an item into a text that the answer continues. A class is predicted by the likelihood of its words;
    other answers are generated. Scores are shown with those of the most frequent answer.

    Examples:

      lmlab prompt runs/gpt2 SST-2 --task sentiment --shots 0,1,8

      lmlab prompt runs/gpt2 lambada_test.jsonl --task last-word --limit 500

      lmlab prompt runs/gpt2 book.txt --task cloze

      lmlab prompt runs/gpt2 reviews.tsv --task mine.toml --shots 0,4 --versus runs/stars

    Built-in tasks: sentiment, entailment, last-word, cloze, question and translation. DATA is plain text or LAMBADA's
    JSON lines for last-word and cloze, and lines with a tab for translation. --versus is a run that was fine-tuned on
    the task.
    """
    from lmlab.cli.console import progress_bar
    from lmlab.language_model import load
    from lmlab.prompting import ask, find_template, read_items
    from lmlab.training.devices import choose_device

    template = find_template(task)
    numbers = _numbers(shots)
    with spooled(str(data)) as file, spooled(str(test or "")) as held_out:
        items = read_items(template, file, test=None if test is None else held_out, seed=seed)
    lm = load(run, device=choose_device(device))
    with progress_bar("asking") as progress:
        asked = ask(lm, template, items, shots=numbers, seed=seed, most=examples, progress=progress)
    tuned, seen = None, 0
    if finetuned is not None:
        from lmlab.prompting.asking import score_finetuned
        from lmlab.transfer.evaluation import find_trained_on, format_trained_on

        tuned = score_finetuned(load(finetuned, device=choose_device(device)), items, most=examples, seed=seed)
        if seen := len(find_trained_on(finetuned, tuned.examples)):
            print(format_trained_on(finetuned, seen, len(tuned.examples)), file=sys.stderr)
    _warn(asked, lm.writer.model.window)
    if asked.repeated and max(numbers):
        print(
            f"note: {asked.repeated:,} of {len(items.pool):,} examples have the text of an item to answer; none was "
            "shown before that item",
            file=sys.stderr,
        )
    if json_:
        import json

        print(json.dumps(_as_dict(asked, task, seed, tuned, seen), ensure_ascii=False))
        return
    _print(asked, task, run.name, tuned, None if finetuned is None else finetuned.name)
    if show:
        first = asked.answers[-1]
        shown = f"\n--- the first prompt ---\n{first.prompt}\n--- answered ---\n{first.first}\n"
        sys.stdout.write("".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in shown))


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(each) for each in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 0:
        raise ValueError(f"--shots {text}: give numbers of examples with commas between them, such as 0,1,8")
    return numbers


def _warn(asked: Asked, window: int | None) -> None:
    """One line for each number of examples with which prompts were longer than the model's window."""
    for each in asked.answers:
        if each.fitting.cut:
            few, most = each.fitting.fewest, each.fitting.most
            fitted = f"{few}" if few == most else f"{few} to {most}"
            left = f"; {fitted} of {each.shots} examples were seen" if each.shots else ""
            print(
                f"warning: {each.shots} shot{'s' * (each.shots != 1)}: {each.fitting.cut:,} of {asked.items:,} prompts "
                f"are longer than the window of {window:,} tokens and were cut at the left{left}",
                file=sys.stderr,
            )


def _print(asked: Asked, task: str, run: str, tuned: FinetunedScore | None, tuned_name: str | None) -> None:
    from rich import box
    from rich.table import Table

    from lmlab.cli.console import Console

    table = Table(title=f"{task}: {asked.items:,} items", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.caption, table.caption_justify = "scores times 100, 95% intervals", "left"
    names = list(asked.answers[0].scores)
    cut = any(answers.fitting.cut for answers in asked.answers)
    if cut:
        table.caption += "; cut: prompts longer than the window; seen: examples that fitted, mean"
    for name in ("", "shots", *["cut", "seen"] * cut, *names):
        table.add_column(name, justify="left" if not name else "right")
    for answers in asked.answers:
        others = (f"{100 * answers.scores[name].value:.1f}" for name in names[1:])
        held = [f"{answers.fitting.cut:,}", f"{answers.fitting.mean:.1f}"] * cut
        table.add_row(run, str(answers.shots), *held, _format(answers.scores[names[0]]), *others)
    held = [""] * 2 * cut
    blank = [""] * (len(names) - 1)
    table.add_row("commonest answer", "", *held, _format(asked.majority), *blank)
    if tuned is not None:
        table.add_row(f"{tuned_name} (fine-tuned)", "", *held, _format(tuned.score), *blank)
    Console(highlight=False).print(table)


def _format(score: Estimate) -> str:
    if score.low is None or score.high is None:
        return f"{100 * score.value:.1f}"
    return f"{100 * score.value:.1f} ({100 * score.low:.1f}–{100 * score.high:.1f})"


def _as_dict(asked: Asked, task: str, seed: int, tuned: FinetunedScore | None, seen: int) -> dict[str, object]:
    return {
        "task": task,
        "items": asked.items,
        "seed": seed,
        "repeated": asked.repeated,
        "shots": [
            {
                "shots": each.shots,
                "scores": {name: score._asdict() for name, score in each.scores.items()},
                "cut": each.fitting.cut,
                "shots_seen": each.fitting.mean,
            }
            for each in asked.answers
        ],
        "majority": asked.majority._asdict(),
        "finetuned": None if tuned is None else {**tuned.score._asdict(), "trained_on": seen},
    }
