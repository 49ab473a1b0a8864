"""Averaging checkpoints: a model whose weights are the mean over several validations of a run.

Near the end of training the weights move around a minimum, and their mean is closer to it than each of them.
Vaswani et al. 2017, section 6.1, average the last 5 checkpoints of their base model, and 20 of the big one.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from lmlab.files import write_bytes
from lmlab.models import load_class
from lmlab.runs.model_files import with_new_names
from lmlab.runs.storage import (
    HEADS,
    MODEL,
    DamagedError,
    read_json,
    read_sealed,
    write_json,
    write_manifest,
    write_tensors,
)
from lmlab.training.checkpointer import kept_checkpoints, kept_heads

COPIED = (
    *("config.json", "tokenizer.json", "tokenizer_options.json", "source_tokenizer.json"),
    *("source_tokenizer_options.json", "frame.json", "chat.json", "recipe.json", "task.json"),
    "processor.json",
)


def average(run: str | Path, *, last: int, output: str | Path) -> list[int]:
    """Write a run directory with the mean of the `last` kept weights of a run; return their steps."""
    run, output = Path(run), Path(output)
    if last < 1:
        raise ValueError(f"last = {last}: average at least 1 checkpoint")
    if not (run / "config.json").is_file():
        raise ValueError(f"{run} is not a run directory: it has no config.json")
    if output.exists():
        raise ValueError(f"{output} exists already; choose another name with -o, or remove it first")
    kept = kept_checkpoints(run)
    if len(kept) < last:
        raise ValueError(
            f"{run} has kept the weights of {len(kept)} validations, not {last}: "
            + (f"give --last {len(kept)}, or train" if kept else "train")
            + f" with --set train.keep={last} (and at least as many validations)"
        )
    chosen = kept[-last:]
    kind = load_class(read_json(run / "config.json")["kind"])
    tensors = average_tensors([path for _, path in chosen], kind=kind)
    steps = [step for step, _ in chosen]
    output.mkdir(parents=True)
    for name in COPIED:
        if (run / name).is_file():
            shutil.copyfile(run / name, output / name)
    write_tensors(output / MODEL, tensors)
    heads = [kept_heads(path) for _, path in chosen]
    if any(path.is_file() for path in heads):
        write_tensors(output / HEADS, average_tensors(heads))
    write_json(output / "average.json", {"run": run.name, "steps": steps})
    write_bytes(output / "README.md", _card(run, steps).encode())
    write_manifest(output)
    return steps


def average_tensors(paths: Sequence[Path], *, kind: type = object) -> dict[str, Tensor]:
    """The mean of each tensor over several files of a model of class `kind`, by the names that they have today.

    They are summed in float64; tensors that are not floats are those of the last file.
    """
    total: dict[str, Tensor] = {}
    last: dict[str, Tensor] = {}
    for path in paths:
        last = with_new_names(read_sealed(path), kind)
        if total and {name: tensor.shape for name, tensor in last.items()} != {n: t.shape for n, t in total.items()}:
            raise DamagedError(f"{path} does not have the same weights as {paths[0]}, so they have no mean")
        for name, tensor in last.items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {
        name: (total[name] / len(paths)).to(tensor.dtype) if torch.is_floating_point(tensor) else tensor
        for name, tensor in last.items()
    }


def _card(run: Path, steps: list[int]) -> str:
    return (
        f"# The mean of {len(steps)} checkpoints\n\nThe weights are the mean of those of {run.name} after steps "
        f"{', '.join(map(str, steps))} (`lmlab average`); everything else is as in that run.\n"
    )
