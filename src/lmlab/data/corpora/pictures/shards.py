"""Pictures on disk: decoded once, resized, and kept as memory-mapped bytes, in bounded memory."""

from __future__ import annotations

import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from lmlab.data.readers.pictures.decoding import BadPictureError
from lmlab.data.readers.pictures.sources import PictureRow, PictureSource, Regions
from lmlab.tokenizers.processors.pictures import PictureProcessor

AHEAD = 256
"""Pictures that are decoded ahead of the one that is written."""
FORMAT = 2
INDEX = "index.json"
Given = TypeVar("Given")
Found = TypeVar("Found")


class PictureShard(NamedTuple):
    """The entry of a split in the index."""

    pictures: int
    rows: int
    regions: int | None  # of all rows; None if rows have no regions
    features: int | None  # length of a region's vector


class WrittenShard(NamedTuple):
    """What writing a split found."""

    shard: PictureShard
    problems: list[str]  # a line for each bad picture
    sizes: Counter[str]  # how many pictures have each size


class Decoded(NamedTuple):
    """A picture in the size of all, or what is wrong with it."""

    pixels: NDArray[np.uint8] | None
    problem: str = ""
    size: str = ""  # of the file: height × width


def workers() -> int:
    """Return the number of threads that read pictures: decoding releases Python's lock."""
    return max(1, min(16, os.cpu_count() or 1))


def digest_sources(sources: Sequence[PictureSource], report: Callable[[int, int], None]) -> list[str | BadPictureError]:
    """Return the digest of each picture, or the error of one that cannot be read, in order."""

    def digest(source: PictureSource) -> str | BadPictureError:
        try:
            return source.digest()
        except BadPictureError as error:
            return error

    found = []
    with ThreadPoolExecutor(workers()) as pool:
        for each in in_order(pool, digest, sources):
            found.append(each)
            report(len(found), len(sources))
    return found


def in_order(pool: ThreadPoolExecutor, work: Callable[[Given], Found], items: Sequence[Given]) -> Iterator[Found]:
    """Yield the results of `work` in the order of the items; at most AHEAD are in memory."""
    waiting: deque[Future[Found]] = deque()
    for item in items:
        waiting.append(pool.submit(work, item))
        if len(waiting) >= AHEAD:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def decode(source: PictureSource, processor: PictureProcessor) -> Decoded:
    """Return a picture in the size of all; the problem in one line if it cannot be read."""
    try:
        pixels = source.read()
        return Decoded(processor.process(pixels), size=format_size(*pixels.shape[:2]))
    except BadPictureError as error:
        return Decoded(None, str(error))


def format_size(height: int, width: int) -> str:
    """A size as text: `28 × 28`."""
    return f"{height} × {width}"


def write_shard(
    stem: Path,
    rows: Sequence[PictureRow],
    digests: Sequence[str],
    processor: PictureProcessor,
    report: Callable[[int], None],
) -> WrittenShard:
    """Write the pictures of a split, each once, and its rows; return its entry, and what was found.

    Rows whose picture cannot be read are left out.
    """
    first: dict[str, PictureSource] = {}
    for row, digest in zip(rows, digests, strict=True):
        first.setdefault(digest, row.picture)
    numbers: dict[str, int] = {}
    problems: list[str] = []
    sizes: Counter[str] = Counter()
    with stem.with_suffix(".pixels").open("wb") as file, ThreadPoolExecutor(workers()) as pool:
        decoded = in_order(pool, lambda source: decode(source, processor), list(first.values()))
        for done, (digest, each) in enumerate(zip(first, decoded, strict=True), 1):
            if each.pixels is None:
                problems.append(each.problem)
            else:
                numbers[digest] = len(numbers)
                sizes[each.size] += 1
                file.write(np.ascontiguousarray(each.pixels).tobytes())
            report(done)
    kept = [(row, numbers[digest]) for row, digest in zip(rows, digests, strict=True) if digest in numbers]
    regions = _write_rows(stem, kept)
    return WrittenShard(PictureShard(len(numbers), len(kept), *regions), problems, sizes)


def _write_rows(stem: Path, rows: Sequence[tuple[PictureRow, int]]) -> tuple[int | None, int | None]:
    """Write classes, texts and regions of rows; return how many regions there are and the length of their vectors."""
    with_regions = [row.regions for row, _ in rows if row.regions is not None]
    with stem.with_suffix(".rows").open("w", encoding="utf-8") as file:
        for row, number in rows:
            record: dict[str, Any] = {"picture": number, "name": row.picture.name, "label": row.label}
            if row.texts:
                record["texts"] = dict(row.texts)
            if row.regions is not None:
                record["regions"] = {"count": len(row.regions.boxes), "names": row.regions.names}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    if not with_regions:
        return None, None
    boxes = np.concatenate([each.boxes for each in with_regions]).astype(np.float32)
    boxes.tofile(stem.with_suffix(".boxes"))
    filled = [each for each in with_regions if len(each.boxes)]
    vectors = [each.features for each in filled if each.features is not None]
    if not vectors:
        return len(boxes), None
    if len(vectors) < len(filled) or len({each.shape[1] for each in vectors}) > 1:
        raise ValueError("all regions need features of the same length, or none")
    np.concatenate(vectors).astype(np.float32).tofile(stem.with_suffix(".features"))
    return len(boxes), vectors[0].shape[1]


class ShardRows(NamedTuple):
    """The rows of a split as they were written."""

    pictures: NDArray[np.int64]
    names: list[str]
    labels: list[str | None]
    fields: dict[str, list[str]]
    regions: list[Regions] | None


def read_rows(stem: Path, shard: PictureShard) -> ShardRows:
    """Return the rows that `write_shard` wrote."""
    records = [json.loads(line) for line in stem.with_suffix(".rows").read_text(encoding="utf-8").splitlines()]
    names = list(dict.fromkeys(name for record in records for name in record.get("texts", {})))
    return ShardRows(
        np.array([record["picture"] for record in records], np.int64),
        [record["name"] for record in records],
        [record["label"] for record in records],
        {name: [record.get("texts", {}).get(name, "") for record in records] for name in names},
        _read_regions(stem, shard, records),
    )


def _read_regions(stem: Path, shard: PictureShard, records: Sequence[Mapping[str, Any]]) -> list[Regions] | None:
    if shard.regions is None:
        return None
    boxes = np.memmap(stem.with_suffix(".boxes"), np.float32, "r", shape=(shard.regions, 4)) if shard.regions else None
    vectors = None
    if shard.features:
        vectors = np.memmap(stem.with_suffix(".features"), np.float32, "r", shape=(shard.regions, shard.features))
    found, start = [], 0
    for record in records:
        own = record.get("regions", {"count": 0, "names": []})
        end = start + own["count"]
        part = np.zeros((0, 4), np.float32) if boxes is None else boxes[start:end]
        found.append(Regions(part, tuple(own["names"]), None if vectors is None else vectors[start:end]))
        start = end
    return found


def open_pixels(stem: Path, shard: PictureShard, processor: PictureProcessor) -> NDArray[np.uint8]:
    """Return the pictures of a split, [P, H, W, C], memory-mapped."""
    shape = (shard.pictures, *processor.shape)
    if not shard.pictures:
        return np.zeros(shape, np.uint8)
    return np.memmap(stem.with_suffix(".pixels"), np.uint8, "r", shape=shape)


def write_index(
    folder: Path, key: str, shards: Mapping[str, PictureShard], problems: Sequence[str], sizes: Mapping[str, int]
) -> None:
    """Write the index, which makes a folder complete."""
    index = {"format": FORMAT, "key": key, "bad": list(problems), "sizes": dict(sizes)}
    index["splits"] = {name: shard._asdict() for name, shard in shards.items()}
    with (folder / INDEX).open("w", encoding="utf-8") as file:
        json.dump(index, file, ensure_ascii=False, indent=1)


class Index(NamedTuple):
    """What a folder of pictures holds."""

    shards: dict[str, PictureShard]
    problems: list[str]
    sizes: dict[str, int]  # how many pictures have each size before they are resized


def read_index(folder: Path, key: str, processor: PictureProcessor) -> Index | None:
    """Return the index of a folder; None if there is none, or a file is missing or has a wrong size."""
    try:
        values: dict[str, Any] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        if values["format"] != FORMAT or values["key"] != key:
            return None
        shards = {name: PictureShard(**entry) for name, entry in values["splits"].items()}
        for name, shard in shards.items():
            sizes = {".pixels": shard.pictures * int(np.prod(processor.shape))}
            if shard.regions is not None:
                sizes[".boxes"] = shard.regions * 16
            if shard.features is not None:
                sizes[".features"] = (shard.regions or 0) * shard.features * 4
            if any((folder / f"{name}{suffix}").stat().st_size != size for suffix, size in sizes.items()):
                return None
            (folder / f"{name}.rows").stat()
        sizes = {str(name): int(number) for name, number in values["sizes"].items()}
        return Index(shards, [str(each) for each in values["bad"]], sizes)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
