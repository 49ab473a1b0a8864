"""With what a study was begun: it is gone on with as it was, and not replaced by another one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lmlab.own_files import STUDY, TRIALS, is_study, is_trial, remove
from lmlab.storage import digest_weights, read_json, write_json
from lmlab.transfer.trials import TaskData, Trial, fingerprint_of, is_done, result_file

GROWING = ("seeds", "examples")
"""What may be added to: what was learnt with the others stays."""
GROUPS = {"task": "objective", "train": "train", "model": "model", "language": "language"}
"""Tables of settings of a trial, and what `--set` calls them."""


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


@contextmanager
def keeping_settings(kind: str, trials: Sequence[Trial], data: TaskData, folder: Path) -> Iterator[None]:
    """Write down with what a study is begun; where nothing of it is begun then, nothing is left."""
    created = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / STUDY, describe_settings(kind, trials, data))
    try:
        yield
    finally:
        if not is_study(folder):
            remove(folder / STUDY)
            for each in (folder / TRIALS, *created):
                if each.is_dir() and not any(each.iterdir()):
                    each.rmdir()
