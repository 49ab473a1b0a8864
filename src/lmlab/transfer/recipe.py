"""The recipe of a fine-tuned run: settings that follow from the data, and defaults that suit most tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmlab.config import build, suggest_near
from lmlab.data.config import DataConfig
from lmlab.data.corpora.examples import ExamplesConfig, parts_of
from lmlab.data.readers.examples import Labelled
from lmlab.metrics.metric import Metric
from lmlab.models import ARCHITECTURES, System, find, outline
from lmlab.runs.model_files import load_tokenizer
from lmlab.runs.recipe import Recipe, make_recipe
from lmlab.runs.recipe_record import read_record
from lmlab.runs.storage import TASK, read_json
from lmlab.tasks import load_task
from lmlab.tasks.records import METHODS as TASK_METHODS
from lmlab.tokenizers.frames import FILE, NO_BOUNDARY, Frame
from lmlab.training.budget import check_epochs, parse_budget

METHODS = (*TASK_METHODS, "ulmfit")
"""How a run learns a task: which weights learn; ulmfit tunes the language model on the texts first, then is gradual."""
USUAL_EPOCHS = (3, 100)
"""Passes over the examples when all weights learn (Devlin et al. 2019, A.3: 2 to 4), and at most where they are few."""
EPOCHS = {"frozen": (20, 200), "mix": (20, 200), "gradual": (10, 100), "ulmfit": (10, 100)}
"""The same for other methods; in most epochs of gradual unfreezing some layers do not learn yet (its authors: 50)."""
LEAST_STEPS = 500
"""Small sets are read more often, so that there are enough steps (benchmarks/few_labels.py)."""
RATE, RATE_WIDTH = 5e-5, 768
"""The learning rate for BERT base, and its width; narrower models take larger steps (Yang et al. 2021)."""
LAYER_DECAY = 0.7
UNFROZEN_AFTER = 0.6
"""Of gradual: the fraction of the steps after which all layers learn."""


def check_method(method: str) -> None:
    """A ValueError names the methods, where this is none."""
    if method not in METHODS:
        raise ValueError(f"--how {method}: allowed are {', '.join(METHODS)}")


def plan_finetuning(
    origin: Path,
    labelled: Labelled,
    data: DataConfig,
    *,
    method: str = "full",
    seed: int = 0,
    epochs: float | None = None,
    task: Mapping[str, Any] | None = None,
    train: Mapping[str, Any] | None = None,
) -> Recipe:
    """A recipe for learning the task of `labelled` from a run; `task` and `train` are the user's settings."""
    check_method(method)
    check_epochs(epochs)
    method = "gradual" if method == "ulmfit" else method
    description = read_origin(origin)
    system = find(description["kind"])
    examples = len(labelled.train)
    batch = int((train or {}).get("batch", min(32, max(1, examples))))
    steps_per_epoch = math.ceil(examples / batch)
    epochs = epochs or budget_epochs(train or {}, steps_per_epoch, batch) or usual_epochs(method, steps_per_epoch)
    objective = {
        "kind": labelled.task,
        "method": method,
        **(_text_settings(origin, system, description, train or {}) if isinstance(data, ExamplesConfig) else {}),
        **load_task(labelled.task).settings_from(labelled, system.task, frozen=method in ("frozen", "mix")),
        **(task or {}),
    }
    settings = {
        "batch": batch,
        "seed": seed,
        "budget": f"{max(epochs, 1 / steps_per_epoch)!r}epochs",
        "rate": usual_rate(system, description["model"], method),
        "optimizer": "adamw",
        "beta2": 0.999,
        "decay": 0.01,
        "clip": 1.0,
        "schedule": "linear",
        "floor": 0.0,
        "warmup": math.ceil(0.1 * epochs * steps_per_epoch),
        "evaluations": max(1, min(10, round(epochs))),
        **watch_setting(labelled, objective),
        "log_every": max(1, min(10, steps_per_epoch)),
        **(system.task.training if method in ("full", "gradual") else {}),
        **_gradual(description, method, epochs * steps_per_epoch),
        **(train or {}),
    }
    values = {
        "data": data.model_dump(exclude_none=True, exclude={"given"}),
        "model": {
            "kind": description["kind"],
            **({"reset_probability": 0.0} if system.task.segment is not None else {}),
        },
        "objective": objective,
        "train": settings,
        "origin": str(origin),
    }
    return make_recipe(values)


def _text_settings(
    origin: Path, system: System, description: Mapping[str, Any], train: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of a task that reads text."""
    return {
        "frame": task_frame(system, origin),
        "backwards": reads_backwards(origin),
        "window": train.get("window") or description["model"].get("window"),
        "segment": system.task.segment,
    }


def read_origin(origin: Path) -> dict[str, Any]:
    """The `config.json` of a run; a ValueError where it is not a run, or has no vectors."""
    if not (origin / "config.json").is_file():
        near = "" if origin.exists() else suggest_near(str(origin), ARCHITECTURES)
        raise ValueError(f"{origin} is not a run directory: it has no config.json (make one with: lmlab train){near}")
    description: dict[str, Any] = read_json(origin / "config.json")
    if find(description["kind"]).trained_by == "counting":
        raise ValueError(
            f"{origin} is an {description['kind']}: it counts words and has no vectors to learn a task from; "
            "fine-tune a network, such as an lstm, a gpt2 or a bert"
        )
    if (origin / "source_tokenizer.json").is_file():
        raise ValueError(
            f"{origin} translates from a vocabulary of its own (source_tokenizer.json), with which no task can be "
            "learnt: fine-tune a run that has one vocabulary for source and target"
        )
    return description


def task_frame(system: System, origin: Path) -> dict[str, str]:
    """The templates around the texts of a task; an imported model keeps what its own tokenizer puts before a text."""
    templates = dict(system.task.frame)
    if not templates.get("tokens", "").startswith("boundary ") or not (origin / FILE).is_file():
        return templates
    frame, tokenizer, rest = Frame.load(origin), load_tokenizer(origin), templates["tokens"].removeprefix("boundary ")
    if dict(frame.templates) == dict(NO_BOUNDARY):
        return {**templates, "tokens": rest}
    opening = frame.specials.get("tokens", {}).get("boundary")
    if tokenizer is None or opening in (None, tokenizer.boundary):
        return templates
    known = {"start": tokenizer.start} | ({"cls": tokenizer.special("cls")} if tokenizer.has_special("cls") else {})
    name = next((name for name, token in known.items() if token == opening), "boundary")
    return {**templates, "tokens": f"{name} {rest}"}


def reads_backwards(origin: Path) -> bool:
    """Whether the encoder of a run has learnt to read from the last token to the first (Sutskever et al. 2014)."""
    frame, task = (read_json(origin / name) if (origin / name).is_file() else {} for name in (FILE, TASK))
    return bool(frame.get("backwards") or task.get("backwards"))


def metrics_of(objective: Mapping[str, Any]) -> dict[str, Metric]:
    """The metrics of a task with these settings, the main one first; `kind` is the name of the task."""
    settings = dict(objective)
    task = load_task(str(settings.pop("kind")))
    return task.metrics_of(build(task.Config, settings, where="objective"))


def watch_setting(labelled: Labelled, objective: Mapping[str, Any]) -> dict[str, str]:
    """The setting that chooses the checkpoint by the main metric, where there are examples to choose by."""
    return {"watch": next(iter(metrics_of(objective)))} if parts_of(labelled)[1] else {}


def budget_epochs(train: Mapping[str, Any], steps_per_epoch: int, batch: int) -> float | None:
    """The epochs of a budget that is counted in epochs, steps or examples; None for another, or for none."""
    if "budget" not in train:
        return None
    budget = parse_budget(str(train["budget"]))
    per_epoch = {"epochs": 1.0, "steps": float(steps_per_epoch), "examples": float(batch * steps_per_epoch)}
    return budget.amount / per_epoch[budget.unit] if budget.unit in per_epoch else None


def usual_epochs(method: str, steps_per_epoch: int) -> float:
    """The default number of epochs: more where the examples are few."""
    usual, most = EPOCHS.get(method, USUAL_EPOCHS)
    return float(max(usual, min(most, math.ceil(LEAST_STEPS / steps_per_epoch))))


def usual_rate(system: System, model: Mapping[str, Any], method: str) -> float:
    """The default peak learning rate: of a head alone, of a model from scratch, or of a pre-trained one."""
    if method in ("frozen", "mix"):
        return 3e-3
    width = int(model.get("width", 256))
    if method == "scratch":
        return float(min(1e-3, system.training.get("rate", 1e-3) * min(1.0, (system.tuned_width or width) / width)))
    return float(min(1e-3, RATE * RATE_WIDTH / width))


def _gradual(description: Mapping[str, Any], method: str, steps: float) -> dict[str, Any]:
    """Settings of gradual unfreezing with discriminative rates (Howard & Ruder 2018)."""
    if method != "gradual":
        return {}
    *body, _ = outline(description["kind"], description["model"]).task_depths()
    layers = len(body) + 1  # with the head
    decay = find(description["kind"]).task.training.get("layer_decay", LAYER_DECAY)
    return {"layer_decay": decay, "unfreeze": max(1, round(UNFROZEN_AFTER * steps / layers))}


def find_trial_changes(path: Path, recipe: Recipe, *, fingerprint: str | None = None) -> list[str]:
    """In what a run that was started differs from a recipe: settings by name, `examples`, or `RUN`, its origin.

    Examples are compared by their `fingerprint`; texts, without one, by their paths.
    """
    record = read_record(path)
    same = record.text_sha256 in (None, fingerprint)
    if fingerprint is None:
        same = record.recipe.data.paths() == recipe.data.absolute().paths()
    found = [] if same else ["examples"]
    other = record.recipe.kind != recipe.kind or record.recipe.model != recipe.model
    found += ["RUN"] if other or record.origin_differs(recipe.origin) else []
    for group, before, wanted in (
        ("objective", record.recipe.objective, recipe.objective),
        ("train", (record.begun or record.recipe.train).model_dump(), recipe.train.model_dump()),
    ):
        found += [f"{group}.{name}" for name in wanted if name != "device" and before.get(name) != wanted[name]]
    return found
