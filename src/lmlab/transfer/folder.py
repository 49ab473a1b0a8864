"""Fine-tuned runs and studies in their folders: run them, resume them, or find that they are finished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from lmlab.runs.jobs import Reporter, Silent
from lmlab.runs.run_files import (
    CONTROLS,
    OLD_CONTROLS,
    OtherSettingsError,
    check_not_read,
    check_output_folder,
    check_study_folder,
    clear_study,
    is_run,
)
from lmlab.transfer.recipe import metrics_of
from lmlab.transfer.results import Result
from lmlab.transfer.study import SCORES, Study, make_study, read_study, run_study, save_baselines, score_baselines
from lmlab.transfer.study_plans import plan_controls
from lmlab.transfer.study_settings import Kind, SavesCommand, is_finished, make_command
from lmlab.transfer.task_data import TaskData
from lmlab.transfer.trials import PREDICTIONS, PlannedTrial, Trial, from_tuned, plan_trial, run_trial, run_trials
from lmlab.transfer.ulmfit import check_tuned, language_model_folder


class Finetuned(NamedTuple):
    """The result of fine-tuning: a run directory, or the folder of a study, and its scores."""

    path: Path
    study: Study
    pair: bool  # whether an example is two texts
    trained: bool = True  # False where all was finished before


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Whether work that is in the folder is resumed or replaced, who shows the progress, and when to stop."""

    overwrite: bool = False
    resume: bool = False
    reporter: Reporter | None = None
    interrupted: Callable[[], bool] = lambda: False


def finetune_trial(
    trial: Trial,
    data: TaskData,
    path: Path,
    *,
    seeds: int = 1,
    controls: bool = True,
    check: Sequence[str] = (),
    execution: Execution = Execution(),
) -> Finetuned | None:
    """Fine-tune with the data read already, in the folder `path`; None where it was interrupted."""
    first = plan_trial(trial, data)
    check_not_read(path, first.recipe.inputs())
    further = [replace(trial, seed=number) for number in range(trial.seed + 1, trial.seed + seeds)]
    further += plan_controls(trial, data, seeds=seeds) if controls else []
    if not (execution.overwrite or execution.resume) and (
        finished := find_finished(first, further, path, controls=controls)
    ):
        return finished
    if execution.resume and not path.exists():
        raise ValueError(f"{path} does not exist, so there is nothing to resume; leave --resume out to start it")
    check_output_folder(path, overwrite=execution.overwrite or execution.resume, go_on="--resume")
    if execution.resume:
        check_seeds(path, trial, seeds=seeds)
    if first.language is not None:
        check_tuned(language_model_folder(path), first.language, overwrite=execution.overwrite, owner=path)
    others = [plan_trial(each, data) for each in further]
    metrics, baselines = metrics_of(first.recipe.objective), []
    for baseline in score_baselines(data, metrics, seeds=(trial.seed,)) if controls else ():
        baselines.append(baseline)
        if execution.interrupted():
            return None
    command = make_command("run", [trial], data, seeds=seeds, controls=controls)
    saving = SavesCommand(execution.reporter or Silent(), path, command)
    main = run_trial(first, path, reporter=saving, interrupted=execution.interrupted, overwrite=execution.overwrite)
    if main is None:
        return None
    folder = controls_folder(path)
    saved = [*save_baselines(baselines, data, folder), (main, path / PREDICTIONS)]
    done: list[tuple[Trial, Result]] = []
    for each, result in run_trials(others, folder, reporter=execution.reporter, interrupted=execution.interrupted):
        done.append((each, result))
        saved.append((result, folder / each.name / PREDICTIONS))
    study = make_study("run", data, saved, metrics, check=check)
    study.write(path)
    return Finetuned(path, study, data.is_pair) if len(done) == len(others) else None


def study_trials(
    kind: Kind,
    trials: Sequence[Trial],
    data: TaskData,
    folder: Path,
    *,
    check: Sequence[str] = (),
    execution: Execution = Execution(),
) -> Finetuned | None:
    """Run trials as a study in a folder, unless it is finished there already; None where it was interrupted."""
    planned = [plan_trial(trial, data) for trial in trials]
    for each in planned:
        check_not_read(folder, each.recipe.inputs())
    check_study_folder(folder)
    if (folder / SCORES).is_file() and not (execution.overwrite or execution.resume):
        if is_finished(kind, planned, data, folder):
            return Finetuned(folder, read_study(folder), data.is_pair, trained=False)
        raise ValueError(
            f"{folder} already contains a study; continue it with --resume, or replace it with --overwrite"
        )
    if execution.overwrite and folder.exists():
        clear_study(folder)
    study = run_study(
        kind, planned, data, folder, check=check, reporter=execution.reporter, interrupted=execution.interrupted
    )
    return None if study is None else Finetuned(folder, study, data.is_pair)


def find_finished(first: PlannedTrial, further: Sequence[Trial], path: Path, *, controls: bool) -> Finetuned | None:
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
    if not changed and compared != controls:
        changed = ["--no-controls"]
    if not changed and done - planned:
        changed = ["seeds"]
    if changed:
        raise OtherSettingsError(path, changed)
    return Finetuned(path, study, first.data.is_pair, trained=False) if planned == done else None


def check_seeds(path: Path, trial: Trial, *, seeds: int) -> None:
    """A ValueError where a resumed run has scores of seeds that would be left out."""
    if not (path / SCORES).is_file():
        return
    results = [each for each in read_study(path).results if each.method == trial.method]
    if {each.seed for each in results} - set(range(trial.seed, trial.seed + seeds)):
        raise OtherSettingsError(path, ["seeds"])


def controls_folder(run: Path) -> Path:
    """The folder of a run with its controls and baselines; in runs of older versions it has another name."""
    old = run / OLD_CONTROLS
    return old if old.is_dir() and not (run / CONTROLS).exists() else run / CONTROLS
