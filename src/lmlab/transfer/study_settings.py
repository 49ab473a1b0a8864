"""With what a study or a fine-tuned run was begun: it is resumed as it was, and not replaced by another one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import Field

from lmlab.config import Config, build
from lmlab.data import make_config
from lmlab.data.corpora.examples import ExamplesConfig, read
from lmlab.runs.jobs import Plan, Reporter
from lmlab.runs.run_files import STUDY, TRIALS, is_study, is_trial, remove
from lmlab.runs.storage import digest_weights, read_json, write_json
from lmlab.transfer.from_scratch import is_body
from lmlab.transfer.trials import TaskData, Trial, fingerprint_of, is_done, result_file

GROWING = ("seeds", "examples")
"""What may be added to: what was learnt with the others stays."""
COMMAND = "command"
"""The key of `study.json` under which the command is kept."""
GROUPS = {"task": "objective", "train": "train", "model": "model", "language": "language"}
"""Tables of settings of a trial, and what `--set` calls them."""


class Command(Config):
    """What the user asked for, kept in `study.json`, so that `--resume` needs the folder alone."""

    kind: str = Field(description="run, curve, layers or comparison")
    data: dict[str, Any] = Field(description="the settings of the examples")
    trials: list[dict[str, Any]] = Field(min_length=1, description="the trials; of a run, the first of its seeds")
    seeds: int = Field(1, ge=1, description="of a run: how many seeds")
    alone: bool = Field(False, description="of a run: without what it is compared with")

    def open_data(self) -> TaskData:
        """The examples, read again."""
        config = make_config(self.data)
        if not isinstance(config, ExamplesConfig):
            raise ValueError(f"{STUDY}: the data are {config.kind}, not labelled examples; give the whole command")
        return TaskData(config=config, labelled=read(config)[0])

    def make_trials(self) -> list[Trial]:
        """The trials, as they were planned."""
        try:
            return [Trial(**{**each, "origin": Path(each["origin"])}) for each in self.trials]
        except (TypeError, KeyError) as error:
            raise ValueError(f"{STUDY} holds a trial that is none ({error}); give the whole command") from None


def make_command(
    kind: str, trials: Sequence[Trial], data: TaskData, *, seeds: int = 1, alone: bool = False
) -> dict[str, Any]:
    """A command as JSON has it, with paths that hold from any folder."""
    plain = [
        {**asdict(each), "origin": str(each.origin if is_body(each.origin) else each.origin.resolve())}
        for each in trials
    ]
    settings = data.config.absolute().model_dump(exclude_none=True, exclude={"given"})
    made = Command(kind=kind, data=settings, trials=plain, seeds=seeds, alone=alone)
    found: dict[str, Any] = json.loads(json.dumps(made.model_dump(), default=str))
    return found


def read_command(folder: Path) -> Command:
    """The command with which a study or a fine-tuned run was begun; a ValueError where the folder does not say it."""
    saved = read_json(folder / STUDY) if (folder / STUDY).is_file() else {}
    if not isinstance(saved, dict) or COMMAND not in saved:
        raise ValueError(
            f"{folder} does not say with which command it was begun (no {STUDY}, or one of an older version): give the "
            "same command again with all its options, and --resume; what is done there is not done again"
        )
    return build(Command, saved[COMMAND], where=str(folder / STUDY))


class SavesCommand:
    """Passes on what a run reports, and writes down its command as soon as it has a folder."""

    def __init__(self, reporter: Reporter, path: Path, command: Mapping[str, Any]) -> None:
        self.reporter, self.path, self.command = reporter, path, command
        self.stage, self.log = reporter.stage, reporter.log

    def begin(self, plan: Plan) -> None:
        if plan.path == self.path:
            write_json(self.path / STUDY, {"kind": "run", COMMAND: self.command})
        self.reporter.begin(plan)


def describe_settings(kind: str, trials: Sequence[Trial], data: TaskData) -> dict[str, Any]:
    """All that the trials of a study depend on, as JSON has it."""
    first = trials[0]
    settings = {
        f"{told}.{name}": value
        for group, told in GROUPS.items()
        for name, value in getattr(first, group).items()
        if name != "device"
    }
    found = {
        "kind": kind,
        "data": fingerprint_of(data.labelled),
        "runs": {trial.origin.name: digest_weights(trial.origin) for trial in trials},
        "how": list(dict.fromkeys(trial.how for trial in trials)),
        "layers": list(dict.fromkeys(trial.layers for trial in trials)),
        "epochs": first.epochs,
        "seeds": sorted({trial.seed for trial in trials}),
        "examples": list(dict.fromkeys("all" if trial.take is None else trial.take for trial in trials)),
        "settings": settings,
    }
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return plain


def find_study_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The names of what differs between two descriptions; seeds and numbers of examples may be more."""
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


def check_same_study(kind: str, trials: Sequence[Trial], data: TaskData, folder: Path) -> None:
    """A ValueError where a folder holds a study that was begun with other settings, data or runs."""
    changed: list[str] = []
    if (folder / STUDY).is_file():
        changed = find_study_changes(read_json(folder / STUDY), describe_settings(kind, trials, data))
    planned = {result_file(folder / TRIALS, trial): trial for trial in trials}
    if not changed:  # nor is what was scored scored in another way, or left out
        scored = [path for path in sorted((folder / TRIALS).glob("*.json")) if is_trial(path)]
        changed = [
            f"{TRIALS}/{path.name}" for path in scored if path not in planned or not is_done(path, planned[path], data)
        ]
    if changed:
        raise ValueError(
            f"{folder} was begun with other settings ({', '.join(changed)}): go on with the same ones, choose another "
            "-o, or replace it with --overwrite"
        )


def is_finished(kind: str, trials: Sequence[Trial], data: TaskData, folder: Path) -> bool:
    """Whether a folder holds this very study, with all its trials done; a ValueError names settings that differ."""
    check_same_study(kind, trials, data, folder)
    missing = [trial for trial in trials if not is_done(result_file(folder / TRIALS, trial), trial, data)]
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
def keeping_settings(kind: str, trials: Sequence[Trial], data: TaskData, folder: Path) -> Iterator[None]:
    """Write down with what a study is begun; where nothing of it is begun then, nothing is left."""
    created = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / STUDY, {**describe_settings(kind, trials, data), COMMAND: make_command(kind, trials, data)})
    try:
        yield
    finally:
        if not is_study(folder):
            remove(folder / STUDY)
            for each in (folder / TRIALS, *created):
                if each.is_dir() and not any(each.iterdir()):
                    each.rmdir()
