"""Folders of labelled examples: with a file for each split, or with a folder for each class."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from lmlab.data.readers.examples import Example
from lmlab.data.readers.files import list_folder, read_text
from lmlab.data.readers.media import ABOUT

SPLITS = {
    "train": ("train", "training"),
    "valid": ("dev", "valid", "val", "validation", "development", "testa"),
    "test": ("test", "testb", "testing"),
}
SPLIT_OF = {name: split for split, names in SPLITS.items() for name in names}
ENDINGS = (".tsv", ".csv", ".json", ".jsonl", ".ndjson", ".txt", ".conll", ".conllu", ".iob", ".bio", ".gz", "")
TABLES = (".tsv", ".csv", ".json", ".jsonl", ".ndjson", ".conll", ".conllu", ".zip")
"""Endings of files that are not the text of one example: a folder of such folders holds several data sets."""
WITHOUT_CLASS = ("unsup",)
"""IMDB's folder of reviews without a label."""


class Parts(NamedTuple):
    """Where the examples of each split are: files, or folders of class folders."""

    paths: dict[str, Path]
    notes: tuple[str, ...] = ()


def find_parts(folder: Path) -> Parts:
    """Return the files or folders of each split; the folder itself as train if it has a folder for each class."""
    inside = list_folder(folder)
    files = [path for path in inside if path.is_file() and ABOUT.fullmatch(path.name) is None]
    by_split = _by_split(files)
    if "train" in by_split:
        return _choose(by_split, folder)
    folders = _by_split([path for path in inside if path.is_dir()])
    if "train" in folders and all(find_classes(path) for paths in folders.values() for path in paths):
        return _choose(folders, folder)
    if find_classes(folder):
        return Parts({"train": folder})
    if "train" in folders:
        raise ValueError(f"{folders['train'][0]}: it needs a folder for each class, with the texts in it")
    readable = [path for path in files if path.suffix.lower() in ENDINGS]
    if len(readable) == 1:
        return Parts({"train": readable[0]})
    names = ", ".join(path.name for path in inside[:5]) + (" …" if len(inside) > 5 else "")
    raise ValueError(
        f"{folder} has neither a file named train nor a folder of texts for each class (it has {names or 'nothing'}); "
        f"give the file"
    )


def find_classes(folder: Path) -> dict[str, list[Path]]:
    """Return the text files of each class, by the names of the folders; nothing if there are fewer than two."""
    classes: dict[str, list[Path]] = {}
    for path in list_folder(folder):
        if path.is_dir() and path.name not in WITHOUT_CLASS:
            texts = [text for text in list_folder(path) if text.is_file()]
            if any(text.suffix.lower() in TABLES for text in texts):
                return {}
            if texts:
                classes[path.name] = texts
    return classes if len(classes) > 1 else {}


def read_classes(folder: Path) -> list[Example]:
    """Return an example for each text in a folder of class folders."""
    classes = find_classes(folder)
    if not classes:
        raise ValueError(f"{folder} has no folder for each class; name folders after classes, with a text in each file")
    return [
        Example(text, label=name, source=str(path))
        for name, paths in classes.items()
        for path in paths
        if (text := read_text(path).strip())
    ]


def find_split(name: str) -> str | None:
    """Return the split in the name of a file: `dev.tsv`, `eng.testa`, `en_ewt-ud-train.conllu`."""
    found = {SPLIT_OF[word] for word in re.split(r"[\W_\d]+", name.lower()) if word in SPLIT_OF}
    return found.pop() if len(found) == 1 else None


def _by_split(paths: list[Path]) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in paths:
        if (split := find_split(path.name)) is not None:
            found.setdefault(split, []).append(path)
    return found


def _choose(by_split: dict[str, list[Path]], folder: Path) -> Parts:
    paths: dict[str, Path] = {}
    notes: list[str] = []
    for split, given in by_split.items():
        found = [path for path in given if "mismatched" not in path.name]  # MNLI's second dev set
        if len(found) < len(given):
            left = next(path for path in given if path not in found)
            notes.append(f"{left.name} is left out; name it with --{split} to use it")
        if len(found) != 1:
            names = " and ".join(path.name for path in found)
            raise ValueError(f"{folder} has several files for {split} ({names}); give the file, and --valid, --test")
        paths[split] = found[0]
    return Parts(paths, tuple(notes))
