"""Commands that reports show: the one that trains the best of a study again, and those to use a run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmlab.config import apply_settings
from lmlab.data.corpora.example_splits import SELECTED
from lmlab.data.corpora.examples import ExamplesConfig
from lmlab.data.corpora.pictures.images import ImagesConfig
from lmlab.tasks import load_task
from lmlab.transfer.study_settings import GROUPS
from lmlab.transfer.task_data import TaskData
from lmlab.transfer.trials import Trial

BEST = "runs/best"
"""The run directory of the command."""
OPTIONS = {"objective.crf": "--crf", "objective.pool": "--pool", "objective.vectors": "--vectors"}
"""Settings with their own option."""


def format_command(trial: Trial, data: TaskData) -> str:
    """The `lmlab finetune` command of a trial, with all examples, as a run that is kept."""
    words = ["lmlab", "finetune", str(trial.origin), *data.config.named, *_data_options(data.config)]
    words += ["--how", trial.method]
    if trial.method == "frozen" and trial.layers != "last":
        words += ["--layers", trial.layers]
    if trial.epochs is not None:
        words += ["--epochs", f"{trial.epochs:.15g}"]
    if trial.seed:
        words += ["--seed", str(trial.seed)]
    for table, group in GROUPS.items():
        for name, value in getattr(trial, table).items():
            words += _setting(f"{group}.{name}", value)
    return shlex.join([*words, "--no-controls", "-o", BEST])


def _data_options(config: ExamplesConfig | ImagesConfig) -> list[str]:
    words = []
    for option, paths in (("--valid", config.valid), ("--test", config.test)):
        words += [option, *paths] if paths else []
    if config.columns:
        words += ["--columns", ",".join(f"{role}={column}" for role, column in config.columns.items())]
    if isinstance(config, ImagesConfig):
        return words
    if config.select not in (None, SELECTED):
        words += ["--select", f"{config.select:.15g}"]
    if config.task is not None:
        words += ["--task", config.task]
    if config.leaks != "keep":
        words += ["--leaks", config.leaks]
    return words + ["--drop-bad-labels"] * config.drop_bad_labels


def _setting(name: str, value: Any) -> list[str]:
    """A setting as an option; nothing for defaults."""
    if name == "train.device":
        return [] if value == "auto" else ["--device", str(value)]
    if name == "objective.states":
        return [word for run in value for word in ("--states", str(run))]
    if name == "objective.crf" and value is True:
        return ["--crf"]
    if name in OPTIONS and isinstance(value, str):
        return [OPTIONS[name], value]
    return ["--set", f"{name}={_literal(value)}"]


def _literal(value: Any) -> str:
    """A value as `--set` reads it: a text without quotes where that is understood as one."""
    if value is None:
        return "none"
    if isinstance(value, str) and apply_settings({}, [f"x.y={value}"])["x"]["y"] == value:
        return value
    return json.dumps(dict(value) if isinstance(value, Mapping) else value, ensure_ascii=False)


def use_commands(folder: Path, *, task: str, data: str) -> list[tuple[str, str]]:
    """Commands to use a fine-tuned run, each with what it does."""
    path = shlex.quote(str(folder))
    suffix = Path(data.split(", ")[0]).suffix or ".tsv"
    return [
        (f"lmlab predict {path} {load_task(task).wording.input}", "predict a new example"),
        (f"lmlab evaluate {path} more{suffix}", "score on other examples, with an interval"),
    ]
