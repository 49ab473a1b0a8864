"""Checkpoints of a training run: enough to go on bit-exactly after a kill."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lmlab.models.abilities import State
from lmlab.models.states import map_state
from lmlab.runs.checkpoint import load_weights, model_tensors
from lmlab.runs.storage import (
    HEADS,
    MODEL,
    FullDiskError,
    find_no_room,
    read_folder,
    read_json,
    read_tensors,
    replace_tensors,
    write_folder,
    write_json,
    write_tensors,
)
from lmlab.training.learner import Learner
from lmlab.training.progress import Progress
from lmlab.training.randomness import random_tensors, restore_random
from lmlab.training.step import Step

CHECKPOINTS = "checkpoints"
"""The folder of a run that holds the weights of the latest evaluations, for averaging."""


class RunDirectory:
    """Keeps `last/`, `model.safetensors`, `metrics.jsonl` and the latest `checkpoints/` of one run."""

    def __init__(self, path: Path, *, save_seconds: float, keep: int = 0) -> None:
        self.path = path
        self.save_seconds = save_seconds
        self.keep_latest = keep
        self._saved = time.monotonic()
        self._metrics = open(path / "metrics.jsonl", "ab")  # noqa: SIM115 (held for the whole run)

    def load(self, step: Step, start: State) -> tuple[Progress, State] | None:
        """Restore weights, optimizer, random numbers, carried state and metrics as they were."""
        device = step.learner.device

        def read(folder: Path) -> tuple[Progress, State]:
            progress = Progress.model_validate(read_json(folder / "progress.json"))
            for name, module in _modules(step.learner).items():
                load_weights(module, read_tensors(folder / name), source=folder / name)
            tensors = _with_new_names(read_tensors(folder / "training.safetensors"), step.learner)
            step.restore(tensors)
            restore_random(tensors, device)
            leaves = [tensors[f"state.{i}"] for i in range(sum(name.startswith("state.") for name in tensors))]
            return progress, _unflatten(start, leaves, device) if leaves else None

        found = read_folder(self.path / "last", read)
        reached = found[0].step if found else 0
        _forget(path for number, path in kept_checkpoints(self.path) if number > reached)
        size = found[0].metrics_bytes if found else 0
        if self._metrics.seek(0, os.SEEK_END) != size:
            self._metrics.truncate(size)
            self._metrics.seek(size)
        return found

    def save(self, step: Step, state: State, progress: Progress) -> None:
        """Write `last/`; the checkpoint before it stays as `previous/`."""
        self._metrics.flush()
        os.fsync(self._metrics.fileno())
        progress.metrics_bytes = self._metrics.tell()
        leaves = {f"state.{i}": tensor for i, tensor in enumerate(_flatten(state))}

        def fill(folder: Path) -> None:
            for name, module in _modules(step.learner).items():
                write_tensors(folder / name, model_tensors(module))
            random = random_tensors(step.learner.device)
            write_tensors(folder / "training.safetensors", {**step.tensors(), **random, **leaves})
            write_json(folder / "progress.json", progress.model_dump())

        write_folder(self.path / "last", fill)
        self._saved = time.monotonic()

    def save_best(self, learner: Learner) -> None:
        """Write the weights that `lmlab.load` takes."""
        for name, module in _modules(learner).items():
            replace_tensors(self.path / name, model_tensors(module))

    def keep(self, learner: Learner, progress: Progress) -> None:
        """Write the weights of an evaluation beside those of the ones before it, of which the oldest goes."""
        if self.keep_latest:
            folder = self.path / CHECKPOINTS
            folder.mkdir(exist_ok=True)
            kept = folder / f"step-{progress.step:06}.safetensors"
            if len(learner.heads):
                write_tensors(kept_heads(kept), model_tensors(learner.heads))
            write_tensors(kept, model_tensors(learner.model))
            _forget(path for _, path in kept_checkpoints(self.path)[: -self.keep_latest])

    def log(self, line: dict[str, Any], progress: Progress) -> None:
        """Append a line; it becomes part of the run with the next checkpoint."""
        try:
            self._metrics.write((json.dumps(line) + "\n").encode())
            self._metrics.flush()
        except OSError as error:
            if (reason := find_no_room(error)) is not None:
                raise FullDiskError(f"{reason}: {self._metrics.name} could not be written") from None
            raise

    def due(self) -> bool:
        return time.monotonic() - self._saved >= self.save_seconds

    def close(self) -> None:
        with suppress(OSError):  # a line for which there was no room has been told of
            self._metrics.close()


def kept_checkpoints(run: Path) -> list[tuple[int, Path]]:
    """The steps whose weights a run has kept, with their files, oldest first."""
    files = (run / CHECKPOINTS).glob("step-*.safetensors")
    return sorted((int(path.stem.removeprefix("step-")), path) for path in files)


def kept_heads(kept: Path) -> Path:
    """The file of the heads that were learnt with kept weights, if there were any."""
    return kept.with_name(kept.name.replace("step-", "head-"))


def _forget(checkpoints: Iterable[Path]) -> None:
    for path in checkpoints:
        path.unlink()
        kept_heads(path).unlink(missing_ok=True)


def _modules(learner: Learner) -> dict[str, nn.Module]:
    """What is written to which file: the model, and the heads where there are any."""
    heads = {HEADS: learner.heads} if len(learner.heads) else {}
    return {MODEL: learner.model, **heads}


def _with_new_names(tensors: dict[str, Tensor], learner: Learner) -> dict[str, Tensor]:
    """What the optimizer and the mean of the weights remember, by the names that the weights have today."""
    result = dict(tensors)
    for old, new in getattr(learner.model, "RENAMED", {}).items():
        for name in tensors:
            what, _, key = name.rpartition(".")
            if what == f"optimizer.model.{old}":
                result[f"optimizer.model.{new}.{key}"] = result.pop(name)
            elif name == f"average.mean.model.{old}":
                result[f"average.mean.model.{new}"] = result.pop(name)
    return result


def _flatten(state: State) -> list[Tensor]:
    leaves: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        leaves.append(tensor.clone())
        return tensor

    map_state(keep, state)
    return leaves


def _unflatten(structure: State, leaves: list[Tensor], device: torch.device) -> State:
    """The nest of a fresh state, with the saved tensors in their places."""
    remaining = iter(leaves)
    return map_state(lambda _: next(remaining).to(device), structure)
