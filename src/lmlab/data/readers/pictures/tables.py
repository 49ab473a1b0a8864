"""Tables of pictures: TSV, CSV or JSON with a path in each row, and a class, a caption, or a question and its answer.

Paths are relative to the table, or are entries of a zip file next to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from lmlab.config import suggest
from lmlab.data.readers.files import is_file, list_folder, read_whole, shorten
from lmlab.data.readers.labelled.column_types import clean
from lmlab.data.readers.labelled.tables import ParsedTable, parse_csv, parse_json, parse_tsv
from lmlab.data.readers.pictures import nlvr
from lmlab.data.readers.pictures.regions import check_regions
from lmlab.data.readers.pictures.sources import (
    Archive,
    FileSource,
    PictureRow,
    PictureSource,
    Regions,
    RegionSource,
    ZipSource,
)

NAMES: dict[str, tuple[str, ...]] = {
    "picture": ("picture", "image", "path", "file", "filename", "file_name", "image_path", "img", "photo"),
    "caption": ("caption", "text", "description", "name", "title"),
    "question": ("question",),
    "sentence": ("sentence", "statement"),
    "command": ("command", "instruction"),
    "action": ("action",),
    "label": ("label", "class", "category", "answer", "target", "truth", "is_true"),
    "regions": ("regions", "boxes", "objects"),
}
"""Names of columns by field; the first that a table has is read."""
TEXTS = ("caption", "question", "sentence", "command", "action")


class Zipped(NamedTuple):
    """An entry of a zip file next to a table."""

    archive: Archive
    entry: str


def read_table(path: Path, *, columns: Mapping[str, str] | None = None) -> list[PictureRow]:
    """Return the rows of a table; a ValueError names the line that has no picture, or a column that is missing."""
    table = _parse(path)
    if not columns and nlvr.COLUMN in (table.names or ()):
        return nlvr.read_scenes(table)
    found = _find_columns(table, columns or {})
    places = _Places(path)
    rows = []
    for cells, line in zip(table.rows, table.lines, strict=True):
        where = f"{path}, line {line}"
        texts = {field: clean(cells[found[field]]) for field in TEXTS if field in found}
        label = clean(cells[found["label"]]) if "label" in found else None
        regions = _read_regions(cells[found["regions"]], where=where) if "regions" in found else None
        picture = _find_picture(cells, found, regions, places, where=where)
        rows.append(PictureRow(picture, label or None, texts, regions, where))
    if not rows:
        raise ValueError(f"{path} has no rows")
    return rows


def _find_picture(
    cells: Sequence[Any], found: Mapping[str, int], regions: Regions | None, places: _Places, *, where: str
) -> PictureSource:
    """The picture of a row; of a table without pictures, the vectors of its regions stand for it."""
    if "picture" in found:
        name = clean(cells[found["picture"]])
        if not name:
            raise ValueError(f"{where}: the column of the picture's path is empty")
        return places.find(name, where=where)
    if regions is None or regions.features is None:
        raise ValueError(f"{where}: there is no picture, and the regions have no vectors (features); give one of them")
    content = regions.boxes.tobytes() + regions.features.tobytes()
    return RegionSource(where, group=hashlib.sha256(content).hexdigest())


def _parse(path: Path) -> ParsedTable:
    text, lower = read_whole(path), path.name.lower().removesuffix(".gz")
    if lower.endswith((".json", ".jsonl", ".ndjson")):
        return parse_json(str(path), text)
    table = parse_csv(str(path), text) if lower.endswith(".csv") else parse_tsv(str(path), text)
    return table.take_header().check_even()


def _find_columns(table: ParsedTable, given: Mapping[str, str]) -> dict[str, int]:
    """The index of the column of each field: as given, else by its name."""
    names = [name.strip().lower() for name in table.names or ()]
    found: dict[str, int] = {}
    for field, value in given.items():
        if field not in NAMES:
            raise ValueError(f"--columns {field}=…: unknown field {field!r}{suggest(field, NAMES)}")
        if value.strip().lower() not in names:
            raise ValueError(f"{table.source} has no column {value!r}{suggest(value, table.names or ())}")
        found[field] = names.index(value.strip().lower())
    for field, allowed in NAMES.items():
        free = [names.index(name) for name in allowed if name in names and names.index(name) not in found.values()]
        if field not in found and free:
            found[field] = free[0]
    if "picture" not in found and "regions" not in found:
        raise ValueError(
            f"{table.source}: no column has the path of a picture (columns: {', '.join(table.names or ())}); name it: "
            "--columns picture=NAME"
        )
    return found


class _Places:
    """Finds the pictures that a table names: files relative to it, or entries of zip files next to it."""

    def __init__(self, table: Path) -> None:
        self.folder = table.parent
        self.archives = [Archive(path) for path in list_folder(self.folder) if path.suffix.lower() == ".zip"]
        self._entries: dict[str, Zipped] | None = None

    def find(self, name: str, *, where: str) -> PictureSource:
        path = PurePosixPath(name.replace("\\", "/"))
        if ".." in path.parts:
            raise ValueError(f"{where}: {shorten(name)} leads out of the folder of the table; give a path inside it")
        file = self.folder / path
        if is_file(file) or not self.archives:
            return FileSource(file)
        entry = self.entries.get(str(path)) or self.entries.get(path.name)
        return FileSource(file) if entry is None else ZipSource(*entry)

    @property
    def entries(self) -> dict[str, Zipped]:
        """The entries of all zip files next to the table, by their path and by their name."""
        if self._entries is None:
            found: dict[str, Zipped] = {}
            for archive in self.archives:
                for entry in archive.entries:
                    found.setdefault(PurePosixPath(entry).name, Zipped(archive, entry))
                    found[entry] = Zipped(archive, entry)
            self._entries = found
        return self._entries


def _read_regions(cell: Any, *, where: str) -> Regions:
    """Regions of JSON: a list of boxes [x0, y0, x1, y1], or of objects with `box`, `name` and `features`."""
    if not isinstance(cell, list):
        raise ValueError(f"{where}: regions must be a list, not {shorten(cell)}")
    objects = [each if isinstance(each, dict) else {"box": each} for each in cell]
    try:
        boxes = np.array([each["box"] for each in objects], np.float32).reshape(-1, 4)
        features = [each["features"] for each in objects if "features" in each]
        vectors = np.array(features, np.float32) if features else None
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{where}: each region needs a box of four numbers, left, top, right, bottom") from None
    if vectors is not None and (vectors.ndim != 2 or len(vectors) != len(boxes)):
        raise ValueError(f"{where}: all regions need features of the same length, or none")
    if not np.isfinite(boxes).all() or (vectors is not None and not np.isfinite(vectors).all()):
        raise ValueError(f"{where}: a region has a number that is not finite")
    regions = Regions(boxes, tuple(str(each.get("name", "")) for each in objects), vectors)
    return check_regions(regions, where=where)
