"""Which trials are run: the controls of a run, a learning curve, choices of layers, a comparison of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lmlab.transfer.from_scratch import is_architecture
from lmlab.transfer.recipe import check_method, read_origin, usual_epochs
from lmlab.transfer.task_data import TaskData
from lmlab.transfer.trials import Trial

FORWARD = 1 / 3
"""The cost of a forward pass as a fraction of a training step: the backward pass takes twice as long."""
SHARED_TRAIN = ("batch", "window", "device", "precision", "evaluation_tokens", "save_seconds", "country")
"""Settings of training that controls share with the run; its learning rate would not suit them."""
UNSHARED_TASK = ("pool", "activation", "auxiliary")
"""Settings of the task that suit a model that learns, not a frozen one."""
DECK_LAYERS = ("first", "last", "second-to-last", "sum:all", "sum:-4:", "concat:-4:")
"""The choices of layers that BERT's authors compare (Devlin et al. 2019, table 7)."""


def plan_controls(trial: Trial, data: TaskData, *, seeds: int) -> list[Trial]:
    """The trials that a run is compared with: the frozen model, and the same model without pre-training.

    Together they cost at most about as much as the run, so the model from scratch learns for a little less long.
    """
    if trial.method in ("frozen", "scratch") or is_architecture(trial.origin):
        return []
    examples = len(data.labelled.train)
    steps = math.ceil(examples / int(trial.train.get("batch", min(32, max(1, examples)))))
    epochs = trial.epochs or usual_epochs(trial.method, steps)
    task = {name: value for name, value in trial.task.items() if name not in UNSHARED_TASK}
    train = {name: value for name, value in trial.train.items() if name in SHARED_TRAIN}
    same = trial.epochs if trial.method == "mix" else None  # as many epochs as the mix that it is compared with
    frozen = Trial(origin=trial.origin, method="frozen", epochs=same, task=task, train=train)
    fraction = max(0.2, 1 - FORWARD / epochs)
    if "budget" in trial.train:
        train, fraction = {**train, "budget": trial.train["budget"]}, 1.0
    note = f"{fraction:.0%} of the steps" if fraction < 1 else ""
    scratch = replace(frozen, method="scratch", task=trial.task, train=train, epochs=fraction * epochs, note=note)
    controls = [frozen, scratch] if trial.method in ("full", "gradual", "ulmfit") else [frozen]
    return [replace(each, seed=seed) for seed in range(trial.seed, trial.seed + seeds) for each in controls]


def plan_curve(trial: Trial, sizes: Sequence[int | None], *, seeds: int, most: int) -> list[Trial]:
    """A trial for each number of examples and each seed; None is all `most` examples."""
    limits = dict.fromkeys(None if size is None or size >= most else size for size in sizes)
    return [replace(trial, limit=size, seed=seed) for size in limits for seed in range(trial.seed, trial.seed + seeds)]


def plan_layers(trial: Trial, *, seeds: int) -> list[Trial]:
    """A trial for each of the choices of layers that BERT's authors compare.

    Where a model has fewer than four layers, all of them replace the last four.
    """
    count = read_origin(trial.origin)["model"].get("layers")
    few = isinstance(count, int) and count + 1 < 4  # with the embeddings
    choices = dict.fromkeys(each.replace("-4:", "all") if few else each for each in DECK_LAYERS)
    return [
        replace(trial, method="frozen", layers=layers, seed=seed)
        for layers in choices
        for seed in range(trial.seed, trial.seed + seeds)
    ]


def plan_comparison(runs: Sequence[Path], methods: Sequence[str], *, seeds: int, trial: Trial) -> list[Trial]:
    """A trial for each run, each method and each seed."""
    for method in methods:
        check_method(method)
    for run in runs:
        read_origin(run)
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        raise ValueError(f"--runs: two runs have the same name among {', '.join(names)}; rename a folder")
    return [
        replace(trial, origin=run, method=method, seed=seed)
        for run in runs
        for method in methods
        for seed in range(trial.seed, trial.seed + seeds)
    ]
