"""A run directory on disk: JSON and safetensors, each file hashed, nothing half written, no pickle.

No tensor format notices a flipped bit, so every checkpoint has a `manifest.json` with the SHA-256 of its files, checked
on loading. A folder is written under a temporary name, synced to disk and renamed; the one before it is kept as
`previous/`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import safetensors
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from lmlab import __version__
from lmlab.config import build
from lmlab.models import load_class
from lmlab.models.model import ReadsLetters

if TYPE_CHECKING:
    from lmlab.models.model import Model
    from lmlab.tokenizers import Tokenizer
    from lmlab.tokenizers.frames import Frame

MANIFEST = "manifest.json"
TASK = "task.json"
"""What a fine-tuned run keeps its task in."""
MODEL = "model.safetensors"
HEADS = "head.safetensors"
"""The weights of what was learnt besides the model, for a task."""
READ = {
    *("config.json", "tokenizer.json", "source_tokenizer.json", "frame.json", "recipe.json", TASK, MODEL, HEADS),
    *("progress.json", "average.json"),
}
"""The files of a run that are read again, whose hashes its manifest keeps; others may come and go."""
T = TypeVar("T")


class DamagedError(ValueError):
    """A file of a checkpoint is missing, or is not what was written."""


class FullDiskError(ValueError):
    """A file could not be written because there is no room for it; what was there before is whole."""


NO_ROOM = {errno.ENOSPC: "no space left on device", errno.EDQUOT: "disk quota exceeded", errno.EFBIG: "file too large"}


def find_no_room(error: BaseException) -> str | None:
    """In words, why there is no room for a file, where that is what an error says; safetensors hides it in its text."""
    hidden = re.search(r"os error (\d+)", str(error)) if isinstance(error, safetensors.SafetensorError) else None
    number = int(hidden[1]) if hidden else error.errno if isinstance(error, OSError) else None
    return NO_ROOM.get(number) if number is not None else None


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """A temporary name under which to write a file, synced and renamed at the end; it is gone where that fails.

    What is no file (a pipe, `/dev/null`) is written to as it is, and a link leads to what is written.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    path = path.resolve() if path.is_symlink() else path
    new = path.with_name(f".{path.name}.new")
    try:
        yield new
        with open(new, "rb") as file:
            os.fsync(file.fileno())
        os.replace(new, path)
    except (OSError, safetensors.SafetensorError) as error:
        new.unlink(missing_ok=True)
        if (reason := find_no_room(error)) is not None:
            named = path.with_name(path.name.removeprefix(".").removesuffix(".staged"))
            raise FullDiskError(f"{reason}: {named} could not be written") from None
        raise
    sync_folder(path.parent)


# Single files


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that after a crash it is either the old one or the new one, whole."""
    with writing(path) as new:
        new.write_bytes(content)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file for people to read, safely."""
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """The content of a JSON file; a DamagedError names it where it does not parse."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DamagedError(f"{path} is missing") from None
    except (ValueError, OSError) as error:
        raise DamagedError(f"{path} is damaged: {error}") from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor], *, metadata: dict[str, str] | None = None) -> None:
    """Write tensors as safetensors, safely."""
    with writing(path) as new:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, new, metadata=metadata)
        new.chmod(0o666 & ~_umask())  # safetensors makes files that only their owner can read


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; a DamagedError names it where it does not parse."""
    try:
        return load_file(path)
    except FileNotFoundError:
        raise DamagedError(f"{path} is missing") from None
    except (safetensors.SafetensorError, ValueError, OSError) as error:
        raise DamagedError(f"{path} is damaged: {error}") from None


def sync_folder(path: Path) -> None:
    """Make renames in a folder durable (where the system can)."""
    if os.name == "posix":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# Manifests


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, also: Mapping[str, str] | None = None) -> None:
    """Record the hash of every file in a run that is read again.

    `also` names hashes that a file may have besides: while a file is being replaced, both the old and the new one count
    as good, so that a crash between the two renames leaves nothing damaged.
    """
    hashes = {name: [digest(folder / name)] for name in sorted(READ) if (folder / name).is_file()}
    for name, value in (also or {}).items():
        hashes.setdefault(name, []).append(value)
    write_json(folder / MANIFEST, hashes)


def digest_weights(run: Path) -> str | None:
    """The SHA-256 of the weights of a run; None where it has none."""
    return digest(run / MODEL) if (run / MODEL).is_file() else None


def verify(folder: Path) -> None:
    """Compare each file with the manifest; a DamagedError names the first that differs."""
    for name, hashes in read_json(folder / MANIFEST).items():
        path = folder / name
        if name == "scores.json":  # manifests of 0.4 name it, though nothing reads it
            continue
        if not path.is_file():
            raise DamagedError(f"{path} is missing")
        if digest(path) not in hashes:
            raise DamagedError(f"{path} is damaged: its SHA-256 is not the one in {MANIFEST}")


def replace_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Replace one tensor file of a folder together with its entry in the manifest."""
    staged = path.with_name(f".{path.name}.staged")
    try:
        write_tensors(staged, tensors)
        write_manifest(path.parent, also={path.name: digest(staged)})
    except (OSError, FullDiskError):
        staged.unlink(missing_ok=True)
        raise
    os.replace(staged, path)
    sync_folder(path.parent)
    write_manifest(path.parent)


# Folders that change as a whole


def write_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Write a folder of files as one: `fill` it under another name, hash it, then let it take its place."""
    new, previous = path.with_name(f"{path.name}.new"), path.with_name("previous")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        fill(new)
        files = [file for file in sorted(new.iterdir()) if file.suffix in (".json", ".safetensors")]
        write_json(new / MANIFEST, {file.name: [digest(file)] for file in files})
    except BaseException:  # who presses Ctrl-C wants nothing half written either
        shutil.rmtree(new, ignore_errors=True)
        raise
    if path.exists():
        shutil.rmtree(previous, ignore_errors=True)
        path.rename(previous)
    new.rename(path)
    sync_folder(path.parent)


def read_folder(path: Path, read: Callable[[Path], T]) -> T | None:
    """Read the newest whole copy of a folder written by `write_folder`; None where there was none yet."""
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
        raise DamagedError("; ".join(damage) + ". No whole checkpoint is left: start the run anew")
    return None


# Models


def model_tensors(model: Any) -> dict[str, Tensor]:
    """The weights of a model by name, tied ones once (under their first name)."""
    if not isinstance(model, nn.Module):
        tensors: dict[str, Tensor] = model.tensors()
        return tensors
    seen: set[int] = set()
    result: dict[str, Tensor] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            result[name] = tensor.detach().cpu()
    return result


def load_weights(
    model: nn.Module, tensors: Mapping[str, Tensor], *, source: Path, into: str = "the model in config.json"
) -> None:
    """Copy weights into a model or into heads; a ValueError names what does not fit."""
    expected, tensors = model_tensors(model), with_new_names(tensors, type(model))
    missing = sorted(expected.keys() - tensors.keys())
    extra = sorted(tensors.keys() - expected.keys())
    shapes = [
        f"{name} is {list(tensors[name].shape)}, not {list(expected[name].shape)}"
        for name in expected.keys() & tensors.keys()
        if tensors[name].shape != expected[name].shape
    ]
    if missing or extra or shapes:
        parts = (("missing", missing), ("unexpected", extra), ("of another shape", sorted(shapes)))
        problems = [f"{what}: {_some(names)}" for what, names in parts if names]
        raise ValueError(f"{source} does not fit {into}: {'; '.join(problems)}")
    model.load_state_dict(dict(tensors), strict=False)


def with_new_names(tensors: Mapping[str, Tensor], kind: type) -> dict[str, Tensor]:
    """Tensors by the names that they have today: a model says in RENAMED which ones it once saved under others."""
    renamed: Mapping[str, str] = getattr(kind, "RENAMED", {})
    return {renamed.get(name, name): tensor for name, tensor in tensors.items()}


def _some(names: list[str]) -> str:
    """At most three of several names, and how many more there are."""
    return ", ".join(names[:3]) + (f", … and {len(names) - 3} more" if len(names) > 3 else "")


def copy_weights(model: Model, run: Path) -> None:
    """Begin a model with the weights of a run; tokens that its vocabulary lacks begin with what the model drew."""
    tensors, fresh = _best_weights(run), model_tensors(model)
    vocabularies = (getattr(model, "vocabulary", 0), read_json(run / "config.json")["model"].get("vocabulary", 0))
    more = int(vocabularies[0]) - int(vocabularies[1])
    if more > 0:
        for name in tensors.keys() & fresh.keys():
            old, new = tensors[name], fresh[name]
            if old.dim() and old.shape[1:] == new.shape[1:] and len(new) == len(old) + more:
                tensors[name] = torch.cat([old.to(new.dtype), new[len(old) :]])
        warnings.warn(
            f"the vocabulary of {run} grows by {more} special token{'s' * (more > 1)}, which the objective needs; "
            "what stands for them begins at random",
            stacklevel=2,
        )
    load_weights(model, model.adapt(tensors, fresh), source=run / MODEL)


def load_heads(run: str | Path, heads: nn.Module) -> None:
    """Copy the heads that a run has learnt into new ones of the same shapes, a `ModuleDict` by name."""
    load_weights(heads, read_heads(run), source=Path(run) / HEADS, into="these heads")


def read_heads(run: str | Path) -> dict[str, Tensor]:
    """The weights of the heads that a run has learnt, by name."""
    run = Path(run)
    if not (run / HEADS).is_file():
        raise ValueError(f"{run} has no {HEADS}: it was not trained for a task")
    return _best_weights(run, HEADS)


def read_mix(run: Path, *, name: str | None = None) -> tuple[str, dict[str, Tensor]]:
    """The task of a run, and the `scores` and `gamma` of the mix of layers that it has learnt, in heads or body.

    Errors call the run by `name`, or by its path.
    """
    name = name or str(run)
    if not (run / TASK).is_file():
        raise ValueError(f"{name} has not learnt a task: lmlab finetune RUN DATA -o {name} --how mix")
    found = read_heads(run)
    if "mix.scores" not in found and (run / "config.json").is_file():
        found = with_new_names(_best_weights(run), load_class(read_json(run / "config.json")["kind"]))
    if "mix.scores" not in found:
        raise ValueError(
            f"{name} has learnt no mix of layers: fine-tune with --how mix, or a tagger with --states RUN "
            "--set objective.state_layers=mix"
        )
    mix = {key.removeprefix("mix."): tensor for key, tensor in found.items() if key.startswith("mix.")}
    return str(read_json(run / TASK).get("kind", "task")), mix


def write_config(run: Path, kind: str, config: Mapping[str, Any]) -> None:
    """Write what kind of model a run holds."""
    write_json(run / "config.json", {"kind": kind, "version": __version__, "model": dict(config)})


def load_model(run: str | Path) -> tuple[Any, Tokenizer | None]:
    """The model of a run directory, checked against the manifest, and its tokenizer if it reads text.

    A damaged `model.safetensors` is named in a warning and the weights of the last checkpoint are taken, if whole.
    """
    run = Path(run)
    if not (run / "config.json").is_file():
        raise ValueError(
            f"{run} is not a run directory: it has no config.json (make one with: lmlab train MODEL TEXT -o {run})"
        )
    description = read_json(run / "config.json")
    if not isinstance(description, dict) or not {"kind", "model"} <= description.keys():
        raise DamagedError(f"{run / 'config.json'} is damaged: it does not name the kind of model and its settings")
    cls = load_class(description["kind"])
    config = build(cls.Config, description["model"], where=f"{run / 'config.json'}: model")
    tensors = _best_weights(run)
    model: Any
    if issubclass(cls, nn.Module):
        network = cls(config)
        load_weights(network, tensors, source=run / MODEL)
        model = network.eval()
    else:
        model = cls.from_tensors(config, tensors)
    tokenizer = load_tokenizer(run, needed="vocabulary" in cls.Config.model_fields)
    teach_letters(model, tokenizer)
    return model, tokenizer


def teach_letters(model: object, tokenizer: Tokenizer | None) -> None:
    """Tell a model that reads letters how the tokens of a tokenizer are spelled."""
    from lmlab.tokenizers.spellings import Spellings

    if isinstance(model, ReadsLetters) and tokenizer is not None:
        model.spell_by(Spellings(tokenizer, letters=model.config.letters))


def load_tokenizer(run: str | Path, *, name: str = "tokenizer.json", needed: bool = False) -> Tokenizer | None:
    """The tokenizer of a run; None where it has none, unless it is `needed`."""
    from lmlab.tokenizers import Tokenizer

    path = Path(run) / name
    return Tokenizer.load(path) if needed or path.is_file() else None


def load_source_tokenizer(run: str | Path) -> Tokenizer | None:
    """The tokenizer of a translator's source, where it has one of its own."""
    return load_tokenizer(run, name="source_tokenizer.json")


def load_frame(run: str | Path, model: object, tokenizer: Tokenizer) -> Frame:
    """What stands around the texts of a run: its `frame.json`, or what follows from the rest of an older one."""
    from lmlab.tokenizers.frames import FILE, Frame, frame_of

    run = Path(run)
    if (run / FILE).is_file():
        return Frame.load(run)
    recipe = read_json(run / "recipe.json") if (run / "recipe.json").is_file() else {}
    objective = recipe.get("objective") if isinstance(recipe, dict) else None
    backwards = isinstance(objective, dict) and bool(objective.get("reverse_source"))
    return frame_of(model, tokenizer, load_source_tokenizer(run), backwards=backwards)


def _best_weights(run: Path, name: str = MODEL) -> dict[str, Tensor]:
    """The tensors of a file of a run that are the best on validation data; where it is damaged, the latest ones."""
    try:
        if (run / MANIFEST).is_file():
            verify(run)
        return read_tensors(run / name)
    except DamagedError as error:
        if not any(str(run / each) in str(error) for each in (MODEL, HEADS)):
            raise
        last = read_folder(run / "last", lambda folder: read_tensors(folder / name))
        if last is None:
            raise DamagedError(f"{error}, and there is no checkpoint in {run / 'last'} to take its place") from None
        warnings.warn(f"{error}. Taking the last checkpoint instead", stacklevel=3)
        return last
