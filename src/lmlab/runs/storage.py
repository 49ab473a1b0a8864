"""Files on disk: JSON and safetensors, each file hashed, nothing half written, no pickle.

No tensor format notices a flipped bit, so every checkpoint has a `manifest.json` with the SHA-256 of its files, checked
on loading. A folder is written under a temporary name, synced to disk and renamed; the one before it is kept as
`previous/`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import safetensors
from safetensors.torch import load_file, save_file
from torch import Tensor, uint8

from lmlab.files import FullDiskError, digest_file, sync_folder, write_bytes, writing, writing_folder
from lmlab.parsing import load_json

MANIFEST = "manifest.json"
TASK = "task.json"
"""The file with the settings of the task of a fine-tuned run."""
METRICS = "metrics.jsonl"
"""The file with the metrics of a run; `progress.json` has the SHA-256 of what was written before a checkpoint."""
MODEL = "model.safetensors"
PROGRESS = "progress.json"
"""The file that says how far a run is: of a network in `last/`, of an n-gram beside its model."""
LARGEST_HEADER = 16 << 20
"""Bytes of the header of a file of tensors, at most: enough for 100,000 tensors."""
SEAL = "sha256"
"""The key of the metadata of a file of tensors that holds their SHA-256."""
HEADS = "head.safetensors"
"""The weights of the heads, which are trained together with the model."""
READ = {
    *("config.json", "tokenizer.json", "source_tokenizer.json", "frame.json", "recipe.json", TASK, MODEL, HEADS),
    *("tokenizer_options.json", "source_tokenizer_options.json", "chat.json", "progress.json", "average.json"),
    "processor.json",
}
"""The files of a run that are read again; the manifest has their hashes."""
T = TypeVar("T")


class DamagedError(ValueError):
    """A file of a checkpoint is missing, or is not what was written."""


# Single files


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file for people to read, safely."""
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """The content of a JSON file; a DamagedError names a file that does not parse."""
    _check_regular(path)
    try:
        return load_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DamagedError(f"{path} is missing") from None
    except (ValueError, OSError) as error:
        raise DamagedError(f"{path} is damaged: {error}") from None


def _check_regular(path: Path) -> None:
    """Raise a DamagedError for a pipe, a device or a folder: reading a pipe could wait forever."""
    if path.exists() and not path.is_file():
        raise DamagedError(f"{path} is damaged: it is not a regular file")


def write_tensors(path: Path, tensors: Mapping[str, Tensor], *, metadata: dict[str, str] | None = None) -> None:
    """Write tensors as safetensors, safely."""
    with writing(path) as new:
        try:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, new, metadata=metadata)
        except safetensors.SafetensorError as error:
            raise _to_os_error(error) from None
        new.chmod(0o666 & ~_umask())  # safetensors makes files that only their owner can read


def _to_os_error(error: safetensors.SafetensorError) -> Exception:
    """The error of the system, if that is what safetensors reports: its text then has the number."""
    number = re.search(r"os error (\d+)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; a DamagedError names a file that does not parse."""
    _check_regular(path)
    try:
        _check_header(path)
        return load_file(path)
    except FileNotFoundError:
        raise DamagedError(f"{path} is missing") from None
    except (safetensors.SafetensorError, ValueError, OSError) as error:
        raise DamagedError(f"{path} is damaged: {error}") from None


def _check_header(path: Path) -> None:
    """Raise a ValueError for a header of an enormous size, which would take memory, and for a name given twice."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > LARGEST_HEADER:
            raise ValueError(f"its header has {size:,} bytes, and at most {LARGEST_HEADER:,} are read")
        load_json(file.read(size), make_object=_without_doubles)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("its header names a tensor twice")
    return found


def write_sealed(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors with their SHA-256 in the same file, for folders without a manifest."""
    write_tensors(path, tensors, metadata={SEAL: digest_tensors(tensors)})


def read_sealed(path: Path) -> dict[str, Tensor]:
    """The tensors that `write_sealed` wrote; a DamagedError if they are others. Files of 0.5 have no SHA-256."""
    tensors = read_tensors(path)
    with safetensors.safe_open(path, framework="pt") as file:
        expected = (file.metadata() or {}).get(SEAL)
    if expected is not None and digest_tensors(tensors) != expected:
        raise DamagedError(f"{path} is damaged: the SHA-256 of its tensors is not the one in it")
    return tensors


def digest_tensors(tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of names, types, shapes and values."""
    found = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(uint8).numpy().data)
    return found.hexdigest()


# Manifests


def write_manifest(folder: Path, also: Mapping[str, str] | None = None) -> None:
    """Record the hash of every file in a run that is read again.

    `also` names hashes that a file may have besides: while a file is being replaced, both the old and the new one count
    as good, so that a crash between the two renames leaves nothing damaged.
    """
    hashes = {name: [digest_file(folder / name)] for name in sorted(READ) if (folder / name).is_file()}
    for name, value in (also or {}).items():
        hashes.setdefault(name, []).append(value)
    write_json(folder / MANIFEST, hashes)


def digest_weights(run: Path) -> str | None:
    """The SHA-256 of the weights of a run; None if it has none."""
    return digest_file(run / MODEL) if (run / MODEL).is_file() else None


def verify(folder: Path) -> None:
    """Compare each file with the manifest; a DamagedError names the first that differs."""
    manifest = read_json(folder / MANIFEST)
    if not isinstance(manifest, dict) or not all(isinstance(hashes, list) for hashes in manifest.values()):
        raise DamagedError(f"{folder / MANIFEST} is damaged: it does not give the hashes of each file")
    for name, hashes in manifest.items():
        path = folder / name
        if name == "scores.json":  # manifests of 0.4 name it, though nothing reads it
            continue
        if Path(name).name != name:
            raise DamagedError(f"{folder / MANIFEST} is damaged: {name!r} is not the name of a file in {folder}")
        if not _is_file(path):
            raise DamagedError(f"{repr(str(path))[1:-1]} is missing")
        if digest_file(path) not in hashes:
            raise DamagedError(f"{path} is damaged: its SHA-256 is not the one in {MANIFEST}")


def _is_file(path: Path) -> bool:
    """Whether there is such a file; no file has a name that is too long."""
    try:
        return path.is_file()
    except OSError:
        return False


def verify_metrics(run: Path) -> None:
    """Raise a DamagedError if the metrics of a run are not those that were written before its last checkpoint."""
    path = next((each for each in (run / "last" / PROGRESS, run / PROGRESS) if each.is_file()), None)
    progress = None if path is None else read_json(path)
    if not isinstance(progress, dict) or not progress.get("metrics_sha256"):
        return  # an imported run, or one of 0.5
    size = progress.get("metrics_bytes")
    content = (run / METRICS).read_bytes()[: size if isinstance(size, int) else 0]
    if hashlib.sha256(content).hexdigest() != progress["metrics_sha256"]:
        raise DamagedError(f"{run / METRICS} is damaged: its SHA-256 is not the one in {PROGRESS}")


def replace_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Replace one tensor file of a folder together with its entry in the manifest."""
    staged = path.with_name(f".{path.name}.staged")
    try:
        write_tensors(staged, tensors)
        write_manifest(path.parent, also={path.name: digest_file(staged)})
    except (OSError, FullDiskError):
        staged.unlink(missing_ok=True)
        raise
    os.replace(staged, path)
    sync_folder(path.parent)
    write_manifest(path.parent)


# Folders that are replaced as a whole


def write_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Write a folder of files atomically: `fill` it under another name, hash its files, then rename it."""
    new, previous = path.with_name(f"{path.name}.new"), path.with_name("previous")
    with writing_folder(path, new=new, previous=previous):
        fill(new)
        files = [file for file in sorted(new.iterdir()) if file.suffix in (".json", ".safetensors")]
        write_json(new / MANIFEST, {file.name: [digest_file(file)] for file in files})


def read_folder(path: Path, read: Callable[[Path], T]) -> T | None:
    """Read the newest intact copy of a folder written by `write_folder`; None if there is none yet."""
    damage: list[str] = []
    for candidate in (path, path.with_name(f"{path.name}.new"), path.with_name("previous")):
        if not (candidate / MANIFEST).is_file():
            if candidate.is_dir() and candidate != path.with_name(f"{path.name}.new"):
                damage.append(f"{candidate / MANIFEST} is missing")
            continue
        try:
            verify(candidate)
            value = read(candidate)
        except DamagedError as error:
            damage.append(str(error))
            continue
        if damage:
            warnings.warn(f"{'; '.join(damage)}. Going on from {candidate}", stacklevel=2)
        return value
    if damage:
        raise DamagedError("; ".join(damage) + ". No complete checkpoint is left: start a new run")
    return None
