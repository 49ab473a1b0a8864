"""lmlab finetune: train a run on the labelled examples of a task."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

import lmlab
from lmlab.cli.options import (
    Columns,
    Device,
    DropBadLabels,
    Epochs,
    Json,
    Leaks,
    NoControls,
    OutputRun,
    OverwriteRun,
    Resume,
    Seeds,
    Settings,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmlab.transfer.folder import Finetuned

FINISHED = "{folder} was finished already with the same settings: nothing was trained"


def finetune(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run to start from; or tagger, from scratch.")],
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="TSV, CSV, JSONL, fastText, CoNLL, CoNLL-U, SQuAD, or a folder."),
    ] = None,
    output: OutputRun = None,
    valid: Annotated[str | None, typer.Option(help="Validation examples. (default: part of DATA)")] = None,
    test: Annotated[str | None, typer.Option(help="Test examples. (default: part of DATA, unless --valid)")] = None,
    how: Annotated[str, typer.Option(help="full, frozen, mix, gradual, ulmfit or scratch.")] = "full",
    task: Annotated[
        str | None,
        typer.Option(help="classification, regression, choice, tagging or spans. (default: detected from DATA)"),
    ] = None,
    columns: Columns = None,
    leaks: Leaks = "keep",
    drop_bad_labels: DropBadLabels = False,
    crf: Annotated[bool, typer.Option("--crf", help="Conditional random field over the tags.")] = False,
    states: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="Run whose frozen states a tagger reads; repeatable."),
    ] = None,
    vectors: Annotated[Path | None, typer.Option(help="Word vectors of a tagger: word2vec or GloVe text.")] = None,
    pool: Annotated[
        str | None, typer.Option(help="Vector of a text: cls, last, mean, max or concat. (default: by model)")
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="Layers that --how frozen reads; all compares six choices.")
    ] = None,
    examples: Annotated[
        str | None, typer.Option(help="Learning curve: numbers of training examples, as 10,30,100,all.")
    ] = None,
    select: Annotated[
        float | None,
        typer.Option(min=0, max=0.9, help="Fraction of DATA that selects the checkpoint. (default: 0.1)"),
    ] = None,
    epochs: Epochs = None,
    budget: Annotated[
        str | None, typer.Option(help="In place of --epochs: 60s, 200steps, 1e5tokens or 1e12flops.")
    ] = None,
    seeds: Seeds = 1,
    seed: Annotated[int, typer.Option(min=0, help="First random seed.")] = 0,
    no_controls: NoControls = False,
    check: Annotated[bool, typer.Option("--check", help="Only describe the data.")] = False,
    settings: Settings = None,
    device: Device = "auto",
    resume: Resume = False,
    overwrite: OverwriteRun = False,
    json_: Json = False,
) -> None:
    """Fine-tune a run on labelled examples, with baselines.

    Examples:

      lmlab finetune runs/bert reviews.tsv -o runs/stars

      lmlab finetune runs/bert eng.train --valid eng.testa -o runs/ner --crf

      lmlab finetune tagger eng.train --valid eng.testa -o runs/ner --states runs/lm

      lmlab finetune runs/bert train.json --valid dev.json -o runs/qa

      lmlab finetune runs/gpt2 snli.jsonl -o runs/nli --how frozen

      lmlab finetune runs/awd-lstm reviews.tsv -o runs/stars --how ulmfit

      lmlab finetune runs/vit birds/ -o runs/birds --budget 60s

      lmlab finetune runs/bert reviews.tsv --examples 10,30,100,300,all --seeds 5 -o curve

      lmlab finetune --resume runs/stars

    Task, columns and split are detected and printed. The score is compared with the majority class, a bag of words, the
    frozen model and the same model from scratch; together they cost about as much again. --no-controls leaves them out.

    --how full trains all weights; frozen only the head, over vectors that are computed once; mix the head and a mix of
    all layers; gradual unfreezes from the top; ulmfit trains the language model on the texts first, then gradual;
    scratch is the same model without pre-training. --layers is last, second-to-last, sum:all, concat:-4: … Without
    --test, the examples of --valid are scored, and --select keeps some of DATA to select the checkpoint (0: the last
    one). --leaks removes such examples from train or from test.
    """
    from lmlab.cli.study_scores import print_study
    from lmlab.config import apply_settings
    from lmlab.data.readers.labelled.columns import parse_columns

    if data is None:
        resume_folder(_only_folder(context, run), json_=json_)
        return
    groups = apply_settings({"train": {}, "objective": {}, "language": {}, "model": {}}, settings or [])
    if wrong := set(groups) - {"train", "objective", "language", "model"}:
        raise ValueError(f"--set {wrong.pop()}.…: of a task only train, objective, language and model can be set")
    for group, name, option in (
        ("objective", "method", "how"),
        ("objective", "how", "how"),
        ("objective", "layers", "layers"),
        ("train", "seed", "seed"),
    ):
        if name in groups[group]:
            raise ValueError(f"--set {group}.{name}: give --{option} {groups[group][name]} instead")
    files: dict[str, Any] = {"valid": valid, "test": test, "task": task, "leaks": leaks, "select": select}
    files |= {"columns": parse_columns(columns) if columns else None, "drop_bad_labels": drop_bad_labels}
    if check:
        _print_check(run, data, files, how=how, states=states, vectors=vectors, groups=groups, json_=json_)
        return
    if resume and overwrite:
        raise ValueError("--resume continues what is there and --overwrite replaces it: give one of them")
    if output is None:
        raise ValueError("where should the run go? give -o RUN, for instance -o runs/task (--check only looks)")
    done = run_with_progress(
        lambda **shown: lmlab.finetune(
            run,
            data,
            output=output,
            **files,
            how=how,
            layers=layers,
            sizes=None if examples is None else _sizes(examples),
            seeds=seeds,
            seed=seed,
            epochs=epochs,
            budget=budget,
            controls=not no_controls,
            crf=crf,
            pool=pool,
            states=states or (),
            vectors=vectors,
            settings=groups["objective"],
            train=groups["train"],
            model=groups["model"],
            language=groups["language"],
            device=device,
            overwrite=overwrite,
            resume=resume,
            notify=lambda line: None if json_ else print(line, file=sys.stderr),
            **shown,
        ),
        output,
        method=how,
    )
    print_study(done.study, output, json_=json_, next_step=_next_step(done))


def _only_folder(context: typer.Context, folder: Path) -> Path:
    """The folder that --resume continues; a ValueError names options that the folder has already."""
    if not context.params["resume"]:
        raise ValueError("which examples? name a file: lmlab finetune RUN DATA -o NEW")
    sources = {name: context.get_parameter_source(name) for name in context.params}
    typed = {name for name, source in sources.items() if getattr(source, "name", "") == "COMMANDLINE"}
    if wrong := sorted(typed - {"run", "resume", "json_"}):
        known = {"settings": "--set", "output": "-o"}
        options = ", ".join(known.get(name) or f"--{name.replace('_', '-')}" for name in wrong)
        raise ValueError(
            f"--resume {folder} takes all settings from the folder, so it takes no {options}; to give them again, give "
            "the whole command: lmlab finetune RUN DATA -o NEW … --resume"
        )
    return folder


def resume_folder(folder: Path, *, json_: bool) -> None:
    """Resume a study or a fine-tuned run with the settings in its folder."""
    from lmlab.cli.study_scores import print_study
    from lmlab.transfer.finetune import resume_finetuning
    from lmlab.transfer.study_settings import read_command

    method = read_command(folder).make_trials()[0].method
    done = run_with_progress(lambda **shown: resume_finetuning(folder, **shown), folder, method=method)
    print_study(done.study, folder, json_=json_, next_step=_next_step(done))


def run_with_progress(work: Callable[..., Finetuned], output: Path, *, method: str = "") -> Finetuned:
    """Call `work(reporter=…, interrupted=…)` with progress bars; Ctrl-C says how to resume, and ends the program."""
    from lmlab.cli.progress import TrainingDisplay, catch_interrupts
    from lmlab.transfer.ulmfit import language_model_folder

    interrupted = catch_interrupts()
    try:
        with TrainingDisplay(several=True) as display:
            found = work(reporter=display, interrupted=interrupted)
    except KeyboardInterrupt:
        _stop(output, language=language_model_folder(output) if method == "ulmfit" else None)
    if not found.trained:
        print(FINISHED.format(folder=output), file=sys.stderr)
    return found


def _sizes(text: str) -> list[int | None]:
    """Numbers of examples, `all` as None."""
    try:
        found = [None if part.strip() == "all" else int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--examples {text}: give numbers with commas between them, or all: 10,30,100,all") from None
    if any(size is not None and size < 1 for size in found):
        raise ValueError(f"--examples {text}: each number must be 1 or more")
    return found


def _print_check(
    run: Path,
    data: str,
    files: dict[str, Any],
    *,
    how: str,
    states: list[Path] | None,
    vectors: Path | None,
    groups: dict[str, Any],
    json_: bool,
) -> None:
    """Print what the data look like."""
    from lmlab.data.corpora.example_splits import SELECTED
    from lmlab.transfer.finetune import check_trial
    from lmlab.transfer.from_scratch import format_coverage
    from lmlab.transfer.task_data import check_data, check_select, describe_selection, open_data
    from lmlab.transfer.trials import Trial

    task = {**({"states": states} if states else {}), **({"vectors": vectors} if vectors else {})}
    check_trial(Trial(origin=run, method=how, task=task, model=groups["model"], language=groups["language"]))
    select = files.pop("select")
    opened = open_data(data, **files, select=SELECTED if select is None else select, run=run)
    if select is not None:
        check_select(opened, select)
    found = check_data(run, opened)
    if json_:
        import json

        print(json.dumps(found.as_dict(), ensure_ascii=False))
    else:
        print("\n".join([*found.lines(), *describe_selection(opened)]))
    if vectors is not None:
        print(format_coverage(opened.labelled, vectors), file=sys.stderr)


def _stop(output: Path, *, language: Path | None = None) -> NoReturn:
    """Say what is saved of interrupted work and how to resume it; then end the program.

    `language` is the folder in which ulmfit tunes its language model first.
    """
    from lmlab.runs.run_files import is_run, is_study

    saved = "nothing was written yet, and the same command starts again"
    if language is not None and is_run(language):
        saved = f"the tuned language model is saved in {language}. Resume with the same command (without --overwrite)"
    if is_run(output):
        saved = f"finished work is saved in {output}. Resume with the same command and --resume (without --overwrite)"
    elif is_study(output):
        saved = f"finished work is saved in {output}. Resume with the same command (without --overwrite)"
    print(f"Interrupted; {saved}.")
    sys.exit(130)


def _next_step(found: Finetuned) -> str:
    """Commands to use a run; nothing for a study, which keeps none."""
    import shlex

    from lmlab.tasks import load_task

    if found.study.kind != "run":
        return ""
    path = shlex.quote(str(found.path))
    commands = load_task(found.study.task).example_commands(pair=found.pair)
    return "   or: ".join(command.replace("{run}", path) for command in commands)
