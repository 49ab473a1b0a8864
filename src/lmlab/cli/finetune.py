"""lmlab finetune: a run learns a task from labelled examples."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from lmlab.transfer.finetune import Finetuned
    from lmlab.transfer.study import Study
    from lmlab.transfer.trials import TaskData, Trial

FINISHED = "{folder} was finished already with the same settings: nothing was trained"
HOW = (
    "full: all weights learn; frozen: only the head, over vectors computed once; mix: head and a mix of all layers; "
    "gradual: unfrozen from the top; ulmfit: the language model learns the texts first, then gradual; scratch: "
    "same model without pre-training."
)


def finetune(
    context: typer.Context,
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="The run to begin with: any network that was trained; or tagger, from scratch."
        ),
    ],
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="TSV, CSV, JSONL, fastText, CoNLL, CoNLL-U, SQuAD, or a folder."),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="The run directory to make.")] = None,
    valid: Annotated[
        str | None, typer.Option(help="Validation examples; without --test they are scored. (default: part of DATA)")
    ] = None,
    test: Annotated[
        str | None, typer.Option(help="Test examples. (default: part of DATA, or none where --valid is given)")
    ] = None,
    how: Annotated[str, typer.Option(help=HOW)] = "full",
    task: Annotated[
        str | None,
        typer.Option(help="classification, regression, choice, tagging or spans. (default: told from DATA)"),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="Which column is what, by name or number: a=review,label=stars (b: the second text)."),
    ] = None,
    leaks: Annotated[
        str, typer.Option(help="Test examples that are also in training: keep, or remove from train or test.")
    ] = "keep",
    drop_bad_labels: Annotated[
        bool, typer.Option("--drop-bad-labels", help="Leave out rows whose score is not a number.")
    ] = False,
    crf: Annotated[bool, typer.Option("--crf", help="Tagging: a conditional random field over the tags.")] = False,
    states: Annotated[
        list[Path] | None,
        typer.Option(help="tagger: a run whose frozen states stand beside the words (TagLM). Can be repeated."),
    ] = None,
    vectors: Annotated[
        Path | None, typer.Option(help="tagger: word vectors to begin with, in word2vec's or GloVe's text format.")
    ] = None,
    pool: Annotated[
        str | None, typer.Option(help="What stands for a text: cls, last, mean, max or concat. (default: by model)")
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(help="With --how frozen: last, second-to-last, sum:all, concat:-4: …; all compares six of them."),
    ] = None,
    examples: Annotated[
        str | None,
        typer.Option(help="Learning curve: train with so many examples each, e.g. 10,30,100,300,all."),
    ] = None,
    select: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=0.9,
            help="With --valid alone: fraction of DATA that chooses the checkpoint; 0: the last one. (default: 0.1)",
        ),
    ] = None,
    epochs: Annotated[
        float | None,
        typer.Option(min=0.01, help="Passes over the examples. (default: 3, of a head alone 20, of few examples more)"),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Repeat with this many random seeds; three to five are advised.")
    ] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Random seed; with --seeds, the first.")] = 0,
    alone: Annotated[bool, typer.Option("--no-controls", help="Leave out the baselines and controls.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only show what the data look like.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any setting, e.g. --set train.rate=1e-4 --set objective.dropout=0.2."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Resume what was interrupted in -o, or in RUN.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is there already.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
) -> None:
    """Fine-tune a run on labelled examples, beside baselines.

    Examples:

      lmlab finetune runs/bert reviews.tsv -o runs/stars

      lmlab finetune runs/bert eng.train --valid eng.testa -o runs/ner --crf

      lmlab finetune tagger eng.train --valid eng.testa -o runs/ner --states runs/lm

      lmlab finetune runs/bert train.json --valid dev.json -o runs/qa

      lmlab finetune runs/gpt2 snli.jsonl -o runs/nli --how frozen

      lmlab finetune runs/awd-lstm reviews.tsv -o runs/stars --how ulmfit

      lmlab finetune runs/bert reviews.tsv --examples 10,30,100,300,all --seeds 5 -o curve

      lmlab finetune --resume runs/stars

    Task, columns and split are told from the file, and said. Beside the score stand the majority class, a bag of words,
    the frozen model and the same model from scratch; together they cost about as much again.
    --no-controls leaves them out.
    """
    from lmlab.cli.scores import tell_study
    from lmlab.config import apply_settings
    from lmlab.data.corpora.example_splits import SELECTED
    from lmlab.data.readers.columns import parse_columns
    from lmlab.transfer.finetune import check_data, describe_selection, open_data
    from lmlab.transfer.from_scratch import is_body, tell_coverage
    from lmlab.transfer.planning import WAYS, read_origin
    from lmlab.transfer.trials import Trial

    if data is None:
        resume_folder(_only_folder(context, run), json_=json_)
        return
    groups = apply_settings({"train": {"device": device}, "objective": {}, "language": {}, "model": {}}, settings or [])
    if wrong := set(groups) - {"train", "objective", "language", "model"}:
        raise ValueError(f"--set {wrong.pop()}.…: of a task only train, objective, language and model can be set")
    body = is_body(run)
    if not body and (
        wrong_here := [*(f"--set model.{name}" for name in groups["model"]), *tagger_only(states, vectors)]
    ):
        raise ValueError(f"{wrong_here[0]} is for the tagger, and {run} is a run: lmlab finetune tagger DATA -o RUN")
    if groups["language"] and how != "ulmfit":
        raise ValueError("--set language.… is for the language model that --how ulmfit tunes first: add --how ulmfit")
    for group, name in (("objective", "how"), ("objective", "layers"), ("train", "seed")):
        if name in groups[group]:
            raise ValueError(f"--set {group}.{name}: give --{name} {groups[group][name]} instead")
    if how not in WAYS:
        raise ValueError(f"--how {how}: allowed are {', '.join(WAYS)}")
    if resume and overwrite:
        raise ValueError("--resume goes on with what is there and --overwrite replaces it: give one of them")
    if not body:
        read_origin(run)
    opened, found = open_data(
        data,
        valid=valid,
        test=test,
        task=task,
        columns=parse_columns(columns) if columns else None,
        select=SELECTED if select is None else select,
        leaks=leaks,
        drop_bad_labels=drop_bad_labels,
    )
    if select is not None and opened.labelled.selection is None:
        raise ValueError(
            f"--select {select:g}: it is for --valid without test examples, which are scored; leave it out"
        )
    told = check_data(run, found)
    lines = [*told.lines(), *describe_selection(opened)]
    covered = [tell_coverage(opened.labelled, vectors)] if vectors is not None else []
    if check:
        _tell_check(told, lines, json_=json_)
        for line in covered:
            print(line, file=sys.stderr)
        return
    told.require_held_out()
    if output is None:
        raise ValueError("where should the run go? give -o RUN, for instance -o runs/task (--check only looks)")
    given: dict[str, Any] = {"crf": crf or None, "pool": pool}
    given |= {
        "states": [str(each) for each in states or []] or None,
        "vectors": None if vectors is None else str(vectors),
    }
    given = {name: value for name, value in given.items() if value is not None}
    if twice := given.keys() & groups["objective"].keys():
        raise ValueError(f"--{min(twice)} and --set objective.{min(twice)} are the same setting: give one of them")
    objective = {**given, **groups["objective"]}
    if crf and opened.labelled.task != "tagging":
        raise ValueError(f"--crf is for tagging, and {data} is for {opened.labelled.task}")
    if pool and opened.labelled.task in ("tagging", "spans"):
        raise ValueError(f"--pool makes one vector of a text, and {opened.labelled.task} reads one for each word")
    if layers is not None and how != "frozen":
        raise ValueError("--layers chooses what is read of a frozen model: add --how frozen")
    if layers == "all" and examples is not None:
        raise ValueError("--layers all and --examples are two studies: give one of them")
    trial = Trial(
        origin=run,
        how=how,
        seed=seed,
        epochs=epochs,
        layers="last" if layers in (None, "all") else str(layers),
        task=objective,
        train=groups["train"],
        model=groups["model"],
        language=groups["language"],
    )
    if not json_:
        for line in (*lines, *covered):
            print(line, file=sys.stderr)
    if examples is not None or layers == "all":
        sizes = None if examples is None else _sizes(examples)
        study = run_study(
            trial, opened, output, sizes=sizes, seeds=seeds, check=lines, overwrite=overwrite, resume=resume
        )
        tell_study(study, output, json_=json_)
        return
    done = _run(trial, opened, output, seeds=seeds, alone=alone, check=lines, resume=resume, overwrite=overwrite)
    tell_study(done.study, output, json_=json_, next_step=_next_step(done))


def _only_folder(context: typer.Context, folder: Path) -> Path:
    """The folder that --resume goes on with; a ValueError names options that are settings of the folder."""
    if not context.params["resume"]:
        raise ValueError("which examples? name a file: lmlab finetune RUN DATA -o NEW")
    sources = {name: context.get_parameter_source(name) for name in context.params}
    typed = {name for name, source in sources.items() if getattr(source, "name", "") == "COMMANDLINE"}
    if wrong := sorted(typed - {"run", "resume", "json_"}):
        known = {"settings": "--set", "output": "-o"}
        options = ", ".join(known.get(name) or f"--{name.replace('_', '-')}" for name in wrong)
        raise ValueError(
            f"--resume {folder} takes all settings from the folder, so it takes no {options}; to say them again, give "
            "the whole command: lmlab finetune RUN DATA -o NEW … --resume"
        )
    return folder


def resume_folder(folder: Path, *, json_: bool) -> None:
    """Resume a study or a fine-tuned run with the settings that its folder keeps."""
    from lmlab.cli.scores import tell_study
    from lmlab.transfer.finetune import check_data, describe_selection
    from lmlab.transfer.study_settings import read_command

    command = read_command(folder)
    data, trials = command.open_data(), command.make_trials()
    check = [*check_data(trials[0].origin, data.labelled).lines(), *describe_selection(data)]
    if command.kind == "run":
        done = _run(trials[0], data, folder, check=check, seeds=command.seeds, alone=command.alone, resume=True)
        tell_study(done.study, folder, json_=json_, next_step=_next_step(done))
        return
    study = carry_out(trials, data, folder, kind=command.kind, check=check, overwrite=False, resume=True)
    tell_study(study, folder, json_=json_)


def tagger_only(states: list[Path] | None, vectors: Path | None) -> list[str]:
    """The options that were given and are for the tagger alone."""
    return ["--states"] * bool(states) + ["--vectors"] * (vectors is not None)


def _sizes(text: str) -> list[int | None]:
    """Numbers of examples, `all` as None."""
    try:
        found = [None if part.strip() == "all" else int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--examples {text}: give numbers with commas between them, or all: 10,30,100,all") from None
    if any(size is not None and size < 1 for size in found):
        raise ValueError(f"--examples {text}: each number must be 1 or more")
    return found


def _tell_check(told: Any, lines: list[str], *, json_: bool) -> None:
    if json_:
        import json

        print(json.dumps(told.as_dict(), ensure_ascii=False))
        return
    for line in lines:
        print(line)


def _run(trial: Trial, data: TaskData, output: Path, **options: Any) -> Finetuned:
    from lmlab.cli.progress import TrainingDisplay, catch_interrupts
    from lmlab.transfer.finetune import finetune_trial
    from lmlab.transfer.ulmfit import tuned_for

    interrupted = catch_interrupts()
    try:
        with TrainingDisplay(several=True) as display:
            found = finetune_trial(trial, data, output, reporter=display, interrupted=interrupted, **options)
    except KeyboardInterrupt:
        found = None
    if found is None:
        _stop(output, language=tuned_for(output) if trial.how == "ulmfit" else None)
    if not found.trained:
        print(FINISHED.format(folder=output), file=sys.stderr)
    return found


def run_study(
    trial: Trial,
    data: TaskData,
    output: Path,
    *,
    sizes: list[int | None] | None,
    seeds: int,
    check: list[str],
    overwrite: bool,
    resume: bool,
) -> Study:
    """A learning curve over numbers of examples, or a comparison of layers, in a folder of its own."""
    from lmlab.transfer.finetune import plan_curve, plan_layers

    trials = plan_layers(trial, seeds=seeds) if sizes is None else []
    if sizes is not None:
        most = len(data.labelled.train)
        if beyond := [str(size) for size in sizes if size is not None and size > most]:
            print(f"--examples {', '.join(beyond)}: there are {most:,} for training, so all are taken", file=sys.stderr)
        trials = plan_curve(trial, sizes, seeds=seeds, most=most)
    kind = "layers" if sizes is None else "curve"
    return carry_out(trials, data, output, kind=kind, check=check, overwrite=overwrite, resume=resume)


def carry_out(
    trials: list[Trial],
    data: TaskData,
    output: Path,
    *,
    kind: Any,
    check: list[str],
    overwrite: bool,
    resume: bool,
) -> Study:
    """Carry out trials with bars on the screen."""
    from lmlab.cli.progress import TrainingDisplay, catch_interrupts
    from lmlab.runs.run_files import check_not_read, check_study_place, clear_study
    from lmlab.transfer.finetune import read_study
    from lmlab.transfer.study import SCORES, carry_out_study
    from lmlab.transfer.study_settings import is_finished
    from lmlab.transfer.trials import plan

    for trial in trials:
        check_not_read(output, plan(trial, data).inputs())
    check_study_place(output)
    if (output / SCORES).is_file() and not (overwrite or resume):
        if is_finished(kind, trials, data, output):
            print(FINISHED.format(folder=output), file=sys.stderr)
            return read_study(output)
        raise ValueError(f"{output} holds a study already; go on with --resume, or replace it with --overwrite")
    if overwrite and output.exists():
        clear_study(output)
    interrupted = catch_interrupts()

    study = None
    try:
        with TrainingDisplay(several=True) as display:
            study = carry_out_study(kind, trials, data, output, check=check, reporter=display, interrupted=interrupted)
    except KeyboardInterrupt:
        pass
    if study is None:
        _stop(output)
    return study


def _stop(output: Path, *, language: Path | None = None) -> NoReturn:
    """Say what is left of the work that somebody has ended, and how to go on with it.

    `language` is the folder in which ulmfit tunes its language model, first of all.
    """
    from lmlab.runs.run_files import is_run, is_study

    said = "nothing was written yet, and the same command begins again"
    if language is not None and is_run(language):
        said = f"the tuned language model is saved in {language}. Go on with the same command (without --overwrite)"
    if is_run(output):
        said = f"what is done is saved in {output}. Go on with the same command and --resume (without --overwrite)"
    elif is_study(output):
        said = f"what is done is saved in {output}. Go on with the same command (without --overwrite)"
    print(f"Interrupted; {said}.")
    sys.exit(130)


def _next_step(found: Finetuned) -> str:
    import shlex

    from lmlab.runs.first_commands import task_commands

    path = shlex.quote(str(found.path))
    return "   or: ".join(
        command.replace("{run}", path) for command in task_commands(found.study.task, pair=found.pair)
    )
