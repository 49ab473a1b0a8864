"""lmlab train: from text to a trained model."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from lmlab.runs.recipe import Recipe
    from lmlab.runs.run import Outcome


def train(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="The name of a model: gpt2, lstm, bert … (see: lmlab list).")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files, folders, globs, .gz, '-' for standard input, or 'builtin' (Python's documentation)."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The run directory to make.")] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="A TOML file with all the settings, in place of MODEL TEXT.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Resume this run from its last checkpoint.")] = None,
    texts: Annotated[
        list[str] | None,
        typer.Option("--text", help="With --resume: where the text (or the examples) is now, if it has moved."),
    ] = None,
    origin: Annotated[
        Path | None, typer.Option("--from", help="Begin with the weights and the tokenizer of this run (fine-tuning).")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="What to spend: 90s, 10min, 5Mtokens, 300steps, 3epochs or 2e13flops. (default: 5min)"),
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="A preset of the model: tiny, small, base … (lmlab list MODEL).")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="characters, bytes, words[:N], spelled[:N], bpe:N, wordpiece:N, unigram:N, a tokenizer.json, or a "
            "folder with encoder.json and vocab.bpe. (default: the usual one of the model, mostly bpe:4096)"
        ),
    ] = None,
    source: Annotated[
        list[str] | None, typer.Option(help="Translators: source sentences, one per line.", rich_help_panel="Pairs")
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="The same sentences in the target language.", rich_help_panel="Pairs")
    ] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Option(help="TSV or JSONL files with both, in place of these two.", rich_help_panel="Pairs"),
    ] = None,
    valid_source: Annotated[
        list[str] | None, typer.Option(help="Source sentences for validation.", rich_help_panel="Pairs")
    ] = None,
    valid_target: Annotated[
        list[str] | None, typer.Option(help="Target sentences for validation.", rich_help_panel="Pairs")
    ] = None,
    valid_pairs: Annotated[
        list[str] | None, typer.Option(help="Pairs for validation.", rich_help_panel="Pairs")
    ] = None,
    source_tokenizer: Annotated[
        str | None,
        typer.Option(help="A vocabulary of its own for the source. (default: one for both)", rich_help_panel="Pairs"),
    ] = None,
    valid: Annotated[list[str] | None, typer.Option(help="Text for validation (default: part of TEXT).")] = None,
    test: Annotated[list[str] | None, typer.Option(help="Text for the final test (default: part of TEXT).")] = None,
    split: Annotated[str | None, typer.Option(help="Shares of train, valid and test. (default: 0.9,0.05,0.05)")] = None,
    documents: Annotated[
        str | None,
        typer.Option(
            help="What one document is: file, lines, blank (blank lines between) or endoftext. (default: file)"
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting, e.g. --set model.layers=3 --set train.rate=0.001.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed. (default: 0)")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps. (default: auto)")] = None,
    country: Annotated[
        str | None,
        typer.Option(
            help="Country of the electricity, for CO2e: SE, DE … (default: LMLAB_COUNTRY, or the world average)"
        ),
    ] = None,
    compile_: Annotated[
        bool, typer.Option("--compile", help="torch.compile the model (pays off in longer runs).")
    ] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard events.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is there already.")] = False,
) -> None:
    """Train a language model on your own text.

    Examples:

      lmlab train gpt2 book.txt -o runs/book --budget 2min

      lmlab train ngram corpus/ -o runs/counts --tokenizer words

      lmlab train lstm 'logs/*.gz' -o runs/logs --budget 5Mtokens --set model.layers=3

      lmlab train bert wiki/ -o runs/bert --budget 1h

      lmlab train transformer --source train.en --target train.de -o runs/en-de --budget 1h

      lmlab train --resume runs/book

    A budget in time counts training alone: validation and checkpoints come on top, with at most about half of it.
    """
    from lmlab.config import apply_settings

    given: dict[str, dict[str, Any]] = {
        "data": {
            "text": text,
            "valid": valid,
            "test": test,
            "split": _shares(split),
            "documents": documents,
            "source": source,
            "target": target,
            "pairs": pairs,
            "valid_source": valid_source,
            "valid_target": valid_target,
            "valid_pairs": valid_pairs,
        },
        "tokenizer": {"spec": tokenizer, "source": source_tokenizer},
        "model": {"kind": model, "size": size},
        "train": {
            "budget": budget,
            "seed": seed,
            "device": device,
            "country": country,
            "compile": compile_ or None,
            "tensorboard": tensorboard or None,
        },
    }
    values = {
        group: {key: value for key, value in table.items() if value is not None and value != []}
        for group, table in given.items()
    }
    if resume is not None:
        moved = values["data"] | ({"text": texts} if texts else {})
        changes = apply_settings({"train": values["train"]}, settings or [])
        refused = {
            "MODEL": model,
            "TEXT": text,
            "--recipe": recipe,
            "--output": output,
            "--from": origin,
            "--size": size,
            "--tokenizer": tokenizer,
            "--source-tokenizer": source_tokenizer,
            "--split": split,
            "--documents": documents,
            "--seed": seed is not None,
            "--overwrite": overwrite,
            **{f"--set {group}.{name}": True for group, table in changes.items() if group != "train" for name in table},
        }
        if texts and model:
            raise ValueError("--text takes one text: repeat it where there are several (--text A --text B)")
        if wrong := [name for name, given in refused.items() if given]:
            raise ValueError(
                f"--resume continues {resume} as it was started: {', '.join(wrong)} cannot be changed (--budget, "
                "--device, --country, --compile, --tensorboard and most of --set train.… can; --text, --valid, --test, "
                "--source, --target, --pairs … say where a text is now that has moved)"
            )
        _report(_interruptible(lambda: _resume(resume, changes["train"], moved)))
        return
    if texts:
        raise ValueError("--text says with --resume where a text is now; name the text of a new run after MODEL")
    if recipe is None and (not model or not (text or source or pairs)):
        raise ValueError(
            "give MODEL and TEXT (lmlab train gpt2 book.txt -o runs/book), MODEL with --source and --target, "
            "or --recipe FILE"
        )
    if output is None:
        raise ValueError("where should the run go? give -o RUN, for instance -o runs/first")
    _report(_interruptible(lambda: _start(values, recipe, settings or [], output, overwrite, origin)))


def _interruptible(work: Callable[[], Outcome]) -> Outcome:
    """What work comes to; where it was ended before there was anything to save, that is said."""
    try:
        return work()
    except KeyboardInterrupt as end:
        print(end if str(end) else "Interrupted.")
        sys.exit(130)


def _shares(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--split {text}: give numbers with commas between them, for instance 0.9,0.05,0.05") from None


def _start(
    values: dict[str, Any],
    recipe: Path | None,
    settings: list[str],
    output: Path,
    overwrite: bool,
    origin: Path | None,
) -> Outcome:
    from lmlab.cli.progress import TrainingDisplay
    from lmlab.cli.stopping import Stopping, catch_interrupts
    from lmlab.config import apply_settings, read_toml
    from lmlab.runs import run
    from lmlab.runs.recipe import make_recipe, read_groups
    from lmlab.runs.run_files import is_run

    groups: dict[str, Any] = {}
    if recipe is not None:
        groups = read_groups(recipe) if recipe.suffix == ".json" else read_toml(recipe)
    for group, table in values.items():
        if table:
            groups[group] = {**groups.get(group, {}), **table}
    if origin is not None:
        groups["origin"] = str(origin)
    resolved = make_recipe(apply_settings(groups, settings))
    if not overwrite and is_run(output):
        return _show_finished(resolved, output)

    interrupted = catch_interrupts()
    with TrainingDisplay() as display:
        reporter = Stopping(display, interrupted)
        return run.start(resolved, output, overwrite=overwrite, reporter=reporter, interrupted=interrupted)


def _show_finished(recipe: Recipe, path: Path) -> Outcome:
    """What a run has come to that was made by the same command; a ValueError where it is another, or not finished."""
    from lmlab.runs.recipe import check_same_settings
    from lmlab.runs.run_files import check_not_read, check_place
    from lmlab.runs.storage import read_folder, read_json

    def read_progress(folder: Path) -> Any:
        return read_json(folder / "progress.json")

    check_not_read(path, recipe.inputs())
    check_same_settings(path, recipe)
    counted = (path / "progress.json").is_file()  # as n-grams have it, which are not saved on the way
    last = read_progress(path) if counted else read_folder(path / "last", read_progress)
    if not (last or {}).get("ended"):
        check_place(path, overwrite=False, go_on=f"--resume {path}")
    return _resume(path, {}, {})


def _resume(path: Path, settings: dict[str, Any], texts: dict[str, Any]) -> Outcome:
    from lmlab.cli.progress import TrainingDisplay
    from lmlab.cli.stopping import Stopping, catch_interrupts
    from lmlab.runs import run

    interrupted = catch_interrupts()
    with TrainingDisplay() as display:
        reporter = Stopping(display, interrupted)
        return run.resume(path, settings=settings, texts=texts, reporter=reporter, interrupted=interrupted)


def _report(outcome: Outcome) -> None:
    from lmlab.cli.console import Console
    from lmlab.training.energy_meter import Cost
    from lmlab.units import describe_units

    console = Console(highlight=False, soft_wrap=True, markup=False)
    path = shlex.quote(str(outcome.path))
    if outcome.interrupted:
        if (outcome.path / "last").is_dir():
            console.print(
                f"Interrupted at step {outcome.progress.step}; saved. Go on with: lmlab train --resume {path}"
            )
        else:
            doing = "reading examples" if outcome.parameters else "counting"
            console.print(f"Interrupted while {doing}: nothing was written, and the next run starts over.")
        sys.exit(130)
    cost = Cost(*outcome.progress.cost)
    quality = f"{outcome.quality}, " if outcome.progress.best is not None else ""
    early = " (early stopping: the validation loss no longer improved)" if outcome.progress.ended == "early" else ""
    if not outcome.trained:
        console.print(
            f"{outcome.path} was finished already: nothing was changed. A larger budget extends it, unless it is an "
            "n-gram that has counted the whole text."
        )
    console.print(str(outcome.path), style="bold", end="")
    console.print(
        f": {quality}{outcome.parameters:,} parameters, {describe_units(outcome.progress.units)}, "
        f"{cost.seconds:.1f} s, {cost.joules / 3600:.3g} Wh, {outcome.grams:.3g} g CO2e{early}"
    )
    if outcome.commands:
        console.print(f"Next: {outcome.next_step}")
