"""Fine-tune a run on labelled examples, and put its score beside those that make it believable."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from lmlab.config import build
from lmlab.data import make_config
from lmlab.data.corpora.checking import Check, check
from lmlab.data.corpora.example_splits import FEWEST_TO_SELECT, SELECTED
from lmlab.data.corpora.examples import ExamplesConfig, read
from lmlab.data.readers.examples import Labelled
from lmlab.data.readers.text import is_pipe
from lmlab.runs.checkpoint import load_tokenizer
from lmlab.runs.jobs import Reporter, Silent
from lmlab.runs.run_files import BESIDE, check_not_read, check_place, is_run
from lmlab.runs.storage import read_json
from lmlab.training.budget import check_epochs
from lmlab.transfer.from_scratch import is_body
from lmlab.transfer.planning import WAYS, metrics_of, read_origin, usual_epochs
from lmlab.transfer.results import Result
from lmlab.transfer.study import DECK_LAYERS, SCORES, Study, describe, keep_baselines, measure_baselines
from lmlab.transfer.study_settings import SavesCommand, make_command
from lmlab.transfer.trials import (
    PREDICTIONS,
    TaskData,
    Trial,
    carry_out,
    carry_out_all,
    find_changes,
    plan,
    plan_language,
)
from lmlab.transfer.ulmfit import check_tuned, tuned_for

FORWARD = 1 / 3
"""What reading an example costs, of learning from it: the backward pass takes twice as long as the forward pass."""


SHARED_TRAIN = ("batch", "window", "device", "precision", "evaluation_tokens", "save_seconds", "country")
"""Settings of training that what stands beside a run has from it; its rate would not suit them."""
UNSHARED_TASK = ("pool", "activation", "auxiliary")
"""Settings of the task that are for a model that learns, not for a frozen one."""


class Finetuned(NamedTuple):
    """What fine-tuning came to."""

    path: Path
    study: Study
    pair: bool  # whether an example is two texts
    trained: bool = True  # whether anything was done; else it was finished before


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
) -> tuple[TaskData, Labelled]:
    """Read labelled examples and split them; and the same to be looked at.

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
    labelled, found = read(config)
    return TaskData(config=config, labelled=labelled), found


def describe_selection(data: TaskData) -> list[str]:
    """In a line, what chooses the checkpoint where the validation examples are only scored; else nothing."""
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


def check_data(run: Path, found: Labelled) -> Check:
    """What examples look like, as they came, to the tokenizer and the window of a run."""
    if is_body(run):
        return check(found)  # it reads the letters of words, so that none is unknown
    window = read_origin(run)["model"].get("window")
    return check(found, tokenizer=load_tokenizer(run), frame_overhead=3, window=window)


def beside(trial: Trial, data: TaskData, *, seeds: int) -> list[Trial]:
    """What a way of learning is compared with: the model frozen, and the same net without pre-training.

    Together they cost at most about as much as the run itself, so the net from scratch learns for a little less long.
    """
    if trial.how in ("frozen", "scratch") or is_body(trial.origin):
        return []
    examples = len(data.labelled.train)
    steps = math.ceil(examples / int(trial.train.get("batch", min(32, max(1, examples)))))
    epochs = trial.epochs or usual_epochs(trial.how, steps)
    task = {name: value for name, value in trial.task.items() if name not in UNSHARED_TASK}
    train = {name: value for name, value in trial.train.items() if name in SHARED_TRAIN}
    mixed = trial.epochs if trial.how == "mix" else None  # as many epochs as what it is compared with
    frozen = Trial(origin=trial.origin, how="frozen", epochs=mixed, task=task, train=train)
    share = max(0.2, 1 - FORWARD / epochs)
    if "budget" in trial.train:
        train, share = {**train, "budget": trial.train["budget"]}, 1.0
    note = f"{share:.0%} of the steps" if share < 1 else ""
    scratch = replace(frozen, how="scratch", task=trial.task, train=train, epochs=share * epochs, note=note)
    hows = [frozen, scratch] if trial.how in ("full", "gradual", "ulmfit") else [frozen]
    return [replace(each, seed=seed) for seed in range(trial.seed, trial.seed + seeds) for each in hows]


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
    how: str = "full",
    seeds: int = 1,
    seed: int = 0,
    epochs: float | None = None,
    select: float = SELECTED,
    alone: bool = False,
    settings: Mapping[str, Any] | None = None,
    train: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    language: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    resume: bool = False,
) -> Finetuned:
    """Let a run, or a body (`tagger`), learn the task of labelled examples, in the new run directory `output`.

    `settings` are further ones of the task (crf, pool …; layers: what is read of a frozen model), `train` of training
    (rate, batch …), `model` of a body, `language` of training the language model which how='ulmfit' tunes first.
    `seeds` runs are made,
    of which the first is kept. Unless it is to be done `alone`, the run is compared with the majority class, a bag of
    words, the frozen model and the same net from scratch. With `valid` and no `test`, a fraction `select` of the
    training examples is held out to choose the checkpoint, so that `valid` is only scored.

    A file of `valid` or `test` is scored whole; with leaks='train', training examples that occur in it are removed,
    with leaks='test' its own. `drop_bad_labels` leaves out rows whose score is not a number.
    """
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise ValueError(f"seeds = {seeds!r}: give a whole number of 1 or more")
    check_epochs(epochs)
    if columns is not None and not isinstance(columns, Mapping):
        raise ValueError(f"columns = {columns!r}: give a table, for instance {{'a': 'review', 'label': 'stars'}}")
    for name, value in (("run", run), ("examples", examples), ("output", output)):
        if not isinstance(value, (str, Path)):
            raise ValueError(f"{name} = {value!r}: give a path as a str or a Path")
    data, found = open_data(
        examples,
        valid=valid,
        test=test,
        task=task,
        columns=columns,
        select=select,
        leaks=leaks,
        drop_bad_labels=drop_bad_labels,
    )
    told = check_data(Path(run), found)
    told.require_held_out()
    further, training = dict(settings or {}), dict(train or {})
    for table, group, name in ((further, "settings", "how"), (training, "train", "seed")):
        if name in table:
            raise ValueError(f"{group} = {{{name!r}: {table[name]!r}}}: give {name}={table[name]!r} instead")
    if "layers" in further and how != "frozen":
        raise ValueError("settings['layers'] chooses what is read of a frozen model: give how='frozen' too")
    layers = str(further.pop("layers", "last"))
    trial = Trial(
        origin=Path(run),
        how=how,
        seed=seed,
        layers=layers,
        epochs=epochs,
        task=further,
        train=training,
        model=dict(model or {}),
        language=dict(language or {}),
    )
    done = finetune_trial(
        trial,
        data,
        Path(output),
        seeds=seeds,
        alone=alone,
        check=[*told.lines(), *describe_selection(data)],
        overwrite=overwrite,
        resume=resume,
    )
    assert done is not None, "nobody interrupts"
    return done


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
    told: Callable[[Result], None] = lambda result: None,
) -> Finetuned | None:
    """As `finetune`, with the data read already; None where it was interrupted."""
    first = plan(trial, data)
    check_not_read(path, first.inputs())
    if not (overwrite or resume) and (finished := find_finished(trial, data, path, seeds=seeds, alone=alone)):
        return finished
    if resume and not path.exists():
        raise ValueError(f"{path} does not exist, so there is nothing to resume; leave --resume out to begin it")
    check_place(path, overwrite=overwrite or resume, go_on="--resume")
    if resume:
        check_seeds(path, trial, seeds=seeds)
    if trial.how == "ulmfit":
        check_tuned(tuned_for(path), plan_language(trial, data), overwrite=overwrite, owner=path)
    others = [replace(trial, seed=number) for number in range(trial.seed + 1, trial.seed + seeds)]
    others += [] if alone else beside(trial, data, seeds=seeds)
    for each in others:
        plan(each, data)
    metrics, baselines = metrics_of(first.objective), []
    for baseline in () if alone else measure_baselines(data, metrics, seeds=(trial.seed,)):
        baselines.append(baseline)
        told(baseline.result)
        if interrupted():
            return None
    command = make_command("run", [trial], data, seeds=seeds, alone=alone)
    saving = SavesCommand(reporter or Silent(), path, command)
    main = carry_out(trial, data, path, reporter=saving, interrupted=interrupted, overwrite=overwrite)
    if main is None:
        return None
    told(main)
    kept = [*keep_baselines(baselines, data, path / BESIDE), (main, path / PREDICTIONS)]
    done = 0
    for other, result in carry_out_all(others, data, path / BESIDE, reporter=reporter, interrupted=interrupted):
        told(result)
        kept.append((result, path / BESIDE / other.name / PREDICTIONS))
        done += 1
    study = describe("run", data, kept, metrics, check=check)
    study.write(path)
    return Finetuned(path, study, data.labelled.train[0].b is not None) if done == len(others) else None


def find_finished(trial: Trial, data: TaskData, path: Path, *, seeds: int, alone: bool) -> Finetuned | None:
    """What a folder holds already of this very command; None where that is not finished, or there is no run.

    A ValueError names the settings that differ.
    """
    if not is_run(path) or not (path / SCORES).is_file():
        return None
    study = read_study(path)
    own = replace(trial, origin=tuned_for(path)) if trial.how == "ulmfit" and is_run(tuned_for(path)) else trial
    changed = find_changes(path, plan(own, data), data.taken(trial))
    others = [replace(trial, seed=number) for number in range(trial.seed, trial.seed + seeds)]
    others += [] if alone else beside(trial, data, seeds=seeds)
    planned = {(each.how, each.seed) for each in others}
    done = {(each.how, each.seed) for each in study.results if each.run is not None}
    compared = any(each.how == "baseline" for each in study.results)
    if not changed and compared == alone:
        changed = ["--no-controls"]
    if not changed and done - planned:
        changed = ["seeds"]
    if changed:
        raise ValueError(
            f"{path} holds a run with other settings ({', '.join(changed)}): go on with it as it was "
            f"(lmlab finetune --resume {path}), replace it with --overwrite, or choose another -o"
        )
    pair = data.labelled.train[0].b is not None
    return Finetuned(path, study, pair, trained=False) if planned == done else None


def read_study(folder: Path) -> Study:
    """The scores that a study or a fine-tuned run has come to."""
    return build(Study, read_json(folder / SCORES), where=str(folder / SCORES))


def check_seeds(path: Path, trial: Trial, *, seeds: int) -> None:
    """A ValueError where seeds of a run that is gone on with would be left out of its scores."""
    if not (path / SCORES).is_file():
        return
    told = [each for each in read_json(path / SCORES).get("results", ()) if each.get("how") == trial.how]
    if {each["seed"] for each in told} - set(range(trial.seed, trial.seed + seeds)):
        raise ValueError(
            f"{path} was begun with other settings (seeds): go on with the same ones, or replace it with --overwrite"
        )


def plan_curve(trial: Trial, sizes: Sequence[int | None], *, seeds: int, most: int) -> list[Trial]:
    """A trial for each number of examples and each seed; None stands for all examples, of which there are `most`."""
    taken = dict.fromkeys(None if size is None or size >= most else size for size in sizes)
    return [replace(trial, take=size, seed=seed) for size in taken for seed in range(trial.seed, trial.seed + seeds)]


def plan_layers(trial: Trial, *, seeds: int) -> list[Trial]:
    """A trial for each of the choices of layers that BERT's authors compare.

    Where a model has fewer than four, all of them take the place of the last four.
    """
    count = read_origin(trial.origin)["model"].get("layers")
    few = isinstance(count, int) and count + 1 < 4  # with the embeddings
    choices = dict.fromkeys(each.replace("-4:", "all") if few else each for each in DECK_LAYERS)
    return [
        replace(trial, how="frozen", layers=layers, seed=seed)
        for layers in choices
        for seed in range(trial.seed, trial.seed + seeds)
    ]


def plan_comparison(runs: Sequence[Path], hows: Sequence[str], *, seeds: int, trial: Trial) -> list[Trial]:
    """A trial for each run, each way of learning and each seed."""
    for how in hows:
        if how not in WAYS:
            raise ValueError(f"--how {how}: allowed are {', '.join(WAYS)}, separated by commas")
    for run in runs:
        read_origin(run)
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        raise ValueError(f"--runs: two runs have the same name among {', '.join(names)}; rename a folder")
    return [
        replace(trial, origin=run, how=how, seed=seed)
        for run in runs
        for how in hows
        for seed in range(trial.seed, trial.seed + seeds)
    ]
