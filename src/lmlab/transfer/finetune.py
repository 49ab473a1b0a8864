"""Fine-tune a run on labelled examples, with the baselines and controls that its score is compared with.

Python users and the command line call `finetune`, `resume_finetuning` and `compare_runs`. The examples are read once,
and each trial is planned once, before anything is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from lmlab.data import make_config
from lmlab.data.corpora.checking import Check, check
from lmlab.data.corpora.example_splits import FEWEST_TO_SELECT, SELECTED
from lmlab.data.corpora.examples import ExamplesConfig, read
from lmlab.data.readers.text import is_pipe
from lmlab.messages import suggest_keywords
from lmlab.models import find
from lmlab.runs.jobs import Reporter, Silent
from lmlab.runs.model_files import load_tokenizer
from lmlab.runs.run_files import (
    CONTROLS,
    OLD_CONTROLS,
    check_not_read,
    check_place,
    check_study_place,
    clear_study,
    is_run,
)
from lmlab.training.budget import check_epochs
from lmlab.transfer.from_scratch import format_coverage, is_architecture
from lmlab.transfer.planning import check_method, metrics_of, read_origin, usual_epochs
from lmlab.transfer.results import Result
from lmlab.transfer.study import (
    DECK_LAYERS,
    SCORES,
    Study,
    make_study,
    read_study,
    run_study,
    save_baselines,
    score_baselines,
)
from lmlab.transfer.study_settings import Kind, SavesCommand, is_finished, make_command, read_command
from lmlab.transfer.trials import (
    PREDICTIONS,
    PlannedTrial,
    TaskData,
    Trial,
    from_tuned,
    plan_trial,
    run_trial,
    run_trials,
)
from lmlab.transfer.ulmfit import check_tuned, language_model_folder

FORWARD = 1 / 3
"""The cost of a forward pass as a fraction of a training step: the backward pass takes twice as long."""
SHARED_TRAIN = ("batch", "window", "device", "precision", "evaluation_tokens", "save_seconds", "country")
"""Settings of training that controls share with the run; its learning rate would not suit them."""
UNSHARED_TASK = ("pool", "activation", "auxiliary")
"""Settings of the task that suit a model that learns, not a frozen one."""

Notify = Callable[[str], None]
Found = TypeVar("Found")


class Finetuned(NamedTuple):
    """The result of fine-tuning: a run directory, or the folder of a study, and its scores."""

    path: Path
    study: Study
    pair: bool  # whether an example is two texts
    trained: bool = True  # False where all was finished before


@suggest_keywords
def finetune(
    run: str | Path,
    examples: str | Path,
    *,
    output: str | Path,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    task: str | None = None,
    columns: Mapping[str, str] | None = None,
    leaks: str = "keep",
    drop_bad_labels: bool = False,
    select: float | None = None,
    how: str = "full",
    layers: str | None = None,
    sizes: Sequence[int | None] | None = None,
    seeds: int = 1,
    seed: int = 0,
    epochs: float | None = None,
    alone: bool = False,
    crf: bool = False,
    pool: str | None = None,
    states: Sequence[str | Path] = (),
    vectors: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    train: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    language: Mapping[str, Any] | None = None,
    device: str | None = None,
    overwrite: bool = False,
    resume: bool = False,
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    notify: Notify = lambda line: None,
) -> Finetuned:
    """Fine-tune a run, or train an architecture (`tagger`) from scratch, on labelled examples, in the folder `output`.

    `how` is the method: full, frozen, mix, gradual, ulmfit or scratch. `seeds` runs are made; the first is kept. Unless
    it is done `alone`, the run is compared with baselines, the frozen model and the same model from scratch. `sizes`
    makes a learning curve instead: numbers of training examples, None for all. `layers` chooses the layers of a frozen
    model that are read; `layers="all"` compares six choices.

    Files of `valid` and `test` are scored whole; with leaks='train', training examples that occur in them are removed,
    with leaks='test' their own. With `valid` and no `test`, a fraction `select` of the training examples (default 0.1)
    chooses the checkpoint. `drop_bad_labels` leaves out rows whose score is not a number.

    `crf`, `states` and `vectors` are for tagging, `pool` for tasks over whole texts. Further settings: `settings` of
    the task, `train` of training (rate, batch …), `model` of a model from scratch, `language` of the language model
    that how='ulmfit' tunes first. `notify` gets a line for each finding about the data.
    """
    _check_arguments(run, examples, output, columns=columns, seeds=seeds, epochs=epochs)
    options = {"crf": crf or None, "pool": pool, "states": [str(each) for each in states] or None}
    options["vectors"] = None if vectors is None else str(vectors)
    given = {name: value for name, value in options.items() if value is not None}
    further, training = dict(settings or {}), dict(train or {})
    for table, group, name, use in ((further, "settings", "method", "how"), (training, "train", "seed", "seed")):
        if name in table or use in table:
            value = table.get(name, table.get(use))
            raise ValueError(f"{group} = {{{use!r}: {value!r}}}: give {use}={value!r} instead")
    if "layers" in further:
        layers = str(further.pop("layers"))
    if twice := given.keys() & further.keys():
        raise ValueError(f"--{min(twice)} and --set objective.{min(twice)} are the same setting: give one of them")
    if device is not None:
        training = {"device": device, **training}
    trial = Trial(
        origin=Path(run),
        method=how,
        seed=seed,
        layers="last" if layers in (None, "all") else str(layers),
        epochs=epochs,
        task={**given, **further},
        train=training,
        model=dict(model or {}),
        language=dict(language or {}),
    )
    check_trial(trial)
    task = task or usual_task(trial.origin)
    if resume and overwrite:
        raise ValueError("--resume continues what is there and --overwrite replaces it: give one of them")
    data = open_data(
        examples,
        valid=valid,
        test=test,
        task=task,
        columns=columns,
        select=SELECTED if select is None else select,
        leaks=leaks,
        drop_bad_labels=drop_bad_labels,
    )
    if select is not None:
        check_select(data, select)
    checked = check_data(trial.origin, data)
    checked.require_held_out()
    lines = [*checked.lines(), *describe_selection(data)]
    for line in (*lines, *([] if vectors is None else [format_coverage(data.labelled, vectors)])):
        notify(line)
    _check_fits(data, crf=crf, pool=pool)
    if layers is not None and how != "frozen":
        raise ValueError("--layers chooses what is read of a frozen model: add --how frozen (how='frozen')")
    if layers == "all" and sizes is not None:
        raise ValueError("--layers all and --examples are two studies: give one of them")
    path = Path(output)
    if sizes is None and layers != "all":
        done = finetune_trial(
            trial,
            data,
            path,
            seeds=seeds,
            alone=alone,
            check=lines,
            overwrite=overwrite,
            resume=resume,
            reporter=reporter,
            interrupted=interrupted,
        )
        return _unless_interrupted(done)
    if sizes is None:
        trials = plan_layers(trial, seeds=seeds)
    else:
        most = len(data.labelled.train)
        if beyond := [str(size) for size in sizes if size is not None and size > most]:
            notify(f"--examples {', '.join(beyond)}: there are {most:,} for training, so all are used")
        trials = plan_curve(trial, sizes, seeds=seeds, most=most)
    found = study_trials(
        "layers" if sizes is None else "curve",
        trials,
        data,
        path,
        check=lines,
        overwrite=overwrite,
        resume=resume,
        reporter=reporter,
        interrupted=interrupted,
    )
    return _unless_interrupted(found)


def resume_finetuning(
    folder: str | Path, *, reporter: Reporter | None = None, interrupted: Callable[[], bool] = lambda: False
) -> Finetuned:
    """Resume a study or a fine-tuned run with the settings in its folder."""
    path = Path(folder)
    command = read_command(path)
    data, trials = command.open_data(), command.make_trials()
    lines = [*check_data(trials[0].origin, data).lines(), *describe_selection(data)]
    if command.kind == "run":
        done = finetune_trial(
            trials[0],
            data,
            path,
            seeds=command.seeds,
            alone=command.alone,
            check=lines,
            resume=True,
            reporter=reporter,
            interrupted=interrupted,
        )
        return _unless_interrupted(done)
    found = study_trials(
        command.kind, trials, data, path, check=lines, resume=True, reporter=reporter, interrupted=interrupted
    )
    return _unless_interrupted(found)


def compare_runs(
    runs: Sequence[str | Path],
    examples: str | Path,
    *,
    output: str | Path,
    how: Sequence[str] = ("full",),
    valid: str | Path | None = None,
    test: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    leaks: str | None = None,
    drop_bad_labels: bool | None = None,
    seeds: int = 1,
    seed: int = 0,
    epochs: float | None = None,
    train: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    resume: bool = False,
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    notify: Notify = lambda line: None,
) -> Finetuned:
    """Fine-tune several runs on the same examples by each of the methods `how`, and compare them in one study."""
    paths = [Path(each) for each in runs]
    first = Trial(origin=paths[0], seed=seed, epochs=epochs, train=train or {})
    trials = plan_comparison(paths, how, seeds=seeds, trial=first)
    data = open_data(
        examples,
        valid=valid,
        test=test,
        task=usual_task(paths[0]),
        columns=columns,
        leaks=leaks,
        drop_bad_labels=drop_bad_labels,
    )
    checked = check_data(paths[0], data)
    checked.require_held_out()
    lines = [*checked.lines(), *describe_selection(data)]
    for line in lines:
        notify(line)
    found = study_trials(
        "comparison",
        trials,
        data,
        Path(output),
        check=lines,
        overwrite=overwrite,
        resume=resume,
        reporter=reporter,
        interrupted=interrupted,
    )
    return _unless_interrupted(found)


def usual_task(run: Path) -> str | None:
    """The task that a run is made for, whatever the file; None where the file says it."""
    if is_architecture(run):
        return None
    return "picture_texts" if "words and regions" in find(read_origin(run)["kind"]).does else None


def _unless_interrupted(found: Found | None) -> Found:
    if found is None:
        raise KeyboardInterrupt
    return found


def _check_arguments(run: Any, examples: Any, output: Any, *, columns: Any, seeds: Any, epochs: float | None) -> None:
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise ValueError(f"seeds = {seeds!r}: give a whole number of 1 or more")
    check_epochs(epochs)
    if columns is not None and not isinstance(columns, Mapping):
        raise ValueError(f"columns = {columns!r}: give a table, for instance {{'a': 'review', 'label': 'stars'}}")
    for name, value in (("run", run), ("examples", examples), ("output", output)):
        if not isinstance(value, (str, Path)):
            raise ValueError(f"{name} = {value!r}: give a path as a str or a Path")


def check_trial(trial: Trial) -> None:
    """A ValueError where a trial has settings that its run or its method does not use."""
    check_method(trial.method)
    if trial.language and trial.method != "ulmfit":
        raise ValueError("--set language.… is for the language model that --how ulmfit tunes first: add --how ulmfit")
    if is_architecture(trial.origin):
        return
    only = [f"--set model.{name}" for name in trial.model]
    only += [f"--{name}" for name in ("states", "vectors") if name in trial.task]
    if only:
        raise ValueError(f"{only[0]} is for the tagger, and {trial.origin} is a run: lmlab finetune tagger DATA -o RUN")
    read_origin(trial.origin)


def _check_fits(data: TaskData, *, crf: bool, pool: str | None) -> None:
    """A ValueError where an option is for another task."""
    fields, named = data.task.Config.model_fields, ", ".join(data.config.named)
    if crf and "crf" not in fields:
        raise ValueError(f"--crf is for tagging, and {named} is for {data.task.name}")
    if pool and not data.task.pooled:
        raise ValueError(f"--pool makes one vector of a text, and {data.task.name} reads one for each word")


def open_data(
    examples: str | Path,
    *,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    task: str | None = None,
    columns: Mapping[str, str] | None = None,
    split: Sequence[float] | None = None,
    select: float = SELECTED,
    leaks: str | None = None,
    drop_bad_labels: bool | None = None,
) -> TaskData:
    """Read labelled examples and split them.

    With `valid` and no `test`, a fraction `select` of the training examples chooses the checkpoint.
    """
    given: dict[str, Any] = {"valid": valid, "test": test, "task": task, "split": split}
    given["columns"] = dict(columns or {}) or None
    given |= {"leaks": leaks, "drop_bad_labels": drop_bad_labels}
    for path in (examples, valid, test):
        if path is not None and is_pipe(path):
            raise ValueError(f"{path}: examples are read more than once; save them to a file, and give the file")
    values: dict[str, Any] = {"kind": "examples", "examples": [str(examples)], "select": select}
    for name, value in given.items():
        if value is not None:
            values[name] = [str(value)] if name in ("valid", "test") else value
    config = make_config(values)
    assert isinstance(config, ExamplesConfig)
    return TaskData(config=config, labelled=read(config)[0])


def check_select(data: TaskData, select: float) -> None:
    """A ValueError where `select` has no effect."""
    if data.labelled.selection is None:
        raise ValueError(
            f"--select {select:g}: it is for --valid without test examples, which are scored; leave it out"
        )


def check_data(run: Path, data: TaskData) -> Check:
    """Sizes, labels, leaks and lengths of examples, for the tokenizer and the window of a run."""
    task, found = data.task, data.labelled
    about: dict[str, Any] = {"labels": task.summarise_labels(found), "if_too_long": task.wording.too_long}
    if is_architecture(run):
        return check(found, **about)  # it reads the letters of words, so no word is unknown
    window = read_origin(run)["model"].get("window")
    return check(found, tokenizer=load_tokenizer(run), frame_overhead=3, window=window, **about)


def describe_selection(data: TaskData) -> list[str]:
    """A line on which examples choose the checkpoint, where those of validation are only scored; otherwise nothing."""
    labelled = data.labelled
    if labelled.selection is None:
        return []
    if chosen := len(labelled.selection):
        total = chosen + len(labelled.train)
        return [
            f"selection: {chosen:,} of the {total:,} training examples are held out and choose the checkpoint; valid "
            "is only scored"
        ]
    why = f"fewer than {FEWEST_TO_SELECT} different training texts" if data.config.select else "--select 0"
    return [f"selection: none ({why}), the last checkpoint is kept; valid is only scored"]


def plan_controls(trial: Trial, data: TaskData, *, seeds: int) -> list[Trial]:
    """The trials that a run is compared with: the frozen model, and the same model without pre-training.

    Together they cost at most about as much as the run, so the model from scratch learns for a little less long.
    """
    if trial.method in ("frozen", "scratch") or is_architecture(trial.origin):
        return []
    examples = len(data.labelled.train)
    steps = math.ceil(examples / int(trial.train.get("batch", min(32, max(1, examples)))))
    epochs = trial.epochs or usual_epochs(trial.method, steps)
    task = {name: value for name, value in trial.task.items() if name not in UNSHARED_TASK}
    train = {name: value for name, value in trial.train.items() if name in SHARED_TRAIN}
    same = trial.epochs if trial.method == "mix" else None  # as many epochs as the mix that it is compared with
    frozen = Trial(origin=trial.origin, method="frozen", epochs=same, task=task, train=train)
    fraction = max(0.2, 1 - FORWARD / epochs)
    if "budget" in trial.train:
        train, fraction = {**train, "budget": trial.train["budget"]}, 1.0
    note = f"{fraction:.0%} of the steps" if fraction < 1 else ""
    scratch = replace(frozen, method="scratch", task=trial.task, train=train, epochs=fraction * epochs, note=note)
    controls = [frozen, scratch] if trial.method in ("full", "gradual", "ulmfit") else [frozen]
    return [replace(each, seed=seed) for seed in range(trial.seed, trial.seed + seeds) for each in controls]


def finetune_trial(
    trial: Trial,
    data: TaskData,
    path: Path,
    *,
    seeds: int = 1,
    alone: bool = False,
    check: Sequence[str] = (),
    overwrite: bool = False,
    resume: bool = False,
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Finetuned | None:
    """Fine-tune with the data read already, in the folder `path`; None where it was interrupted."""
    first = plan_trial(trial, data)
    check_not_read(path, first.recipe.inputs())
    further = [replace(trial, seed=number) for number in range(trial.seed + 1, trial.seed + seeds)]
    further += [] if alone else plan_controls(trial, data, seeds=seeds)
    if not (overwrite or resume) and (finished := find_finished(first, further, path, alone=alone)):
        return finished
    if resume and not path.exists():
        raise ValueError(f"{path} does not exist, so there is nothing to resume; leave --resume out to start it")
    check_place(path, overwrite=overwrite or resume, go_on="--resume")
    if resume:
        check_seeds(path, trial, seeds=seeds)
    if first.language is not None:
        check_tuned(language_model_folder(path), first.language, overwrite=overwrite, owner=path)
    others = [plan_trial(each, data) for each in further]
    metrics, baselines = metrics_of(first.recipe.objective), []
    for baseline in () if alone else score_baselines(data, metrics, seeds=(trial.seed,)):
        baselines.append(baseline)
        if interrupted():
            return None
    command = make_command("run", [trial], data, seeds=seeds, alone=alone)
    saving = SavesCommand(reporter or Silent(), path, command)
    main = run_trial(first, path, reporter=saving, interrupted=interrupted, overwrite=overwrite)
    if main is None:
        return None
    controls = controls_folder(path)
    saved = [*save_baselines(baselines, data, controls), (main, path / PREDICTIONS)]
    done: list[tuple[Trial, Result]] = []
    for each, result in run_trials(others, controls, reporter=reporter, interrupted=interrupted):
        done.append((each, result))
        saved.append((result, controls / each.name / PREDICTIONS))
    study = make_study("run", data, saved, metrics, check=check)
    study.write(path)
    return Finetuned(path, study, data.is_pair) if len(done) == len(others) else None


def controls_folder(run: Path) -> Path:
    """The folder of a run with its controls and baselines; in runs of older versions it has another name."""
    old = run / OLD_CONTROLS
    return old if old.is_dir() and not (run / CONTROLS).exists() else run / CONTROLS


def find_finished(first: PlannedTrial, further: Sequence[Trial], path: Path, *, alone: bool) -> Finetuned | None:
    """The result of this command, where a folder has it already; None where it is not finished, or there is no run.

    A ValueError names the settings that differ.
    """
    if not is_run(path) or not (path / SCORES).is_file():
        return None
    study, tuned = read_study(path), language_model_folder(path)
    own = from_tuned(first, tuned) if first.language is not None and is_run(tuned) else first
    changed = own.find_changes(path)
    planned = {(each.method, each.seed) for each in (first.trial, *further)}
    done = {(each.method, each.seed) for each in study.results if each.run is not None}
    compared = any(each.method == "baseline" for each in study.results)
    if not changed and compared == alone:
        changed = ["--no-controls"]
    if not changed and done - planned:
        changed = ["seeds"]
    if changed:
        raise ValueError(
            f"{path} holds a run with other settings ({', '.join(changed)}): resume it as it was "
            f"(lmlab finetune --resume {path}), replace it with --overwrite, or choose another -o"
        )
    return Finetuned(path, study, first.data.is_pair, trained=False) if planned == done else None


def check_seeds(path: Path, trial: Trial, *, seeds: int) -> None:
    """A ValueError where a resumed run has scores of seeds that would be left out."""
    if not (path / SCORES).is_file():
        return
    results = [each for each in read_study(path).results if each.method == trial.method]
    if {each.seed for each in results} - set(range(trial.seed, trial.seed + seeds)):
        raise ValueError(
            f"{path} was started with other settings (seeds): resume with the same ones, or replace it with --overwrite"
        )


def study_trials(
    kind: Kind,
    trials: Sequence[Trial],
    data: TaskData,
    folder: Path,
    *,
    check: Sequence[str] = (),
    overwrite: bool = False,
    resume: bool = False,
    reporter: Reporter | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Finetuned | None:
    """Run trials as a study in a folder, unless it is finished there already; None where it was interrupted."""
    planned = [plan_trial(trial, data) for trial in trials]
    for each in planned:
        check_not_read(folder, each.recipe.inputs())
    check_study_place(folder)
    if (folder / SCORES).is_file() and not (overwrite or resume):
        if is_finished(kind, planned, data, folder):
            return Finetuned(folder, read_study(folder), data.is_pair, trained=False)
        raise ValueError(f"{folder} holds a study already; continue it with --resume, or replace it with --overwrite")
    if overwrite and folder.exists():
        clear_study(folder)
    study = run_study(kind, planned, data, folder, check=check, reporter=reporter, interrupted=interrupted)
    return None if study is None else Finetuned(folder, study, data.is_pair)


def plan_curve(trial: Trial, sizes: Sequence[int | None], *, seeds: int, most: int) -> list[Trial]:
    """A trial for each number of examples and each seed; None is all examples, of which there are `most`."""
    limits = dict.fromkeys(None if size is None or size >= most else size for size in sizes)
    return [replace(trial, limit=size, seed=seed) for size in limits for seed in range(trial.seed, trial.seed + seeds)]


def plan_layers(trial: Trial, *, seeds: int) -> list[Trial]:
    """A trial for each of the choices of layers that BERT's authors compare.

    Where a model has fewer than four layers, all of them replace the last four.
    """
    count = read_origin(trial.origin)["model"].get("layers")
    few = isinstance(count, int) and count + 1 < 4  # with the embeddings
    choices = dict.fromkeys(each.replace("-4:", "all") if few else each for each in DECK_LAYERS)
    return [
        replace(trial, method="frozen", layers=layers, seed=seed)
        for layers in choices
        for seed in range(trial.seed, trial.seed + seeds)
    ]


def plan_comparison(runs: Sequence[Path], methods: Sequence[str], *, seeds: int, trial: Trial) -> list[Trial]:
    """A trial for each run, each method and each seed."""
    for method in methods:
        check_method(method)
    for run in runs:
        read_origin(run)
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        raise ValueError(f"--runs: two runs have the same name among {', '.join(names)}; rename a folder")
    return [
        replace(trial, origin=run, method=method, seed=seed)
        for run in runs
        for method in methods
        for seed in range(trial.seed, trial.seed + seeds)
    ]
