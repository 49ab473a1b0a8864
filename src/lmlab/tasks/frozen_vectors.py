"""Vectors of a frozen model, computed once and cached: after that, only the head learns.

The key of the cache is a hash of all that they depend on: the weights, the frame, which layers are read, and the
examples. On disk they are one flat array, mapped into memory.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lmlab.data.loaders.bucketing import in_batches
from lmlab.data.readers.files import cache_folder
from lmlab.models.model import Model
from lmlab.progress import ReportProgress
from lmlab.runs.model_files import model_tensors
from lmlab.runs.storage import write_folder, write_json
from lmlab.tasks.flops import frozen_flops
from lmlab.tasks.records import Item
from lmlab.tasks.task import Task

BATCH_TOKENS = 4096
LIMIT = 8 * 2**30
"""Most bytes of all vectors in the cache; the oldest are removed first."""


def with_vectors(
    task: Task, model: Model, items: Sequence[Item], *, weights: str, progress: ReportProgress | None = None
) -> list[Item]:
    """Items with the vectors that a model gives for them, computed now or found in the cache.

    `weights` is the hash of the model's weights (`hash_weights`).
    """
    folder = cache_folder() / "vectors" / _key(task, items, weights)
    if not (folder / "index.json").is_file():
        write_folder(folder, lambda new: _compute(task, model, items, new, progress))
        make_room(folder.parent, keep=folder)
    folder.touch()
    index = json.loads((folder / "index.json").read_text())
    vectors = np.memmap(folder / "vectors.f32", np.float32, "r", shape=tuple(index["shape"]))
    starts = np.load(folder / "starts.npy")
    return [replace(item, vectors=vectors[starts[i] : starts[i + 1]]) for i, item in enumerate(items)]


def vectors_flops(task: Task, model: Model, items: Sequence[Item]) -> float:
    """Floating-point operations of `with_vectors`, where nothing is in the cache."""
    groups = in_batches([task.length_of(item) for item in items], tokens=BATCH_TOKENS)
    return frozen_flops(task, model, ([items[number] for number in group] for group in groups))


def hash_weights(model: Model) -> str:
    """A SHA-256 of all weights of a model, and of its settings."""
    digest = hashlib.sha256(model.config.model_dump_json().encode())
    for name, tensor in model_tensors(model).items():
        digest.update(name.encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _key(task: Task, items: Sequence[Item], weights: str) -> str:
    digest = hashlib.sha256(f"1 {weights} {json.dumps(task.cache_key(), sort_keys=True, default=str)}".encode())
    for item in items:
        digest.update(task.item_key(item))
        digest.update(b"\n")
    return digest.hexdigest()


def _compute(task: Task, model: Model, items: Sequence[Item], folder: Path, progress: ReportProgress | None) -> None:
    """Write the vectors of items, batch by batch."""
    layers, width = task.vector_shape(model)
    sizes = [task.vectors_of(item) for item in items]
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    shape: tuple[int, ...] = (max(1, int(starts[-1])), *((layers,) if task.config.layer_choice == "mix" else ()), width)
    vectors = np.memmap(folder / "vectors.f32", np.float32, "w+", shape=shape)
    done, was_training = 0, model.training
    model.eval()
    try:
        with torch.inference_mode():
            for group in in_batches([task.length_of(item) for item in items], tokens=BATCH_TOKENS):
                batch = task.batch([items[number] for number in group]).to(model.device)
                found = task.read(model, batch).float().cpu().numpy()  # [rows, K, …]
                rows = iter(found)
                for number in group:
                    _store(vectors, starts[number], sizes[number], rows, task.rows_of(items[number]))
                done += len(group)
                if progress is not None:
                    progress(done, len(items))
    finally:
        model.train(was_training)
    vectors.flush()
    np.save(folder / "starts.npy", starts)
    write_json(folder / "index.json", {"shape": shape, "items": len(items)})


def _store(vectors: NDArray[Any], start: int, size: int, rows: Any, count: int) -> None:
    """Store the vectors of one item: of its one row those at its positions, of several rows one each."""
    if count == 1:
        vectors[start : start + size] = next(rows)[:size]
        return
    for number in range(count):
        vectors[start + number] = next(rows)[0]


def make_room(folder: Path, *, keep: Path) -> None:
    """Remove the vectors that were unused for longest, until the rest is within the limit, but never `keep`."""
    others = [each for each in folder.glob("*") if each.is_dir() and each != keep]
    total = 0
    for each in (keep, *sorted(others, key=lambda each: -each.stat().st_mtime)):
        total += sum(file.stat().st_size for file in each.iterdir() if file.is_file())
        if total > LIMIT and each != keep:
            shutil.rmtree(each, ignore_errors=True)
