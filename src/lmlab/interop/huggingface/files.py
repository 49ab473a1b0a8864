"""Read the weights of a Hugging Face folder: one safetensors file, several with an index, or an old PyTorch pickle.

A pickle is read by torch's `weights_only` loader, which builds tensors and runs no code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lmlab.runs.storage import read_json, read_tensors, write_tensors

SAFE, PICKLE = "model.safetensors", "pytorch_model.bin"
OTHERS = {
    "tf_model.h5": "TensorFlow",
    "flax_model.msgpack": "Flax",
    "model.ckpt.index": "TensorFlow 1",
    "rust_model.ot": "Rust",
    "adapter_model.safetensors": "adapter",
    "model.onnx": "ONNX",
}
CONVERT = (
    "convert it where you trust it: "
    "AutoModel.from_pretrained(DIR).save_pretrained(NEW_DIR, safe_serialization=True) in transformers"
)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read every tensor of a checkpoint by name; a ValueError names a file that is missing, damaged or unsafe."""
    readers: dict[str, Callable[[Path], Mapping[str, Tensor]]] = {SAFE: read_tensors, PICKLE: read_pickle}
    for name, read in readers.items():
        if (folder / name).is_file():
            return dict(read(folder / name))
        if (folder / f"{name}.index.json").is_file():
            return _read_shards(folder, f"{name}.index.json", read)
    found = [f"{name} ({what})" for name, what in OTHERS.items() if (folder / name).is_file()]
    there = f"; it has {', '.join(found)}, which lmlab cannot read" if found else ""
    raise ValueError(f"{folder} has no weights: looked for {SAFE} and {PICKLE}, whole or with an index{there}")


def write_weights(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write one `model.safetensors` as `transformers` expects it."""
    write_tensors(folder / SAFE, tensors, metadata={"format": "pt"})


def read_pickle(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a PyTorch pickle without running code from it."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # truncated archives raise a dozen kinds of errors
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if "weights" in reason.lower() or "unsupported" in reason.lower():
            raise ValueError(
                f"{path} is a pickle that holds more than tensors, and reading it would run its code, "
                f"which lmlab never does; {CONVERT}"
            ) from None
        raise ValueError(f"{path} is damaged or not a PyTorch file: {reason}") from None
    if not isinstance(content, Mapping) or not all(isinstance(tensor, Tensor) for tensor in content.values()):
        raise ValueError(f"{path} contains no plain table of tensors; {CONVERT}")
    return {str(name): tensor.detach() for name, tensor in content.items()}


def _read_shards(folder: Path, index: str, read: Callable[[Path], Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Read the tensors of several files; each must contain exactly what the index says."""
    description: Any = read_json(folder / index)
    file_of = description.get("weight_map") if isinstance(description, dict) else None
    if not isinstance(file_of, dict) or not all(isinstance(name, str) for name in file_of.values()):
        raise ValueError(f"{folder / index} is damaged: it has no weight_map from tensors to files")
    tensors: dict[str, Tensor] = {}
    for file in sorted(set(file_of.values())):
        if Path(file).name != file:
            raise ValueError(f"{folder / index} names a file outside its folder: {file!r}")
        content = read(folder / file)
        expected = {name for name, each in file_of.items() if each == file}
        if missing := sorted(expected - content.keys()):
            raise ValueError(f"{folder / file} lacks tensors that {index} says it has: {', '.join(missing)}")
        tensors.update(content)
    return tensors
