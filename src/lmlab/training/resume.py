"""Checkpoints of a training run: enough to go on bit-exactly after a kill."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lmlab.checkpoint import (
    load_weights,
    model_tensors,
    read_folder,
    read_json,
    read_tensors,
    replace_tensors,
    write_folder,
    write_json,
    write_tensors,
)
from lmlab.models.abilities import State
from lmlab.models.model import Model, map_state
from lmlab.training.loop import Progress
from lmlab.training.optimizers import optimizer_tensors, restore_optimizer

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

    def load(self, model: Model, optimizer: torch.optim.Optimizer, start: State) -> tuple[Progress, State] | None:
        """Restore weights, optimizer, random numbers, carried state and metrics as they were."""

        def read(folder: Path) -> tuple[Progress, State]:
            progress = Progress.model_validate(read_json(folder / "progress.json"))
            load_weights(model, read_tensors(folder / "model.safetensors"), source=folder / "model.safetensors")
            tensors = read_tensors(folder / "training.safetensors")
            restore_optimizer(optimizer, tensors)
            _restore_random(tensors)
            leaves = [tensors[f"state.{i}"] for i in range(sum(name.startswith("state.") for name in tensors))]
            return progress, _unflatten(start, leaves, model.device) if leaves else None

        found = read_folder(self.path / "last", read)
        reached = found[0].step if found else 0
        for step, path in kept_checkpoints(self.path):
            if step > reached:
                path.unlink()
        size = found[0].metrics_bytes if found else 0
        self._metrics.truncate(size)
        self._metrics.seek(size)
        return found

    def save(self, model: Model, optimizer: torch.optim.Optimizer, state: State, progress: Progress) -> None:
        """Write `last/`; the checkpoint before it stays as `previous/`."""
        self._metrics.flush()
        os.fsync(self._metrics.fileno())
        progress.metrics_bytes = self._metrics.tell()
        leaves = {f"state.{i}": tensor for i, tensor in enumerate(_flatten(state))}

        def fill(folder: Path) -> None:
            write_tensors(folder / "model.safetensors", model_tensors(model))
            write_tensors(folder / "training.safetensors", {**optimizer_tensors(optimizer), **_random(), **leaves})
            write_json(folder / "progress.json", progress.model_dump())

        write_folder(self.path / "last", fill)
        self._saved = time.monotonic()

    def save_best(self, model: Model) -> None:
        """Write the weights that `lmlab.load` takes."""
        replace_tensors(self.path / "model.safetensors", model_tensors(model))

    def keep(self, model: Model, progress: Progress) -> None:
        """Write the weights of an evaluation beside those of the ones before it, of which the oldest goes."""
        if self.keep_latest:
            folder = self.path / CHECKPOINTS
            folder.mkdir(exist_ok=True)
            write_tensors(folder / f"step-{progress.step:06}.safetensors", model_tensors(model))
            for _, path in kept_checkpoints(self.path)[: -self.keep_latest]:
                path.unlink()

    def log(self, line: dict[str, Any], progress: Progress) -> None:
        """Append a line; it becomes part of the run with the next checkpoint."""
        self._metrics.write((json.dumps(line) + "\n").encode())
        self._metrics.flush()

    def due(self) -> bool:
        return time.monotonic() - self._saved >= self.save_seconds

    def close(self) -> None:
        self._metrics.close()


def kept_checkpoints(run: Path) -> list[tuple[int, Path]]:
    """The steps whose weights a run has kept, with their files, oldest first."""
    files = (run / CHECKPOINTS).glob("step-*.safetensors")
    return sorted((int(path.stem.removeprefix("step-")), path) for path in files)


def _random() -> dict[str, Tensor]:
    tensors = {"random.cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    return tensors


def _restore_random(tensors: dict[str, Tensor]) -> None:
    torch.set_rng_state(tensors["random.cpu"])
    if "random.cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["random.cuda"])


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
