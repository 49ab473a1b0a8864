"""The files that lmlab writes into the folders of runs and studies, which alone it removes; and the lock of a run."""

from __future__ import annotations

import glob
import json
import os
import platform
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lmlab.parsing import load_json

OWN = {
    *(
        "config.json",
        "tokenizer.json",
        "tokenizer_options.json",
        "source_tokenizer.json",
        "source_tokenizer_options.json",
        "processor.json",
        "frame.json",
        "processor.json",
        "chat.json",
        "recipe.json",
        "task.json",
        "manifest.json",
    ),
    *("model.safetensors", "head.safetensors", "metrics.jsonl", "progress.json", "average.json", "README.md"),
    *("last", "last.new", "previous", "checkpoints", "tensorboard", "states"),
    *("scores.json", "predictions.jsonl", "report.html", "controls", "beside", "study.json"),
}
"""The names that lmlab writes into a run directory."""
NOTES = "notes.md"
"""The user's notes about a run; no command removes them."""
UNFINISHED = {f".{name}.{kind}" for name in OWN for kind in ("new", "staged")}
"""The same while it is being written."""
LOCK = ".lock"
"""Held by the process that writes into a folder."""
TRIALS = "trials"
"""The folder of a study that holds its trials."""
STUDY = "study.json"
"""The file with the settings of a study or of a fine-tuning command."""
CONTROLS = "controls"
"""The folder of a fine-tuned run that holds the trials it is compared with."""
OLD_CONTROLS = "beside"
"""The same in runs of versions before 0.6.0."""
BASELINES = "baselines"
"""The folder, among the trials, that holds the predictions of the baselines."""
STUDIES = ("curve", "layers", "comparison")
SWEEP = "sweep"
"""The folder of a comparison that holds the short runs by which rates are chosen."""
CONDITIONS = "conditions.json"
"""The file that marks the folder of a comparison of systems."""
BOARD = ("leaderboard.json", "leaderboard.csv", "report.html")
"""Other files of a comparison."""


class OtherSettingsError(ValueError):
    """A run, a study or a comparison was started with other settings than those that are given now."""

    def __init__(self, folder: Path, changed: Sequence[str], *, hint: str = "") -> None:
        super().__init__(
            f"{folder} was started with other settings ({', '.join(changed)}){hint}: continue it as it was "
            f"(--resume {folder}), replace it with --overwrite, or choose another -o"
        )


def is_run(path: Path) -> bool:
    """Whether a folder contains a run."""
    return (path / "recipe.json").is_file()


def is_fresh(path: Path) -> bool:
    """Whether a folder is empty, or holds only what a run that was killed at its very start has left there.

    Such a run has left its lock. Without one, a file with the name of one of ours is the user's.
    """
    entries = {entry.name for entry in path.iterdir()} if path.is_dir() else {""}
    tokenizers = {f"{name}tokenizer{more}.json" for name in ("", "source_") for more in ("", "_options")}
    begun = {*tokenizers, "processor.json", "frame.json", "config.json"}
    temporary = {f".{name}.new" for name in (*begun, "recipe.json", "manifest.json")}
    return not entries or (LOCK in entries and entries <= {LOCK, *begun, *temporary})


def check_not_read(path: Path, inputs: Iterable[str | Path], *, option: str = "-o") -> None:
    """Raise a ValueError if a folder that is created or replaced is, or contains, an input of the command.

    Inputs are files, folders and globs; links are followed.
    """
    target = Path(os.path.realpath(path))  # Path.resolve fails for links that form a loop
    for given in inputs:
        full = os.path.expanduser(given)
        for name in (full, *(glob.glob(full, recursive=True) if glob.has_magic(full) else ())):
            source = Path(os.path.realpath(name))
            if target == source:
                other = "" if str(given) == str(path) else f" {given}, which is"
                raise ValueError(f"{option} {path} is{other} read by this command: choose another folder")
            if target in source.parents:
                raise ValueError(f"{option} {path} holds {given}, which is read by this command: choose another folder")


def check_output_folder(path: Path, *, overwrite: bool, go_on: str) -> None:
    """Raise a ValueError if no new run can be created in a folder; `go_on` says how to resume the one there."""
    if not path.exists() or is_fresh(path):
        return
    if not is_run(path):
        raise ValueError(f"{path} exists and is not a run directory that was made here; choose another -o")
    if not overwrite:
        raise ValueError(f"{path} already contains a run; continue with {go_on}, or replace it with --overwrite")


def clear(path: Path) -> None:
    """Remove the files that lmlab wrote into a run directory; other files stay."""
    for entry in path.iterdir():
        if entry.name not in OWN and entry.name not in UNFINISHED:
            continue
        if entry.name in (CONTROLS, OLD_CONTROLS) and _is_folder(entry):
            clear_trials(entry)
        else:
            remove(entry)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there; of a link, the link alone."""
    if _is_folder(path):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_begun(path: Path, created: bool) -> None:
    """Remove the files of a run that has no weights yet, so that it cannot be resumed."""
    if not (path / "last").exists() and not (path / "model.safetensors").exists():
        clear(path)
        if created and not [entry for entry in path.iterdir() if entry.name != LOCK]:
            shutil.rmtree(path, ignore_errors=True)


def is_trial(path: Path) -> bool:
    """Whether this is the folder or the result of a trial."""
    if path.is_dir():
        return not path.is_symlink() and (is_run(path) or (is_fresh(path) and (path / LOCK).exists()))
    return path.suffix == ".json" and {"key", "result"} <= _read(path).keys()


def clear_trials(folder: Path) -> None:
    """Remove all trials in a folder, then the folder if it is empty."""
    for entry in filter(is_trial, list(folder.iterdir())):
        if entry.is_dir():
            _remove_run(entry)
        else:
            entry.unlink()
    for file in _named(folder / BASELINES, r"\w+-(all|\d+)-seed-\d+\.jsonl"):
        file.unlink()
    if _is_folder(folder / BASELINES):
        _remove_empty(folder / BASELINES)
    _remove_empty(folder)


def is_study(path: Path) -> bool:
    """Whether a folder contains a study: its scores, or a trial."""
    scores = _read(path / "scores.json")
    if scores.get("kind") in STUDIES and "results" in scores:
        return True
    trials = list((path / TRIALS).iterdir()) if (path / TRIALS).is_dir() else []
    return any(map(is_trial, trials))


def check_study_folder(path: Path) -> None:
    """Raise a ValueError if a study cannot be created or resumed in a folder."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if is_run(path):
        raise ValueError(f"{path} contains a run, and a study needs its own folder; choose another -o")
    entries = {entry.name for entry in path.iterdir()} if path.is_dir() else {""}
    begun = entries == {TRIALS} or (entries <= {TRIALS, STUDY} and _is_settings(path / STUDY))
    trials = (path / TRIALS).iterdir() if (path / TRIALS).is_dir() else ()
    if not is_study(path) and not (begun and not any(trials)):
        raise ValueError(f"{path} exists and was not made by lmlab finetune or compare; choose another -o")


def clear_study(path: Path) -> None:
    """Remove the files that lmlab wrote for a study; other files stay."""
    if (path / TRIALS).is_dir():
        clear_trials(path / TRIALS)
    if _read(path / "scores.json").get("kind") in STUDIES:
        for name in ("scores.json", "report.html"):
            remove(path / name)
    if _is_settings(path / STUDY):
        remove(path / STUDY)


def clear_comparison(path: Path, *, new: Iterable[str]) -> None:
    """Remove the files of a comparison of systems, including its runs, for one with runs of the names `new`.

    Other files stay. If one of them is in the folder of a new run, a ValueError is raised and nothing is removed.
    """
    path = path.resolve()
    conditions = _read(path / CONDITIONS)
    systems, added = (_any_of(conditions.get(key, ())) for key in ("systems", "added"))
    named = rf"{systems}(-seed\d+)?"
    runs = [entry for entry in _named(path, named) if entry.is_dir() and is_trial(entry)]
    _check_folders([path / name for name in new], runs)
    runs += [entry for entry in _named(path / SWEEP, rf"{named}-rate.*") if entry.is_dir() and is_trial(entry)]
    files = [path / name for name in BOARD]
    files += _named(path / "scores", rf"({named}|{added})\.json")
    files += _named(path / "plots", r"((masked|blanks|both_directions)-)?(cost|curve)-\w+\.(svg|png)")
    for run in runs:
        _remove_run(run)
    for file in files:
        if not file.is_dir():
            file.unlink(missing_ok=True)
    for name in (SWEEP, "scores", "plots"):
        if _is_folder(path / name):
            _remove_empty(path / name)
    (path / CONDITIONS).unlink()


def _check_folders(folders: Iterable[Path], runs: Sequence[Path]) -> None:
    """Raise a ValueError if files of the user are in the folder of a new run."""
    for folder in folders:
        own = OWN | UNFINISHED | {LOCK, NOTES}
        foreign = [each for each in folder.iterdir() if each.name not in own] if folder in runs else [folder]
        if foreign and (foreign[0].exists() or foreign[0].is_symlink()):
            raise ValueError(
                f"{foreign[0]} was not written by the comparison, and its run {folder.name} would be there: "
                "move it, or choose another -o"
            )


def _any_of(names: Iterable[Any]) -> str:
    """A pattern for one of the names; of none, one that nothing fits."""
    return f"({'|'.join(re.escape(str(name)) for name in names) or '(?!)'})"


def _named(folder: Path, pattern: str) -> list[Path]:
    """The entries of a folder whose names match; none if it is missing or a link."""
    return [entry for entry in folder.iterdir() if re.fullmatch(pattern, entry.name)] if _is_folder(folder) else []


def _is_folder(path: Path) -> bool:
    """Whether this is a folder, and no link to one."""
    return path.is_dir() and not path.is_symlink()


def _is_settings(path: Path) -> bool:
    """Whether this is the settings file of a study."""
    found = _read(path)
    return found.get("kind") in STUDIES and {"seeds", "examples", "runs"} <= found.keys()


def _read(path: Path) -> dict[str, Any]:
    """The content of a JSON file if it is a table, else an empty one."""
    try:
        found = load_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _remove_run(folder: Path) -> None:
    """Remove a run, and its folder if it is empty."""
    clear(folder)
    (folder / LOCK).unlink(missing_ok=True)
    _remove_empty(folder)


def _remove_empty(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()


@contextmanager
def hold(run: Path) -> Iterator[None]:
    """Lock a run directory for one trainer; a ValueError names the process that holds it.

    The lock ends with its process, however that ends.
    """
    path = run / LOCK
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _lock(descriptor):
            raise ValueError(f"{run} is being trained by {_holder(path)}; wait for it, or end it first")
        os.ftruncate(descriptor, 0)
        who = {"pid": os.getpid(), "host": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        os.write(descriptor, json.dumps(who).encode())
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows has no flock: there, nothing prevents a second trainer
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _holder(path: Path) -> str:
    try:
        who = load_json(path.read_text())
        return f"process {who['pid']} on {who['host']} (since {who['since']})"
    except (OSError, ValueError, KeyError):
        return "another process"
