"""The settings that a study or a fine-tuned run was started with: it is resumed with them, not replaced by another."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from lmlab.config import Config, build
from lmlab.data import make_config
from lmlab.data.corpora.examples import ExamplesConfig, read
from lmlab.data.corpora.pictures.images import ImagesConfig
from lmlab.runs.jobs import Reporter, RunPlan
from lmlab.runs.run_files import STUDY, TRIALS, OtherSettingsError, is_study, is_trial, remove
from lmlab.runs.storage import digest_weights, read_json, write_json
from lmlab.runs.upgrade import upgrade_saved
from lmlab.transfer.from_scratch import is_architecture
from lmlab.transfer.task_data import TaskData, open_picture_data
from lmlab.transfer.trials import OLD_NAMES, PlannedTrial, Trial

Kind = Literal["run", "curve", "layers", "comparison"]
GROWING = ("seeds", "examples")
"""Settings that a resumed study may add to."""
COMMAND = "command"
"""The key of `study.json` under which the command is kept."""
GROUPS = {"task": "objective", "train": "train", "model": "model", "language": "language"}
"""Tables of settings of a trial, with their names in `--set`."""


class StudyCommand(Config):
    """The command of the user, in `study.json`, so that `--resume` needs only the folder."""

    kind: Kind = Field(description="run, curve, layers or comparison")
    data: dict[str, Any] = Field(description="the settings of the examples")
    trials: list[dict[str, Any]] = Field(min_length=1, description="the trials; of a run, the first of its seeds")
    seeds: int = Field(1, ge=1, description="of a run: how many seeds")
    alone: bool = Field(False, description="of a run: without baselines and controls")

    def open_data(self) -> TaskData:
        """The examples, read again."""
        config = make_config(upgrade_saved({"data": self.data})["data"])
        if isinstance(config, ImagesConfig):
            return open_picture_data(config, self.make_trials()[0].origin)
        if not isinstance(config, ExamplesConfig):
            raise ValueError(f"{STUDY}: the data are {config.kind}, not labelled examples; give the whole command")
        return TaskData(config=config, labelled=read(config)[0])

    def make_trials(self) -> list[Trial]:
        """The trials of the command."""
        try:
            named = [{OLD_NAMES.get(name, name): value for name, value in each.items()} for each in self.trials]
            return [Trial(**{**each, "origin": Path(each["origin"])}) for each in named]
        except (TypeError, KeyError) as error:
            raise ValueError(f"{STUDY} holds a damaged trial ({error}); give the whole command") from None


def make_command(
    kind: Kind, trials: Sequence[Trial], data: TaskData, *, seeds: int = 1, controls: bool = True
) -> dict[str, Any]:
    """A command for JSON, with absolute paths."""
    plain = [
        {**asdict(each), "origin": str(each.origin if is_architecture(each.origin) else each.origin.resolve())}
        for each in trials
    ]
    settings = data.config.absolute().model_dump(exclude_none=True, exclude={"given"})
    made = StudyCommand(kind=kind, data=settings, trials=plain, seeds=seeds, alone=not controls)
    found: dict[str, Any] = json.loads(json.dumps(made.model_dump(), default=str))
    return found


def read_command(folder: Path) -> StudyCommand:
    """The command that started a study or a fine-tuned run; a ValueError where the folder does not have it."""
    saved = read_json(folder / STUDY) if (folder / STUDY).is_file() else {}
    if not isinstance(saved, dict) or COMMAND not in saved:
        raise ValueError(
            f"{folder} does not have the command that started it (no {STUDY}, or one of an older version): give the "
            "same command again with all its options, and --resume; finished parts are not run again"
        )
    return build(StudyCommand, saved[COMMAND], where=str(folder / STUDY))


class SavesCommand:
    """A reporter that writes the command of a run as soon as its folder exists."""

    def __init__(self, reporter: Reporter, path: Path, command: Mapping[str, Any]) -> None:
        self.reporter, self.path, self.command = reporter, path, command
        self.stage, self.log = reporter.stage, reporter.log

    def begin(self, plan: RunPlan) -> None:
        if plan.path == self.path:
            write_json(self.path / STUDY, {"kind": "run", COMMAND: self.command})
        self.reporter.begin(plan)


def describe_settings(kind: Kind, trials: Sequence[PlannedTrial], data: TaskData) -> dict[str, Any]:
    """All that the trials of a study depend on, for JSON; names are those of the first version."""
    own = [planned.trial for planned in trials]
    settings = {
        f"{group}.{name}": value
        for table, group in GROUPS.items()
        for name, value in getattr(own[0], table).items()
        if name != "device"
    }
    found = {
        "kind": kind,
        "data": data.fingerprint,
        "runs": {trial.origin.name: digest_weights(trial.origin) for trial in own},
        "how": list(dict.fromkeys(trial.method for trial in own)),
        "layers": list(dict.fromkeys(trial.layers for trial in own)),
        "epochs": own[0].epochs,
        "seeds": sorted({trial.seed for trial in own}),
        "examples": list(dict.fromkeys("all" if trial.limit is None else trial.limit for trial in own)),
        "settings": settings,
    }
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return plain


def find_study_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The names of settings that differ between two studies; seeds and numbers of examples may be more."""
    found = []
    for name, value in now.items():
        old = before.get(name)
        if name == "settings":
            keys = {**(old or {}), **value}
            found += [key for key in keys if (old or {}).get(key) != value.get(key)]
        elif name in GROWING:
            found += [name] if not set(old or ()) <= set(value) else []
        elif name in ("runs", "how", "layers"):
            same = old == value if isinstance(value, dict) else sorted(old or ()) == sorted(value)
            found += [] if same else [name]
        elif old != value:
            found.append(name)
    return found


def check_same_study(kind: Kind, trials: Sequence[PlannedTrial], data: TaskData, folder: Path) -> None:
    """A ValueError where a folder holds a study that was started with other settings, data or runs."""
    changed: list[str] = []
    if (folder / STUDY).is_file():
        changed = find_study_changes(read_json(folder / STUDY), describe_settings(kind, trials, data))
    planned = {each.result_file(folder / TRIALS): each for each in trials}
    if not changed:  # no finished trial may be scored in another way, or left out
        scored = [path for path in sorted((folder / TRIALS).glob("*.json")) if is_trial(path)]
        changed = [f"{TRIALS}/{path.name}" for path in scored if path not in planned or not planned[path].is_done(path)]
    if changed:
        older = {"data", "examples"} & set(changed) and getattr(data.config, "leaks", None) == "keep"
        hint = " (versions before 0.6 removed test examples that occur in training: give --leaks test)" if older else ""
        raise OtherSettingsError(folder, changed, hint=hint)


def is_finished(kind: Kind, trials: Sequence[PlannedTrial], data: TaskData, folder: Path) -> bool:
    """Whether a folder holds this study, with all its trials done; a ValueError names settings that differ."""
    check_same_study(kind, trials, data, folder)
    missing = [each for each in trials if not each.is_done(each.result_file(folder / TRIALS))]
    before = read_json(folder / STUDY) if (folder / STUDY).is_file() else {}
    now = describe_settings(kind, trials, data)
    more = [name for name in GROWING if set(now[name]) - set(before.get(name, ()))]
    if missing and more:
        raise ValueError(
            f"{folder} holds a study, and this one has more {' and '.join(more)}: add to it with --resume, or "
            "choose another -o"
        )
    return not missing


@contextmanager
def keeping_settings(kind: Kind, trials: Sequence[PlannedTrial], data: TaskData, folder: Path) -> Iterator[None]:
    """Write the settings of a study when it starts; remove them if no trial was started."""
    created = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    command = make_command(kind, [planned.trial for planned in trials], data)
    write_json(folder / STUDY, {**describe_settings(kind, trials, data), COMMAND: command})
    try:
        yield
    finally:
        if not is_study(folder):
            remove(folder / STUDY)
            for each in (folder / TRIALS, *created):
                if each.is_dir() and not any(each.iterdir()):
                    each.rmdir()
