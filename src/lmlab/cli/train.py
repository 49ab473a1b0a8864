"""lmlab train: from text to a trained model."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmlab.cli.commands import note_renamed
from lmlab.cli.errors import format_option
from lmlab.cli.options import (
    Columns,
    Country,
    Documents,
    OutputRun,
    OverwriteRun,
    Parallel,
    Processes,
    Resume,
    Settings,
    Size,
    Split,
    Test,
    Valid,
    parse_fractions,
    run_in_processes,
)

if TYPE_CHECKING:
    from lmlab.runs.run import Outcome


def train(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="gpt2, lstm, bert … (see: lmlab list); a run with --resume.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Argument(help="Files, folders, globs, .gz, '-' (standard input), 'builtin', or KIND=FILES."),
    ] = None,
    output: OutputRun = None,
    recipe: Annotated[Path | None, typer.Option(help="TOML file with all settings, instead of MODEL TEXT.")] = None,
    resume: Resume = False,
    moved: Annotated[list[str] | None, typer.Option("--text", hidden=True)] = None,
    origin: Annotated[
        Path | None, typer.Option("--from", metavar="RUN", help="Start from the weights and tokenizer of this run.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Training budget: 90s, 5Mtokens, 300steps, 3epochs or 2e13flops. (default: 5min)"),
    ] = None,
    size: Size = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="bpe:N, words, bytes … or a tokenizer file. (default: by model)")
    ] = None,
    source: Annotated[
        list[str] | None, typer.Option(help="Source sentences of a translator, one per line.", rich_help_panel="Pairs")
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Target sentences, line by line.", rich_help_panel="Pairs")
    ] = None,
    pairs: Annotated[
        list[str] | None,
        typer.Option(help="TSV or JSONL files with source and target.", rich_help_panel="Pairs"),
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
        typer.Option(help="Tokenizer of the source. (default: that of the target)", rich_help_panel="Pairs"),
    ] = None,
    valid: Valid = None,
    test: Test = None,
    split: Split = None,
    documents: Documents = None,
    columns: Columns = None,
    settings: Settings = None,
    seed: Annotated[int | None, typer.Option(help="Random seed. (default: 0)")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps. (default: auto)")] = None,
    country: Country = None,
    memory: Annotated[str | None, typer.Option(help="Count n-grams on disk with this memory: 512M, 2G …")] = None,
    compile_: Annotated[bool, typer.Option("--compile", help="torch.compile the model, for longer runs.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard events.")] = False,
    processes: Processes = None,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Same weights, bit by bit, for any N.", rich_help_panel="Several processes"),
    ] = False,
    parallel: Parallel = "ddp",
    overwrite: OverwriteRun = False,
) -> None:
    """Train a language model on your own text.

    Examples:

      lmlab train gpt2 book.txt -o runs/book --budget 2min

      lmlab train ngram corpus/ -o runs/counts --tokenizer words

      lmlab train lstm 'logs/*.gz' -o runs/logs --budget 5Mtokens --set model.layers=3

      lmlab train bert wiki/ -o runs/bert --budget 1h

      lmlab train transformer --source train.en --target train.de -o runs/en-de --budget 1h

      lmlab train clip captions.tsv -o runs/clip --columns picture=file,caption=title

      lmlab train gpt2 text=book.txt notes=tunes/ captions=pictures.tsv -o runs/all

      lmlab train gpt2 book.txt -o runs/book --processes 2

      lmlab train --resume runs/book

    Several kinds of data in one model: name each as KIND=FILES, of text, captions, images, notes and episodes, or give
    builtin:everything. --set 'data.weights={text=2}' takes text twice as often as each of the others.

    A budget in time counts training only: validation and checkpoints add at most about half of it. --resume RUN TEXT
    names the text again if it has moved. Tokenizers are characters, bytes, words\\[:N], spelled\\[:N], bpe:N,
    wordpiece:N, unigram:N, a tokenizer.json, or a folder with encoder.json and vocab.bpe.

    --processes N divides each step among N processes of this machine; for several machines, start lmlab train with
    torchrun. The run is the same for any N, except for rounding; with --exact without any difference.
    """
    run_in_processes(processes, reads=[*(text or []), *(source or []), *(target or []), *(pairs or [])])
    from lmlab.config import parse_settings
    from lmlab.data.readers.labelled.columns import split_columns
    from lmlab.runs.run_files import is_run

    if moved:
        if not resume:
            raise ValueError("name the text after MODEL: lmlab train gpt2 book.txt -o runs/book")
        note_renamed("--text FILE", "FILE after the run: lmlab train --resume RUN FILE")
        text = [*(text or []), *moved]
    changed = parse_settings(settings or [])
    if compile_:
        changed = {"train.compile": True, **changed}
    if tensorboard:
        changed = {"train.tensorboard": True, **changed}
    if exact:
        changed = {"train.exact": True, **changed}
    spending = {"budget": budget, "device": device, "country": country}
    fixed = {
        "output": output,
        "recipe": recipe,
        "origin": origin,
        "size": size,
        "tokenizer": tokenizer,
        "source_tokenizer": source_tokenizer,
        "split": parse_fractions(split),
        "documents": documents,
        "columns": None if columns is None else split_columns(columns),
        "seed": seed,
        "memory": memory,
        "overwrite": overwrite or None,
    }
    files = {
        "text": list(dict.fromkeys(text or [])) or None,
        "valid": valid,
        "test": test,
        "source": source,
        "target": target,
        "pairs": pairs,
        "valid_source": valid_source,
        "valid_target": valid_target,
        "valid_pairs": valid_pairs,
    }
    if resume and (output is None or is_run(Path(model or ""))):
        if model is None:
            raise ValueError("--resume: name the run, for instance lmlab train --resume runs/book")
        _check_resumed(model, fixed, changed)
        spent = {name: value for name, value in spending.items() if value is not None}
        train_settings = spent | {name.removeprefix("train."): value for name, value in changed.items()}
        texts = {name: value for name, value in files.items() if value}
        from lmlab.runs.run import resume as resume_run
        from lmlab.training.distributed.group import connect

        world = connect(parallel=parallel, device=device or "auto")
        _report(
            _watch(lambda **watching: resume_run(model, settings=train_settings, texts=texts, world=world, **watching))
        )
        return
    if recipe is None and (not model or not (text or source or pairs)):
        raise ValueError(
            "give MODEL and TEXT (lmlab train gpt2 book.txt -o runs/book), MODEL with --source and --target, "
            "or --recipe FILE"
        )
    if output is None:
        raise ValueError("give -o RUN, the run directory to create, for instance -o runs/first")
    from lmlab.runs.train import train as train_run

    options: dict[str, Any] = {**spending, **fixed, **files, "overwrite": overwrite, "resume": resume}
    options["parallel"] = parallel
    _report(_watch(lambda **watching: train_run(model, settings=changed, **options, **watching)))


def _check_resumed(path: str, fixed: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
    """A ValueError names what cannot be changed when a run is resumed."""
    wrong = [format_option(name) for name, value in fixed.items() if value is not None]
    wrong += [f"--set {name}" for name in changed if not name.startswith("train.")]
    if wrong:
        raise ValueError(
            f"--resume continues {path} as it was started: {', '.join(wrong)} cannot be changed (--budget, "
            "--device, --country, --compile, --tensorboard and most of --set train.… can; TEXT, --valid, --test, "
            "--source, --target, --pairs … name a text again that has moved)"
        )


def _watch(work: Callable[..., Outcome]) -> Outcome:
    """The result of training with progress bars; Ctrl-C lets it finish a step and save."""
    from lmlab.cli.progress import Stopping, TrainingDisplay, catch_interrupts

    interrupted = catch_interrupts()
    try:
        with TrainingDisplay() as display:
            return work(reporter=Stopping(display, interrupted), interrupted=interrupted)
    except KeyboardInterrupt as end:
        print(end if str(end) else "Interrupted.")
        sys.exit(130)


def _report(outcome: Outcome) -> None:
    from lmlab.cli.console import Console
    from lmlab.training.energy_meter import Cost
    from lmlab.units import describe_units

    console = Console(highlight=False, soft_wrap=True, markup=False)
    path = shlex.quote(str(outcome.path))
    if outcome.interrupted:
        if (outcome.path / "last").is_dir():
            console.print(
                f"Interrupted at step {outcome.progress.step}; saved. Resume with: lmlab train --resume {path}"
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
