"""Find the pictures of a data set, with their classes or texts: folders, tables, zip files and IDX files.

Nothing is decoded here: rows name their pictures (sources.py).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data.readers.files import check_exists, list_folder
from lmlab.data.readers.labelled.folders import find_split
from lmlab.data.readers.media import ABOUT, ENDINGS
from lmlab.data.readers.pictures.idx import find_labels_file, is_idx, read_idx
from lmlab.data.readers.pictures.sources import (
    Archive,
    ArraySource,
    FileSource,
    PictureFiles,
    PictureRow,
    PictureSource,
    ZipSource,
)

BUILTIN = "builtin:"
BUILTIN_PICTURES: dict[str, str] = {
    **dict.fromkeys(
        ("scenes", "scenes-unseen", "scene-questions", "scene-sentences"),
        "lmlab.data.readers.pictures.scene_files:find_scenes",
    ),
    "signs": "lmlab.data.readers.pictures.signs:find_signs",
    **dict.fromkeys(("world", "world-and-words"), "lmlab.data.readers.robot_world:find_world"),
}
"""Built-in pictures by name (`scenes` for `builtin:scenes`): a function of the name that returns `PictureFiles`."""
TABLES = (".tsv", ".csv", ".json", ".jsonl", ".ndjson")
PICTURES = ENDINGS["images"]


def find_pictures(path: str, *, columns: Mapping[str, str] | None = None) -> PictureFiles:
    """Return the rows of a folder, table, zip file, IDX file or built-in corpus; a ValueError if there are none."""
    if path.startswith(BUILTIN):
        return _find_builtin(path.removeprefix(BUILTIN))
    given = Path(path).expanduser()
    check_exists(given)
    if given.is_dir():
        return _find_in_folder(given, columns)
    if is_idx(given):
        return PictureFiles(train=_idx_rows(given), format="IDX file")
    lower = given.name.lower()
    if lower.removesuffix(".gz").endswith(TABLES):
        from lmlab.data.readers.pictures.tables import read_table

        return PictureFiles(train=read_table(given, columns=columns), format="table of pictures")
    if lower.endswith(".zip"):
        return _by_split(_zip_files(Archive(given)), name=str(given), columns=columns)
    if lower.endswith(PICTURES):
        return PictureFiles(train=[PictureRow(FileSource(given))], format="picture")
    raise ValueError(
        f"{given} contains no pictures: give a folder with a folder for each class, a .tsv, .csv or .jsonl file with "
        f"the "
        "path of a picture in each row, a .zip file, or IDX files (MNIST)"
    )


def list_pictures(paths: Sequence[str | Path]) -> list[Path]:
    """Return the files of pictures, and all pictures of folders; a ValueError names a folder that has none."""
    found: list[Path] = []
    for given in map(Path, paths):
        inside = sorted(path for path in given.rglob("*") if path.suffix.lower() in PICTURES)
        if given.is_dir() and not inside:
            raise ValueError(f"{given} has no picture: {', '.join(PICTURES)} are read")
        found += inside if given.is_dir() else [given]
    if not found:
        raise ValueError("there is no picture: give the path of one")
    return found


def read_named(name: str) -> NDArray[np.uint8] | None:
    """Return the pixels of the picture that a `PictureSource` calls `name`; None where it is no longer there."""
    path, _, number = name.rpartition("#")
    try:
        if Path(name).is_file():
            return FileSource(Path(name)).read()
        if number.isdecimal() and Path(path).is_file() and is_idx(path):
            return ArraySource(_read_idx_once(path), int(number), path).read()
        for parent in Path(name).parents:
            if parent.suffix.lower() == ".zip" and parent.is_file():
                return ZipSource(Archive(parent), Path(name).relative_to(parent).as_posix()).read()
    except (ValueError, KeyError, IndexError, OSError):
        return None
    return None


@lru_cache(1)
def _read_idx_once(path: str) -> NDArray[np.uint8]:
    return read_idx(Path(path))


def _find_builtin(name: str) -> PictureFiles:
    if name not in BUILTIN_PICTURES:
        known = ", ".join(f"{BUILTIN}{each}" for each in BUILTIN_PICTURES) or "none"
        raise ValueError(f"{BUILTIN}{name}: there are no such built-in pictures (known: {known})")
    module, _, function = BUILTIN_PICTURES[name].partition(":")
    read: Callable[[str], PictureFiles] = getattr(importlib.import_module(module), function)
    return read(name)


def _find_in_folder(folder: Path, columns: Mapping[str, str] | None) -> PictureFiles:
    """IDX files, tables named after splits, one table, or pictures in folders."""
    files = [path for path in list_folder(folder) if path.is_file() and ABOUT.fullmatch(path.name) is None]
    if images := [path for path in files if is_idx(path) and "images" in path.name.lower()]:
        return _find_idx(images, folder)
    tables = [path for path in files if path.name.lower().removesuffix(".gz").endswith(TABLES)]
    if tables:
        return _find_tables(tables, folder, columns)
    return _by_split(_folder_files(folder), name=str(folder), columns=columns)


def _find_idx(images: Sequence[Path], folder: Path) -> PictureFiles:
    parts: dict[str, list[PictureRow]] = {}
    for path in images:
        split = "test" if path.name.lower().startswith("t10k") else find_split(path.name) or "train"
        if split in parts:
            raise ValueError(f"{folder} has several IDX files of pictures for {split}; give one file")
        parts[split] = _idx_rows(path)
    if "train" not in parts:
        parts["train"] = parts.pop(next(iter(parts)))
    return _files_of(parts, "IDX files")


def _idx_rows(images: Path) -> list[PictureRow]:
    """The pictures of an IDX file, with the classes of the file next to it if there is one."""
    pixels = read_idx(images)
    if pixels.ndim not in (3, 4) or (pixels.ndim == 4 and pixels.shape[3] not in (1, 3)) or not pixels.size:
        raise ValueError(f"{images} holds an array of shape {pixels.shape}, not pictures")
    beside = find_labels_file(images)
    if beside is None:
        return [PictureRow(ArraySource(pixels, number, str(images))) for number in range(len(pixels))]
    labels = read_idx(beside)
    if labels.shape != pixels.shape[:1]:
        raise ValueError(f"{beside} has {labels.shape} classes for the {len(pixels):,} pictures of {images.name}")
    return [
        PictureRow(ArraySource(pixels, number, str(images)), str(label)) for number, label in enumerate(labels.tolist())
    ]


def _find_tables(tables: Sequence[Path], folder: Path, columns: Mapping[str, str] | None) -> PictureFiles:
    from lmlab.data.readers.pictures.tables import read_table

    by_split: dict[str, Path] = {}
    for path in tables:
        split = find_split(path.name) or ("train" if len(tables) == 1 else None)
        if split is None or split in by_split:
            names = ", ".join(each.name for each in tables)
            raise ValueError(f"{folder} has several tables ({names}); name them train, valid and test, or give one")
        by_split[split] = path
    if "train" not in by_split:
        by_split["train"] = by_split.pop(next(iter(by_split)))
    parts = {split: read_table(path, columns=columns) for split, path in by_split.items()}
    return _files_of(parts, "tables of pictures")


def _files_of(parts: Mapping[str, Sequence[PictureRow]], format: str) -> PictureFiles:
    return PictureFiles(train=parts["train"], valid=parts.get("valid"), test=parts.get("test"), format=format)


class Placed(NamedTuple):
    """A picture and the folders that it is in, relative to the folder or zip file that was given."""

    source: PictureSource
    folders: tuple[str, ...]


def _folder_files(folder: Path) -> Iterator[Placed]:
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.suffix.lower() in PICTURES and path.is_file() and not any(part.startswith(".") for part in parts):
            yield Placed(FileSource(path), parts[:-1])


def _zip_files(archive: Archive) -> Iterator[Placed]:
    for entry in sorted(archive.entries):
        parts = PurePosixPath(entry).parts
        if entry.lower().endswith(PICTURES) and not any(part.startswith((".", "__MACOSX")) for part in parts):
            yield Placed(ZipSource(archive, entry), parts[:-1])


def _by_split(placed: Iterator[Placed], *, name: str, columns: Mapping[str, str] | None) -> PictureFiles:
    """Pictures in a folder for each class, which may be within a folder for each split; or without classes."""
    if columns:
        raise ValueError(f"--columns is for a table, and {name} is a folder or zip file of pictures; leave it out")
    found = list(placed)
    if not found:
        raise ValueError(f"{name} has no picture: {', '.join(PICTURES)} are read")
    shared = _shared_folders([each.folders for each in found])
    inner = [each._replace(folders=each.folders[shared:]) for each in found]
    splits = {each.folders[0]: find_split(each.folders[0]) for each in inner if each.folders}
    parts: dict[str, list[PictureRow]] = {}
    apart = bool(splits) and all(split is not None for split in splits.values()) and "train" in splits.values()
    for each in inner:
        split = splits.get(each.folders[0]) if apart and each.folders else "train"
        folders = each.folders[1:] if apart else each.folders
        row = PictureRow(each.source, folders[0] if folders else None, where=each.source.name)
        parts.setdefault(split or "train", []).append(row)
    classes = any(row.label is not None for rows in parts.values() for row in rows)
    return _files_of(parts, "a folder for each class" if classes else "pictures without classes")


def _shared_folders(folders: Sequence[tuple[str, ...]]) -> int:
    """How many outer folders all pictures share, as in a zip file with one folder; a single class is not one."""
    shared = 0
    while all(len(each) > shared + 1 for each in folders) and len({each[shared] for each in folders}) == 1:
        shared += 1
    return shared
