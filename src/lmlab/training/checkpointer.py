"""Checkpoints of a training run: all that is needed to resume with the same bits after a kill."""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lmlab.files import FullDiskError, find_no_room
from lmlab.models.abilities import State
from lmlab.models.states import map_state
from lmlab.runs.model_files import load_weights, model_tensors, with_new_names
from lmlab.runs.storage import (
    HEADS,
    METRICS,
    MODEL,
    read_folder,
    read_json,
    read_tensors,
    replace_tensors,
    write_folder,
    write_json,
    write_sealed,
    write_tensors,
)
from lmlab.training.devices import random_tensors, restore_random
from lmlab.training.distributed.world import ALONE, World
from lmlab.training.learner import Learner
from lmlab.training.progress import TrainingProgress
from lmlab.training.step import States, Step

CHECKPOINTS = "checkpoints"
"""The folder of a run with the weights of its latest validations, for averaging."""


class Checkpointer:
    """Writes `last/`, `model.safetensors`, `metrics.jsonl` and the latest `checkpoints/` of one run, and reads them.

    Every process of a world calls every method; only one of them writes.
    """

    def __init__(self, path: Path, *, save_seconds: float, keep: int = 0, world: World = ALONE) -> None:
        self.path = path
        self.save_seconds = save_seconds
        self.keep_latest = keep
        self.world = world
        self._saved = time.monotonic()
        self._metrics = open(path / METRICS, "ab") if world.writes else None  # noqa: SIM115 (until close)
        self._hashed = hashlib.sha256()  # of all that is in it

    def load(self, train_step: Step) -> tuple[TrainingProgress, States] | None:
        """Restore the last checkpoint: weights, optimizer, random numbers and metrics; None if there is none.

        Returns how far training was, and the states that the model keeps for the next batch.
        """
        found = read_folder(self.path / "last", lambda folder: self._read(folder, train_step))
        reached, size = (found[0].step, found[0].metrics_bytes) if found else (0, 0)
        if self._metrics is not None:
            _forget(path for number, path in kept_checkpoints(self.path) if number > reached)
            if self._metrics.seek(0, os.SEEK_END) != size:
                self._metrics.truncate(size)
                self._metrics.seek(size)
            self._hashed = hashlib.sha256((self.path / METRICS).read_bytes())
            if found and found[0].metrics_sha256 not in ("", self._hashed.hexdigest()):
                warnings.warn(f"{self.path / METRICS} is damaged; the curves of the run may be wrong", stacklevel=2)
        return found

    def _read(self, folder: Path, train_step: Step) -> tuple[TrainingProgress, States]:
        learner, world = train_step.learner, self.world
        progress = TrainingProgress.model_validate(read_json(folder / "progress.json"))
        for name, module in _modules(learner).items():
            weights = with_new_names(read_tensors(folder / name), type(module))
            own = module.state_dict(keep_vars=True)
            parts = {key: world.part(each, own[key]) if key in own else each for key, each in weights.items()}
            load_weights(module, parts, source=folder / name)
        tensors = _with_new_names(read_tensors(folder / "training.safetensors"), learner)
        train_step.restore(tensors)
        restore_random(tensors, learner.device)
        lanes = train_step.division.lanes
        found = {lane: _leaves(tensors, lane) for lane in range(lanes)}
        start = learner.start_state(max(1, train_step.loader.batch_size // lanes))
        return progress, {lane: _unflatten(start, each, learner.device) for lane, each in found.items() if each}

    def save(self, train_step: Step, states: States, progress: TrainingProgress) -> None:
        """Write `last/`, all that exact resuming needs; the checkpoint before it becomes `previous/`."""
        world, learner = self.world, train_step.learner
        leaves = {
            f"{_prefix(lane)}{i}": tensor for lane, state in states.items() for i, tensor in enumerate(_flatten(state))
        }
        weights = {name: world.whole(model_tensors(module)) for name, module in _modules(learner).items()}
        training = {**train_step.tensors(), **world.collect(leaves), **random_tensors(learner.device)}
        if self._metrics is not None:
            self._metrics.flush()
            os.fsync(self._metrics.fileno())
            progress.metrics_bytes = self._metrics.tell()
            progress.metrics_sha256 = self._hashed.hexdigest()

            def fill(folder: Path) -> None:
                for name, tensors in weights.items():
                    write_tensors(folder / name, tensors)
                write_tensors(folder / "training.safetensors", training)
                write_json(folder / "progress.json", progress.model_dump())

            write_folder(self.path / "last", fill)
        self._saved = time.monotonic()

    def save_best(self, learner: Learner) -> None:
        """Write the weights that `lmlab.load` reads."""
        for name, module in _modules(learner).items():
            tensors = self.world.whole(model_tensors(module))
            if self.world.writes:
                replace_tensors(self.path / name, tensors)

    def keep(self, learner: Learner, step: int) -> None:
        """Write the weights of a validation for later averaging; the oldest of too many are removed."""
        if not self.keep_latest:
            return
        weights, heads = (self.world.whole(model_tensors(part)) for part in (learner.model, learner.heads))
        if not self.world.writes:
            return
        folder = self.path / CHECKPOINTS
        folder.mkdir(exist_ok=True)
        kept = folder / f"step-{step:06}.safetensors"
        if heads:
            write_sealed(kept_heads(kept), heads)
        write_sealed(kept, weights)
        _forget(path for _, path in kept_checkpoints(self.path)[: -self.keep_latest])

    def log(self, line: dict[str, Any]) -> None:
        """Append a line to the metrics; it becomes part of the run with the next checkpoint."""
        if self._metrics is None:
            return
        try:
            content = (json.dumps(line) + "\n").encode()
            self._metrics.write(content)
            self._metrics.flush()
            self._hashed.update(content)
        except OSError as error:
            if (reason := find_no_room(error)) is not None:
                raise FullDiskError(f"{reason}: {self._metrics.name} could not be written") from None
            raise

    def is_due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return self.world.broadcast(time.monotonic() - self._saved >= self.save_seconds)

    def close(self) -> None:
        """Close the metrics."""
        if self._metrics is not None:
            with suppress(OSError):  # a full disk has been reported by `log`
                self._metrics.close()


def kept_checkpoints(run: Path) -> list[tuple[int, Path]]:
    """The steps whose weights a run keeps for averaging, with their files, oldest first."""
    files = (run / CHECKPOINTS).glob("step-*.safetensors")
    return sorted((int(path.stem.removeprefix("step-")), path) for path in files)


def kept_heads(kept: Path) -> Path:
    """The file of the heads that belong to kept weights, if there are any."""
    return kept.with_name(kept.name.replace("step-", "head-"))


def _forget(checkpoints: Iterable[Path]) -> None:
    for path in checkpoints:
        path.unlink()
        kept_heads(path).unlink(missing_ok=True)


def _modules(learner: Learner) -> dict[str, nn.Module]:
    """The modules by the file that they are written to: the model, and its heads if there are any."""
    heads = {HEADS: learner.heads} if len(learner.heads) else {}
    return {MODEL: learner.model, **heads}


def _with_new_names(tensors: dict[str, Tensor], learner: Learner) -> dict[str, Tensor]:
    """The states of the optimizer and of the weight average, by the names that the weights have today."""
    result = dict(tensors)
    for old, new in getattr(learner.model, "RENAMED", {}).items():
        for name in tensors:
            what, _, key = name.rpartition(".")
            if what == f"optimizer.model.{old}":
                result[f"optimizer.model.{new}.{key}"] = result.pop(name)
            elif name == f"average.mean.model.{old}":
                result[f"average.mean.model.{new}"] = result.pop(name)
    return result


def _prefix(lane: int) -> str:
    """What the names of the tensors of a carried state begin with, for the rows of one lane."""
    return f"lane{lane}.state." if lane else "state."


def _leaves(tensors: dict[str, Tensor], lane: int) -> list[Tensor]:
    """The tensors of the state of one lane, in order."""
    count = sum(name.startswith(_prefix(lane)) for name in tensors)
    return [tensors[f"{_prefix(lane)}{i}"] for i in range(count)]


def _flatten(state: State) -> list[Tensor]:
    leaves: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        leaves.append(tensor.clone())
        return tensor

    map_state(keep, state)
    return leaves


def _unflatten(structure: State, leaves: list[Tensor], device: torch.device) -> State:
    """A state of the same structure, with the saved tensors."""
    remaining = iter(leaves)
    return map_state(lambda _: next(remaining).to(device), structure)
