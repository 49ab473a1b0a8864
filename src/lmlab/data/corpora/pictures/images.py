"""Pictures with classes (`images`): read from files, split, and kept as memory-mapped bytes of one size."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from lmlab.data.config import DataConfig, Paths
from lmlab.data.corpora.corpus import Corpus, Processor
from lmlab.data.corpora.example_splits import FEWEST, complete_splits
from lmlab.data.corpora.pictures.checking import PictureCheck, check_pictures
from lmlab.data.corpora.pictures.shards import (
    Index,
    digest_sources,
    format_size,
    open_pixels,
    read_index,
    read_rows,
    write_index,
    write_shard,
)
from lmlab.data.corpora.pictures.split import PictureSplit
from lmlab.data.corpora.preparing import ReportStage
from lmlab.data.corpora.store import building, open_home
from lmlab.data.readers.examples import Example, Labelled
from lmlab.data.readers.files import cache_folder
from lmlab.data.readers.pictures.decoding import BadPictureError
from lmlab.data.readers.pictures.files import find_pictures
from lmlab.data.readers.pictures.sources import PictureFiles, PictureRow, PictureSource
from lmlab.tokenizers import Tokenizer
from lmlab.tokenizers.processors.pictures import PictureProcessor
from lmlab.tokenizers.processors.pixels import Pixels

SIZED = 1000
"""Pictures whose sizes are looked at, at most, to choose a size for all."""
USUAL = 64
"""Pixels of a side, where pictures differ in size or are larger."""
MULTIPLE = 4
"""A size that is chosen here is a multiple of it, so that patches fit."""
SHOWN = 3
"""Bad pictures that an error names."""


class PictureWarning(UserWarning):
    """Something about the pictures of a data set that a user should know."""


class PicturesConfig(DataConfig):
    """Settings of all kinds of data that have pictures."""

    valid: Paths | None = Field(None, description="validation pictures; by default a part of the training pictures")
    test: Paths | None = Field(None, description="test pictures; by default a part, if valid is not given")
    split: list[float] = Field([0.8, 0.1, 0.1], description="fractions for training, validation and test")
    columns: dict[str, str] = Field({}, description="of a table: the column of picture, label, caption, question …")
    size: int | list[int] | None = Field(
        None, description="pixels of a side, or [height, width]; by default that of the pictures, up to 64"
    )
    channels: Literal[1, 3] | None = Field(None, description="1 for grey, 3 for colour; by default as the pictures are")
    resize: Literal["stretch", "crop", "pad"] | None = Field(
        None, description="to another shape: stretch (default), crop the centre, or pad"
    )
    bad: Literal["refuse", "skip"] = Field("refuse", description="files that are no pictures: refuse, or skip them")

    @property
    def sides(self) -> tuple[int, int] | None:
        """Height and width, if they are given."""
        if self.size is None:
            return None
        sides = [self.size, self.size] if isinstance(self.size, int) else self.size
        if len(sides) != 2 or any(side < 1 for side in sides):
            raise ValueError(f"data.size = {self.size}: give one number of pixels, or [height, width]")
        return sides[0], sides[1]


class ImagesConfig(PicturesConfig):
    """Pictures, each with its class if it has one."""

    PATHS: ClassVar[tuple[str, ...]] = ("images", "valid", "test")
    what: ClassVar[str] = "pictures"

    kind: Literal["images"] = "images"
    images: Paths = Field(description="folder with a folder for each class, .tsv, .csv, .jsonl, .zip or IDX files")

    def usual_tokenizer(self, of_system: str | None) -> str | None:
        """Pixels for a system that reads tokens; none for one that reads pictures."""
        return None if of_system is None else Pixels().spec


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """The pictures of a data set, prepared."""

    processor: PictureProcessor
    splits: Mapping[str, PictureSplit]
    digest: str
    """A SHA-256 of the pictures, classes and texts, and of how they are split."""
    folder: Path
    check: PictureCheck


def prepare(
    config: ImagesConfig,
    *,
    processor: str | Processor | None = None,
    source: str | Tokenizer | None = None,
    media: Processor | None = None,
    progress: ReportStage | None = None,
) -> Corpus:
    """Return the corpus of a recipe's pictures; `media` is the processor of a run that is resumed or continued."""
    if isinstance(processor, Pixels) or (isinstance(processor, str) and processor.partition(":")[0] == Pixels.kind):
        from lmlab.data.corpora.pictures.pixels import prepare_pixels

        return prepare_pixels(config, processor, progress=progress)
    given = media if media is not None else processor
    return make_corpus(open_pictures(config, config.images, given=given, progress=progress))


def make_corpus(found: Pictures) -> Corpus:
    """Return the corpus of pictures that were opened."""
    key = hashlib.sha256(f"{found.digest} {found.processor.fingerprint}".encode()).hexdigest()
    return Corpus(
        processor=found.processor,
        train=found.splits["train"],
        valid=found.splits.get("valid"),
        test=found.splits.get("test"),
        fingerprint=key,
        text_fingerprint=found.digest,
        folder=found.folder,
        media=found.processor,
        checked=found.check.lines(),
    )


def open_pictures(
    config: PicturesConfig,
    paths: Sequence[str],
    *,
    given: Processor | str | None,
    progress: ReportStage | None,
    largest: int = USUAL,
) -> Pictures:
    """Find, split, decode and resize pictures, or take them from the cache; bad files are refused or skipped.

    Without a size of their own they are as large as most of them, up to `largest` pixels a side.
    """
    report = progress or (lambda stage, done, total: None)
    parts, digests, problems = split_pictures(config, paths, report)
    processor = choose_processor(config, [row.picture for row in parts["train"]], given, largest=largest)
    digest = _fingerprint(parts, digests)
    key = hashlib.sha256(f"pictures {digest} {processor.storage_fingerprint} {config.bad}".encode()).hexdigest()
    folder = open_home(cache_folder()) / f"pictures-{key[:32]}"
    index = read_index(folder, key, processor) or _write(folder, key, parts, digests, processor, config, report)
    _warn_of_bad([*problems, *index.problems])
    splits = {}
    for name, shard in index.shards.items():
        rows = read_rows(folder / name, shard)
        pixels = open_pixels(folder / name, shard, processor)
        splits[name] = PictureSplit(pixels, rows.pictures, rows.labels, rows.names, rows.fields, rows.regions)
    bad = [*problems, *index.problems]
    size = format_size(processor.height, processor.width)
    read = {name: set(split.names) for name, split in splits.items()}
    kept = {name: [row for row in parts[name] if row.picture.name in names] for name, names in read.items()}
    check = check_pictures(kept, digests, sizes=index.sizes, size=size, bad=bad)
    return Pictures(processor=processor, splits=splits, digest=digest, folder=folder, check=check)


def split_pictures(
    config: PicturesConfig, paths: Sequence[str], report: ReportStage
) -> tuple[dict[str, list[PictureRow]], dict[PictureSource, str], list[str]]:
    """Return the rows of each split, the digests of their pictures, and a line for each picture that is skipped."""
    files = find_files(config, paths)
    parts = {name: rows for name in ("train", "valid", "test") if (rows := getattr(files, name)) is not None}
    digests, problems = _digest(parts, report)
    _refuse(problems, config)
    kept = {name: [row for row in rows if row.picture in digests] for name, rows in parts.items()}
    if not kept["train"]:
        raise ValueError(f"{', '.join(paths)}: there is no picture that can be read")
    return split_rows(kept, digests, fractions=config.split, name=", ".join(paths)), digests, problems


def find_files(config: PicturesConfig, paths: Sequence[str]) -> PictureFiles:
    """Return the rows that settings name, by split, before any picture is read."""
    if len(paths) != 1:
        raise ValueError(f"{len(paths)} paths of pictures: give one, and --valid and --test for the others")
    files = find_pictures(paths[0], columns=config.columns)
    if config.valid is not None:
        files = replace(files, valid=find_pictures(config.valid[0], columns=config.columns).train)
    if config.test is not None:
        files = replace(files, test=find_pictures(config.test[0], columns=config.columns).train)
    return files


def _digest(
    parts: Mapping[str, Sequence[PictureRow]], report: ReportStage
) -> tuple[dict[PictureSource, str], list[str]]:
    """Return the digest of each row's picture, and the problems of those without one."""
    sources = list(dict.fromkeys(row.picture for rows in parts.values() for row in rows))
    found = digest_sources(sources, lambda done, total: report("reading pictures", done, total))
    pairs = list(zip(sources, found, strict=True))
    digests = {source: each for source, each in pairs if isinstance(each, str)}
    return digests, [str(each) for _, each in pairs if isinstance(each, BadPictureError)]


def _refuse(problems: Sequence[str], config: PicturesConfig) -> None:
    """Raise a ValueError that names the first bad pictures, unless these are to be skipped."""
    if problems and config.bad == "refuse":
        more = f" (and {len(problems) - SHOWN:,} more)" if len(problems) > SHOWN else ""
        raise ValueError(
            f"{'; '.join(problems[:SHOWN])}{more}. Remove them, or leave them out with --set data.bad=skip"
        )


def _warn_of_bad(problems: Sequence[str]) -> None:
    for problem in problems:
        warnings.warn(f"skipped: {problem}", PictureWarning, stacklevel=4)


def split_rows(
    parts: Mapping[str, Sequence[PictureRow]],
    digests: Mapping[PictureSource, str],
    *,
    fractions: Sequence[float],
    name: str,
) -> dict[str, list[PictureRow]]:
    """Return the rows with validation and test rows, taken from train where there are none.

    Equal pictures stay together. Each class is split separately, so that every split has its fraction of it.
    """
    kinds = {split: len({digests[row.picture] for row in rows}) for split, rows in parts.items()}
    if len(fractions) > 1 and "valid" not in parts and kinds["train"] < FEWEST:
        raise ValueError(
            f"{name}: {kinds['train']} different pictures are too few to split; give more, or pictures to hold out "
            "(--valid, --test)"
        )
    rows = [row for own in parts.values() for row in own]
    numbers = iter(range(len(rows)))
    examples = {
        split: [Example(digests[row.picture], label=row.label, line=next(numbers)) for row in own]
        for split, own in parts.items()
    }
    labelled = Labelled(
        task="classification",
        train=examples["train"],
        valid=examples.get("valid"),
        test=examples.get("test"),
    )
    done = complete_splits(labelled, fractions=fractions)
    chosen = {"train": done.train, "valid": done.valid, "test": done.test}
    return {split: [rows[each.line] for each in own] for split, own in chosen.items() if own}


def choose_processor(
    config: PicturesConfig, sources: Sequence[PictureSource], given: Processor | str | None, *, largest: int = USUAL
) -> PictureProcessor:
    """Return the processor of a run, with the size that settings name, or one that suits the pictures."""
    changes: dict[str, Any] = {"channels": config.channels, "resize": config.resize}
    if config.sides is not None:
        changes |= {"height": config.sides[0], "width": config.sides[1]}
    changes = {name: value for name, value in changes.items() if value is not None}
    if isinstance(given, PictureProcessor):
        return PictureProcessor.from_settings({**given.model_dump(), **changes}, where="data")
    if given is not None:
        raise ValueError(f"pictures need a picture processor, not {given!r}; leave the tokenizer out")
    height, width, channels = _usual_size(sources, largest)
    return PictureProcessor.from_settings({"height": height, "width": width, "channels": channels, **changes})


def _usual_size(sources: Sequence[PictureSource], largest: int) -> tuple[int, int, int]:
    """The size that most pictures have, if it is small, else `largest`; grey if all are grey."""
    sizes: Counter[tuple[int, int]] = Counter()
    channels = 1
    for source in sources[:: max(1, len(sources) // SIZED)]:
        try:
            height, width, own = source.size()
        except BadPictureError:
            continue
        sizes[height, width] += 1
        channels = max(channels, own)
    (height, width), count = sizes.most_common(1)[0] if sizes else ((largest, largest), 0)
    if count * 2 <= sizes.total() or max(height, width) > largest:
        return largest, largest, channels
    return max(MULTIPLE, height // MULTIPLE * MULTIPLE), max(MULTIPLE, width // MULTIPLE * MULTIPLE), channels


def _write(
    folder: Path,
    key: str,
    parts: Mapping[str, Sequence[PictureRow]],
    digests: Mapping[PictureSource, str],
    processor: PictureProcessor,
    config: PicturesConfig,
    report: ReportStage,
) -> Index:
    """Decode all pictures into a new folder of the cache; nothing is left of it after an error."""
    total, before, shards = sum(map(len, parts.values())), 0, {}
    problems: list[str] = []
    sizes: Counter[str] = Counter()
    with building(folder, key, read=lambda where, own: read_index(where, own, processor)) as new:
        for name, rows in parts.items():
            own = [digests[row.picture] for row in rows]
            written = write_shard(new / name, rows, own, processor, _counted(report, before, total))
            shards[name] = written.shard
            problems += written.problems
            sizes += written.sizes
            before += len(rows)
        _refuse(problems, config)
        if not shards["train"].rows:
            raise ValueError(f"there is no picture that can be read; the first: {problems[0]}")
        shards = {name: shard for name, shard in shards.items() if shard.rows}
        write_index(new, key, shards, problems, sizes)
    index = read_index(folder, key, processor)
    if index is None:
        raise ValueError(f"{folder} was removed while it was being written; run the command again")
    return index


def _counted(report: ReportStage, before: int, total: int) -> Callable[[int], None]:
    return lambda done: report("decoding pictures", before + done, total)


def _fingerprint(parts: Mapping[str, Sequence[PictureRow]], digests: Mapping[PictureSource, str]) -> str:
    """Return a SHA-256 of the pictures, classes, texts and regions of all splits, wherever their files are."""
    digest = hashlib.sha256()
    for name, rows in parts.items():
        digest.update(f"\n{name}\n".encode())
        for row in rows:
            record = [digests[row.picture], row.label, sorted(row.texts.items())]
            digest.update(json.dumps(record, ensure_ascii=False).encode())
            if row.regions is not None:
                digest.update(row.regions.boxes.tobytes() + " ".join(row.regions.names).encode())
                digest.update(b"" if row.regions.features is None else row.regions.features.tobytes())
    return digest.hexdigest()
