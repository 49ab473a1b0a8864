"""Checkpoints of a training run: all that is needed to resume with the same bits after a kill."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lmlab.models.abilities import State
from lmlab.models.states import map_state
from lmlab.runs.model_files import load_weights, model_tensors
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
from lmlab.training.devices import random_tensors, restore_random
from lmlab.training.distributed import ALONE, World
from lmlab.training.learner import Learner
from lmlab.training.progress import TrainingProgress
from lmlab.training.step import Step

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
        self._metrics = open(path / "metrics.jsonl", "ab") if world.writes else None  # noqa: SIM115 (until close)

    def load(self, train_step: Step) -> tuple[TrainingProgress, State] | None:
        """Restore the last checkpoint: weights, optimizer, random numbers and metrics; None if there is none.

        Returns how far training was, and the state that the model keeps for the next batch.
        """
        found = read_folder(self.path / "last", lambda folder: self._read(folder, train_step))
        reached, size = (found[0].step, found[0].metrics_bytes) if found else (0, 0)
        if self._metrics is not None:
            _forget(path for number, path in kept_checkpoints(self.path) if number > reached)
            if self._metrics.seek(0, os.SEEK_END) != size:
                self._metrics.truncate(size)
                self._metrics.seek(size)
        return found

    def _read(self, folder: Path, train_step: Step) -> tuple[TrainingProgress, State]:
        learner = train_step.learner
        progress = TrainingProgress.model_validate(read_json(folder / "progress.json"))
        for name, module in _modules(learner).items():
            load_weights(module, read_tensors(folder / name), source=folder / name)
        tensors = _with_new_names(read_tensors(folder / "training.safetensors"), learner)
        train_step.restore(tensors)
        own = _of_process(tensors, self.world.rank)
        restore_random(own, learner.device)
        leaves = [own[f"state.{i}"] for i in range(sum(name.startswith("state.") for name in own))]
        state = (
            _unflatten(learner.start_state(train_step.loader.batch_size), leaves, learner.device) if leaves else None
        )
        return progress, state

    def save(self, train_step: Step, state: State, progress: TrainingProgress) -> None:
        """Write `last/`, all that exact resuming needs; the checkpoint before it becomes `previous/`."""
        leaves = {f"state.{i}": tensor for i, tensor in enumerate(_flatten(state))}
        own = self.world.gather({**random_tensors(train_step.learner.device), **leaves})
        if self._metrics is not None:
            self._metrics.flush()
            os.fsync(self._metrics.fileno())
            progress.metrics_bytes = self._metrics.tell()

            def fill(folder: Path) -> None:
                for name, module in _modules(train_step.learner).items():
                    write_tensors(folder / name, model_tensors(module))
                write_tensors(folder / "training.safetensors", {**train_step.tensors(), **_by_process(own)})
                write_json(folder / "progress.json", progress.model_dump())

            write_folder(self.path / "last", fill)
        self._saved = time.monotonic()

    def save_best(self, learner: Learner) -> None:
        """Write the weights that `lmlab.load` reads."""
        if self.world.writes:
            for name, module in _modules(learner).items():
                replace_tensors(self.path / name, model_tensors(module))

    def keep(self, learner: Learner, step: int) -> None:
        """Write the weights of a validation for later averaging; the oldest of too many are removed."""
        if not self.keep_latest or not self.world.writes:
            return
        folder = self.path / CHECKPOINTS
        folder.mkdir(exist_ok=True)
        kept = folder / f"step-{step:06}.safetensors"
        if len(learner.heads):
            write_tensors(kept_heads(kept), model_tensors(learner.heads))
        write_tensors(kept, model_tensors(learner.model))
        _forget(path for _, path in kept_checkpoints(self.path)[: -self.keep_latest])

    def log(self, line: dict[str, Any]) -> None:
        """Append a line to the metrics; it becomes part of the run with the next checkpoint."""
        if self._metrics is None:
            return
        try:
            self._metrics.write((json.dumps(line) + "\n").encode())
            self._metrics.flush()
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


def _by_process(tensors: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The tensors of all processes by name; those of process 0 as if it were alone."""
    first, *others = tensors
    return {**first, **{f"process{i}.{name}": each[name] for i, each in enumerate(others, 1) for name in each}}


def _of_process(tensors: dict[str, Tensor], rank: int) -> dict[str, Tensor]:
    """The tensors of one process, as `_by_process` named them."""
    prefix = f"process{rank}."
    return {name.removeprefix(prefix): each for name, each in tensors.items() if not rank or name.startswith(prefix)}


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
