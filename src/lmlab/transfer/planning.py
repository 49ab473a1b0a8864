"""The recipe of a fine-tuned run: what a task needs to know of its data, and settings under which it does well."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from lmlab.config import build, suggest_near
from lmlab.data.corpora.examples import ExamplesConfig, parts_of
from lmlab.data.readers.examples import Labelled
from lmlab.data.readers.labelled import find_labels
from lmlab.metrics.metric import Metric
from lmlab.models import ARCHITECTURES, System, find, outline
from lmlab.models.lineage import TaskDefaults
from lmlab.objectives import load_objective
from lmlab.runs.recipe import Recipe, make_recipe
from lmlab.runs.storage import TASK, read_json
from lmlab.tasks.task import HOWS
from lmlab.tokenizers.frames import FILE
from lmlab.training.budget import check_epochs

WAYS = (*HOWS, "ulmfit")
"""How a run can learn a task: which weights learn, or ulmfit, which tunes its language model first, then is gradual."""
USUAL_EPOCHS = (3, 20)
"""Passes over the examples when all weights learn (Devlin et al. 2019, A.3: 2 to 4), and at most where they are few."""
EPOCHS = {"frozen": (20, 200), "mix": (20, 200), "gradual": (10, 50), "ulmfit": (10, 50)}
"""The same for other ways; in most epochs of gradual unfreezing some layers do not learn yet (its authors took 50)."""
LEAST_STEPS = 150
"""Small sets are read more often, so that the weights move at all."""
RATE, RATE_WIDTH = 5e-5, 768
"""The learning rate for BERT base, and its width; narrower models take larger steps (Yang et al. 2021)."""
LAYER_DECAY = 0.7
UNFROZEN_AFTER = 0.6
"""Of gradual: the share of the steps after which all layers learn."""


PARAPHRASES = ("GLUE: MRPC", "GLUE: QQP")
"""Pairs that have no order, as those of similarity: left-to-right models read both (Radford et al. 2018, 3.3)."""


def plan_finetuning(
    origin: Path,
    labelled: Labelled,
    data: ExamplesConfig,
    *,
    how: str = "full",
    seed: int = 0,
    epochs: float | None = None,
    task: Mapping[str, Any] | None = None,
    train: Mapping[str, Any] | None = None,
) -> Recipe:
    """A recipe for learning what `labelled` shows, from a run; `task` and `train` are the user's settings."""
    if how not in WAYS:
        raise ValueError(f"--how {how}: allowed are {', '.join(WAYS)}")
    check_epochs(epochs)
    how = "gradual" if how == "ulmfit" else how
    description = read_origin(origin)
    system = find(description["kind"])
    examples = len(labelled.train)
    batch = int((train or {}).get("batch", min(32, max(1, examples))))
    steps_per_epoch = math.ceil(examples / batch)
    epochs = epochs or usual_epochs(how, steps_per_epoch)
    window = (train or {}).get("window") or description["model"].get("window")
    objective = {
        "frame": dict(system.task.frame),
        "backwards": reads_backwards(origin),
        "window": window,
        "segment": system.task.segment,
        **describe_task(labelled, system.task, how=how),
        **(task or {}),
    }
    settings = {
        "batch": batch,
        "seed": seed,
        "budget": f"{max(epochs, 1 / steps_per_epoch)!r}epochs",
        "rate": usual_rate(system, description["model"], how),
        "optimizer": "adamw",
        "beta2": 0.999,
        "decay": 0.01,
        "clip": 1.0,
        "schedule": "linear",
        "floor": 0.0,
        "warmup": math.ceil(0.1 * epochs * steps_per_epoch),
        "evaluations": max(1, min(10, round(epochs))),
        **watch_setting(labelled, {"kind": labelled.task, **objective}),
        "log_every": max(1, min(10, steps_per_epoch)),
        **(system.task.training if how in ("full", "gradual") else {}),
        **_gradual(description, how, epochs * steps_per_epoch),
        **(train or {}),
    }
    values = {
        "data": data.model_dump(exclude_none=True, exclude={"given"}),
        "model": {
            "kind": description["kind"],
            **({"reset_probability": 0.0} if system.task.segment is not None else {}),
        },
        "objective": {"kind": labelled.task, **objective},
        "train": settings,
        "origin": str(origin),
    }
    return make_recipe(values)


def read_origin(origin: Path) -> dict[str, Any]:
    """What a run says of its model; a ValueError where it is none, or has no vectors."""
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


def reads_backwards(origin: Path) -> bool:
    """Whether the encoder of a run has learnt to read from the last token to the first (Sutskever et al. 2014)."""
    frame, task = (read_json(origin / name) if (origin / name).is_file() else {} for name in (FILE, TASK))
    return bool(frame.get("backwards") or task.get("backwards"))


def describe_task(labelled: Labelled, usual: TaskDefaults, *, how: str) -> dict[str, Any]:
    """The settings of a task that follow from its data and from the system that learns it."""
    frozen = how in ("frozen", "mix")
    pooled = labelled.task in ("classification", "regression", "choice")
    found: dict[str, Any] = {"how": how, "metric": labelled.metric}
    if pooled:
        found |= {"pool": "mean" if frozen else usual.pool, "activation": None if frozen else usual.activation}
        found["hidden"] = None if frozen else usual.hidden
        found["bias"] = frozen or usual.bias
    if labelled.task in ("classification", "regression"):
        found["pair"] = labelled.train[0].b is not None
    similar = labelled.task == "regression" or labelled.format in PARAPHRASES
    if pooled and similar and labelled.train[0].b is not None:
        found["both_orders"] = usual.pool == "last"
    if labelled.task == "classification":
        found["labels"] = list(labels_of(labelled))
    elif labelled.task == "tagging":
        found |= {"labels": list(labels_of(labelled)), "scheme": scheme_of(labelled)}
    elif labelled.task == "regression":
        scores = [float(example.label) for example in labelled.train]
        found |= {"centre": statistics.fmean(scores), "spread": statistics.pstdev(scores) or 1.0}
    elif labelled.task == "spans":
        found["pool"] = "cls" if usual.pool == "cls" else "last"  # whose vector says that there is no answer
        found["unanswerable"] = any(example.label == () for example in labelled.train)
    return found


def metrics_of(objective: Mapping[str, Any]) -> dict[str, Metric]:
    """What a task with these settings, of which `kind` is one, is measured by: the main metric first."""
    settings = dict(objective)
    cls = load_objective(str(settings.pop("kind")))
    found: dict[str, Metric] = cls.metrics_of(build(cls.Config, settings, where="objective"))
    return found


def watch_setting(labelled: Labelled, objective: Mapping[str, Any]) -> dict[str, str]:
    """The setting that chooses the checkpoint by the main metric, where there are examples to choose by."""
    return {"watch": next(iter(metrics_of(objective)))} if parts_of(labelled)[1] else {}


def labels_of(labelled: Labelled) -> tuple[str, ...]:
    """The names of the classes or tags, of all splits: a rare tag may be in one alone; none where there are no classes.

    A file of its own that has others than the training examples is not read at all.
    """
    if labelled.task not in ("classification", "tagging"):
        return ()
    parts = chain.from_iterable(part or () for part in parts_of(labelled))
    return find_labels([example for example in parts if example.label is not None], scheme=scheme_of(labelled))


def scheme_of(labelled: Labelled) -> str | None:
    """The scheme of tags as the reader gives them, whatever the file has."""
    return labelled.scheme and "IOB2"


def usual_epochs(how: str, steps_per_epoch: int) -> float:
    """How often the examples are read: more often where they are few."""
    usual, most = EPOCHS.get(how, USUAL_EPOCHS)
    return float(max(usual, min(most, math.ceil(LEAST_STEPS / steps_per_epoch))))


def usual_rate(system: System, model: Mapping[str, Any], how: str) -> float:
    """The peak learning rate: of a head alone, of a net from scratch, or of one that knows something already."""
    if how in ("frozen", "mix"):
        return 3e-3
    width = int(model.get("width", 256))
    if how == "scratch":
        return float(min(1e-3, system.training.get("rate", 1e-3) * min(1.0, (system.tuned_width or width) / width)))
    return float(min(1e-3, RATE * RATE_WIDTH / width))


def _gradual(description: Mapping[str, Any], how: str, steps: float) -> dict[str, Any]:
    """Settings of gradual unfreezing with discriminative rates (Howard & Ruder 2018)."""
    if how != "gradual":
        return {}
    *body, _ = outline(description["kind"], description["model"]).task_depths()
    layers = len(body) + 1  # with the head
    decay = find(description["kind"]).task.training.get("layer_decay", LAYER_DECAY)
    return {"layer_decay": decay, "unfreeze": max(1, round(UNFROZEN_AFTER * steps / layers))}
