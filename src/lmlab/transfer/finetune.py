"""Fine-tune a run on labelled examples, with the baselines and controls that its score is compared with.

Python users and the command line call `finetune`, `resume_finetuning` and `compare_runs`. The examples are read once,
and each trial is planned once, before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lmlab.data.corpora.example_splits import SELECTED
from lmlab.messages import suggest_keywords
from lmlab.runs.jobs import Reporter
from lmlab.training.budget import check_epochs, parse_budget
from lmlab.transfer.folder import Execution, Finetuned, finetune_trial, study_trials
from lmlab.transfer.from_scratch import format_coverage, is_architecture
from lmlab.transfer.recipe import check_method, read_origin
from lmlab.transfer.study_plans import plan_comparison, plan_curve, plan_layers
from lmlab.transfer.study_settings import read_command
from lmlab.transfer.task_data import TaskData, check_data, check_select, describe_selection, open_data
from lmlab.transfer.trials import Trial

Notify = Callable[[str], None]


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
    budget: str | None = None,
    controls: bool = True,
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

    `how` is the method: full, frozen, mix, gradual, ulmfit or scratch. `seeds` runs are made; the first is kept. With
    `controls`, the run is compared with baselines, the frozen model and the same model from scratch. `sizes` makes a
    learning curve instead: numbers of training examples, None for all. `layers` chooses the layers of a frozen
    model that are read; `layers="all"` compares six choices.

    Training lasts `epochs` passes over the examples (3 by default; frozen: 20), or as long as a `budget` such as
    200steps, 60s or 1e12flops allows; the model from scratch gets the same budget.

    Files of `valid` and `test` are scored whole; with leaks='train', training examples that occur in them are removed,
    with leaks='test' their own. With `valid` and no `test`, a fraction `select` of the training examples (default 0.1)
    chooses the checkpoint. `drop_bad_labels` leaves out rows whose score is not a number.

    `crf`, `states` and `vectors` are for tagging, `pool` for tasks over whole texts. Further settings: `settings` of
    the task, `train` of training (rate, batch …), `model` of a model from scratch, `language` of the language model
    that how='ulmfit' tunes first. `notify` gets a line for each finding about the data.
    """
    _check_arguments(run, examples, output, columns=columns, seeds=seeds, epochs=epochs)
    if resume and overwrite:
        raise ValueError("--resume continues what is there and --overwrite replaces it: give one of them")
    options = {"crf": crf or None, "pool": pool, "states": [str(each) for each in states] or None}
    options["vectors"] = None if vectors is None else str(vectors)
    further = dict(settings or {})
    layers = str(further.pop("layers")) if "layers" in further else layers
    trial = Trial(
        origin=Path(run),
        method=how,
        seed=seed,
        layers="last" if layers in (None, "all") else str(layers),
        epochs=epochs,
        task=_merge_settings({name: value for name, value in options.items() if value is not None}, further),
        train=_merge_training(dict(train or {}), budget=budget, epochs=epochs, device=device),
        model=dict(model or {}),
        language=dict(language or {}),
    )
    check_trial(trial)
    data = open_data(
        examples,
        valid=valid,
        test=test,
        task=task,
        columns=columns,
        select=SELECTED if select is None else select,
        leaks=leaks,
        drop_bad_labels=drop_bad_labels,
        run=trial.origin,
    )
    if select is not None:
        check_select(data, select)
    lines = _check_data(trial.origin, data, vectors=vectors, notify=notify)
    _check_fits(data, crf=crf, pool=pool)
    if layers is not None and how != "frozen":
        raise ValueError("--layers chooses what is read of a frozen model: add --how frozen (how='frozen')")
    if layers == "all" and sizes is not None:
        raise ValueError("--layers all and --examples are two studies: give one of them")
    execution = Execution(overwrite=overwrite, resume=resume, reporter=reporter, interrupted=interrupted)
    path = Path(output)
    if layers == "all":
        trials = plan_layers(trial, seeds=seeds)
        done = study_trials("layers", trials, data, path, check=lines, execution=execution)
    elif sizes is not None:
        trials = plan_curve(trial, _limit_sizes(sizes, data, notify), seeds=seeds, most=len(data.labelled.train))
        done = study_trials("curve", trials, data, path, check=lines, execution=execution)
    else:
        done = finetune_trial(trial, data, path, seeds=seeds, controls=controls, check=lines, execution=execution)
    return _unless_interrupted(done)


def _merge_settings(options: dict[str, Any], further: dict[str, Any]) -> dict[str, Any]:
    """The settings of a task, from options and from the table of further settings."""
    _check_not_in(further, "settings", "method", option="how")
    if twice := options.keys() & further.keys():
        raise ValueError(f"--{min(twice)} and --set objective.{min(twice)} are the same setting: give one of them")
    return {**options, **further}


def _merge_training(
    training: dict[str, Any], *, budget: str | None, epochs: float | None, device: str | None
) -> dict[str, Any]:
    """The settings of training, with the budget and the device that were given as arguments of their own."""
    _check_not_in(training, "train", "seed", option="seed")
    if budget is not None:
        if epochs is not None or "budget" in training:
            other = "--epochs" if epochs is not None else "--set train.budget"
            raise ValueError(f"--budget {budget} and {other} both say how long to train: give one of them")
        parse_budget(budget)
        training["budget"] = budget
    return training if device is None else {"device": device, **training}


def _check_not_in(table: Mapping[str, Any], group: str, name: str, *, option: str) -> None:
    """A ValueError where a table has a setting that is an argument of its own."""
    if name in table or option in table:
        value = table.get(name, table.get(option))
        raise ValueError(f"{group} = {{{option!r}: {value!r}}}: give {option}={value!r} instead")


def _check_data(origin: Path, data: TaskData, *, notify: Notify, vectors: str | Path | None = None) -> list[str]:
    """The findings about the data, which are also given to `notify`; a ValueError if no examples are held out."""
    checked = check_data(origin, data)
    checked.require_held_out()
    lines = [*checked.lines(), *describe_selection(data)]
    for line in (*lines, *([] if vectors is None else [format_coverage(data.labelled, vectors)])):
        notify(line)
    return lines


def _limit_sizes(sizes: Sequence[int | None], data: TaskData, notify: Notify) -> Sequence[int | None]:
    """The sizes of a learning curve; a note says which of them are more than there are examples."""
    most = len(data.labelled.train)
    if beyond := [str(size) for size in sizes if size is not None and size > most]:
        notify(f"--examples {', '.join(beyond)}: there are {most:,} for training, so all are used")
    return sizes


def resume_finetuning(
    folder: str | Path, *, reporter: Reporter | None = None, interrupted: Callable[[], bool] = lambda: False
) -> Finetuned:
    """Resume a study or a fine-tuned run with the settings in its folder."""
    path = Path(folder)
    command = read_command(path)
    data, trials = command.open_data(), command.make_trials()
    lines = [*check_data(trials[0].origin, data).lines(), *describe_selection(data)]
    execution = Execution(resume=True, reporter=reporter, interrupted=interrupted)
    if command.kind == "run":
        controls = not command.alone
        done = finetune_trial(
            trials[0], data, path, seeds=command.seeds, controls=controls, check=lines, execution=execution
        )
    else:
        done = study_trials(command.kind, trials, data, path, check=lines, execution=execution)
    return _unless_interrupted(done)


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
    files: dict[str, Any] = {"valid": valid, "test": test, "columns": columns, "leaks": leaks}
    data = open_data(examples, **files, drop_bad_labels=drop_bad_labels, run=paths[0])
    lines = _check_data(paths[0], data, notify=notify)
    execution = Execution(overwrite=overwrite, resume=resume, reporter=reporter, interrupted=interrupted)
    return _unless_interrupted(study_trials("comparison", trials, data, Path(output), check=lines, execution=execution))


def _unless_interrupted(found: Finetuned | None) -> Finetuned:
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
