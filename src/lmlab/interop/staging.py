"""A folder that appears whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lmlab.files import writing_folder
from lmlab.parsing import load_json

EXPORT = "lmlab.json"
"""What a Hugging Face folder of ours has, and nobody else's."""


def check_target(path: Path, *, overwrite: bool) -> None:
    """Raise a ValueError if `path` exists and is not a run or an export of lmlab.

    A file is never replaced by a folder.
    """
    if not os.path.lexists(path) or (path.is_dir() and not any(path.iterdir())):
        return
    if not path.is_dir():
        raise ValueError(f"{path} exists already, and is not a folder; choose another name")
    if not is_ours(path):
        raise ValueError(
            f"{path} exists and is neither a run nor a folder that lmlab has exported, so it is not replaced; "
            "choose another name"
        )
    if not overwrite:
        raise ValueError(f"{path} exists already; choose another name, or replace it with --overwrite")


def is_ours(folder: Path) -> bool:
    """Whether lmlab has made a folder: a run, or one for `transformers`."""
    return any(_says(folder / name, {"kind", "version", "model"}) for name in ("config.json", EXPORT))


def _says(path: Path, keys: set[str]) -> bool:
    try:
        content = load_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and keys <= content.keys()


@contextmanager
def staged(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """A new folder to fill, which takes its place at `path` when all has gone well, and is gone otherwise."""
    check_target(path, overwrite=overwrite)
    path = path.resolve()  # a symbolic link stays; what it leads to is replaced

    def is_free() -> bool:
        check_target(path, overwrite=overwrite)  # once more: filling it takes a while
        return True

    with writing_folder(path, new=path.with_name(f".{path.name}.{os.getpid()}.new"), wanted=is_free) as new:
        yield new
