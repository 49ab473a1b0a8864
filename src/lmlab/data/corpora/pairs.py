"""Parallel text: sources and their targets as memory-mapped tokens, and kept in the cache as corpora are.

Each side is stored as the lines of a corpus, `[b, line, b, line, b]`, where b is the boundary of its tokenizer. The
special tokens that a model reads around a line come from its frame, not from there.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from lmlab.config import Config
from lmlab.data.config import DataConfig, Paths
from lmlab.data.corpora.corpus import Corpus, Dataset, Processor, TextDataset, TextSplit, Tokens
from lmlab.data.corpora.pair_shards import Choices, StoredPairs, build_folder, files_of, read_folder
from lmlab.data.corpora.preparing import (
    Counter,
    ReportStage,
    Spool,
    as_tokenizer,
    check_tokenizer,
    check_unchanged,
    digest,
    name_of,
    repeat_warnings,
    size_of,
    spooling,
    stamps_of,
)
from lmlab.data.corpora.splitting import main_fractions
from lmlab.data.corpora.store import FORMAT, building, open_home
from lmlab.data.readers.files import cache_folder
from lmlab.data.readers.pairs import Aligned
from lmlab.data.readers.text import Source, TextWarning, find
from lmlab.files import digest_file
from lmlab.tokenizers import Tokenizer

HELD_OUT = ("valid", "test")
Files = str | Path | Sequence[str | Path] | None


@dataclass(frozen=True)
class PairSplit(Dataset):
    """One part of a parallel corpus: row i of `source` belongs to row i of `target`."""

    source: TextSplit
    target: TextSplit

    @property
    def tokens(self) -> Tokens:
        """The predicted tokens: those of the targets, each with a boundary at its end."""
        return self.target.tokens

    @property
    def documents(self) -> NDArray[np.int64]:
        """The position in `tokens` of each target's first token."""
        return self.target.documents

    @property
    def size(self) -> int:
        """The number of predicted tokens."""
        return self.target.size

    @property
    def bytes(self) -> int:
        """The number of bytes of the targets in UTF-8, with a newline after each."""
        return self.target.bytes

    @property
    def words(self) -> int:
        """The number of words of the targets, split at white space."""
        return self.target.words

    def bytes_per_token(self, *, text_alone: bool = False) -> float:
        return self.bytes / max(1, self.size)

    def __len__(self) -> int:
        return len(self.target.documents)

    @cached_property
    def lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The number of tokens of each source and each target, without the boundary at its end."""
        return tuple(_row_lengths(side) for side in (self.source, self.target))  # type: ignore[return-value]

    def row(self, index: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the tokens of a source and of its target."""
        sides = zip((self.source, self.target), self.lengths, strict=True)
        x, y = (side.tokens[int(side.documents[index]) :][: int(lengths[index])] for side, lengths in sides)
        return x, y

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield the source and the target text of each pair, for valid and test."""
        return zip(self.source.texts(), self.target.texts(), strict=True)

    def describe(self) -> str:
        return f"{self.bytes:,} bytes"

    def as_text(self) -> TextDataset:
        return self


def _row_lengths(split: TextSplit) -> NDArray[np.int64]:
    return np.diff(split.documents, append=len(split.tokens)) - 1


class PairFiles(Config):
    """The files of pairs: two files line by line, or one."""

    source: Paths | None = Field(None, description="files of source sentences, one per line")
    target: Paths | None = Field(None, description="the same sentences in the target language")
    pairs: Paths | None = Field(None, description="TSV or JSONL files with both, instead of source and target")


class PairsConfig(DataConfig):
    """Pairs of a source and a target text, for translators."""

    PATHS: ClassVar[tuple[str, ...]] = ("source", "target", "pairs", "valid", "test")
    LEARNT: ClassVar[int] = 3
    ALIASES: ClassVar[tuple[str, ...]] = tuple(f"{part}_{side}" for part in HELD_OUT for side in PairFiles.model_fields)
    what: ClassVar[str] = "pairs"
    parallel: ClassVar[bool] = True

    kind: Literal["pairs"] = "pairs"
    source: Paths | None = Field(None, description="files of source sentences, one per line")
    target: Paths | None = Field(None, description="the same sentences in the target language")
    pairs: Paths | None = Field(None, description="TSV or JSONL files with both, instead of source and target")
    valid: PairFiles | None = Field(None, description="validation pairs: { source = …, target = … }, or valid_source …")
    test: PairFiles | None = Field(None, description="test pairs: { source = …, target = … }, or test_source …")
    languages: list[str] | None = Field(None, description="of JSONL pairs: the keys of the source and the target text")
    longest: int | None = Field(250, ge=1, description="pairs with more tokens than this on either side are skipped")
    ratio: float | None = Field(
        None, gt=1, description="pairs with one side more than this many times as long as the other are skipped"
    )

    @model_validator(mode="before")
    @classmethod
    def _gather_files(cls, values: Any) -> Any:
        """Convert `valid_source` and the like to `valid = { source = … }`."""
        if not isinstance(values, Mapping):
            return values
        result = {name: value for name, value in values.items() if name not in cls.ALIASES}
        for part in HELD_OUT:
            flat = {side: values.get(f"{part}_{side}") for side in PairFiles.model_fields}
            flat = {side: files for side, files in flat.items() if files is not None}
            group = result.get(part)
            if group is not None and not isinstance(group, (Mapping, PairFiles)):
                raise ValueError(
                    f"{part} is plain text, but this run trains on pairs; give {_option(part, 'source')} and "
                    f"{_option(part, 'target')}"
                )
            if flat:
                result[part] = {**dict(group or {}), **flat}
        return result

    @model_validator(mode="after")
    def _sides_go_together(self) -> PairsConfig:
        if (self.source is None) != (self.target is None):
            raise ValueError("give both --source and --target: the same sentences in two languages, line by line")
        return self


def prepare(
    config: PairsConfig,
    *,
    processor: str | Processor | None,
    source: str | Tokenizer | None = None,
    progress: ReportStage | None = None,
) -> Corpus:
    """Return the corpus of a recipe's pairs; `source` is the tokenizer of the sources, if it is another."""
    held_out = {
        f"{part}_{side}": files for part in HELD_OUT for side, files in dict(getattr(config, part) or {}).items()
    }
    return prepare_pairs(
        **config.model_dump(include={"source", "target", "pairs", "split", "languages", "longest", "ratio"}),
        **held_out,
        tokenizer=as_tokenizer(processor),
        source_tokenizer=source,
        progress=progress,
    )


def prepare_pairs(
    *,
    source: Files = None,
    target: Files = None,
    pairs: Files = None,
    valid_source: Files = None,
    valid_target: Files = None,
    valid_pairs: Files = None,
    test_source: Files = None,
    test_target: Files = None,
    test_pairs: Files = None,
    languages: Sequence[str] | None = None,
    split: Sequence[float] = (0.9, 0.05, 0.05),
    tokenizer: str | Path | Tokenizer = "bpe:8192",
    source_tokenizer: str | Path | Tokenizer | None = None,
    longest: int | None = None,
    ratio: float | None = None,
    cache: Path | None = None,
    progress: ReportStage | None = None,
) -> Corpus:
    """Read, split and encode parallel text; a second call with the same texts uses the cache.

    The texts are `source` and `target`, files whose lines translate each other, or `pairs`: TSV (source, tab, target)
    or JSONL (`{"source": …, "target": …}` or `{"translation": {"en": …, "de": …}}`, where `languages` says which is
    the source; by default the one that comes first). Without texts of their own, valid and test are split off by
    `split`, as in `prepare`; pairs with the same source stay together.

    `tokenizer` learns one vocabulary from both sides, or from the targets alone where there is a `source_tokenizer`.
    Of the training pairs, those with more than `longest` tokens on a side, or with one side more than `ratio` times as
    long as the other, are left out (Moses' `clean-corpus-n` does the same). They are counted in `dropped` and in a
    `TextWarning`, also when the corpus comes from the cache.
    """
    _check_limits(longest, ratio, languages)
    given = {
        "train": (source, target, pairs),
        "valid": (valid_source, valid_target, valid_pairs),
        "test": (test_source, test_target, test_pairs),
    }
    named = {role: files for role, files in given.items() if any(side is not None for side in files)}
    for role, files in named.items():
        _check_sides(role, *files)
    if "train" not in named:
        raise ValueError("no pairs were given; give --source and --target, or --pairs (TSV or JSONL)")
    choices = Choices(
        check_tokenizer(tokenizer),
        None if source_tokenizer is None else check_tokenizer(source_tokenizer),
        main_fractions(split, named),
        languages,
        longest,
        ratio,
    )
    report = progress or (lambda stage, done, total: None)
    home = open_home(cache or cache_folder())
    with spooling(home) as spool:
        roles = {role: _align(*files, spool=spool) for role, files in named.items()}
        paths = files_of(roles)
        stamps = stamps_of(paths)
        hashes = _hash_files(roles, report)
        text_fingerprint = digest(["pairs", *choices[2:], hashes])
        key = digest([FORMAT, text_fingerprint, *map(name_of, choices[:2])])
        folder = home / key[:32]
        found = read_folder(folder, key)
        if found is None:
            shutil.rmtree(folder, ignore_errors=True)
            with building(folder, key) as new:
                build_folder(new, roles, choices, key=key, report=report)
                check_unchanged(paths, stamps)
            found = read_folder(folder, key)
            assert found is not None, "pairs that were just written can be read"
        else:
            repeat_warnings(found.messages)
        return _open(folder, found, text_fingerprint)


def _check_limits(longest: int | None, ratio: float | None, languages: Sequence[str] | None) -> None:
    if longest is not None and longest < 1:
        raise ValueError(
            f"longest = {longest} is not allowed; give a number of tokens, 1 or more, or None for no limit"
        )
    if ratio is not None and ratio < 1:
        raise ValueError(f"ratio = {ratio:g} is not allowed; give a number of 1 or more, or None for no limit")
    if languages is not None and len(languages) != 2:
        raise ValueError(f"languages = {list(languages)} is not allowed; give two keys, source first: ['en', 'de']")


def _open(folder: Path, found: StoredPairs, text_fingerprint: str) -> Corpus:
    parts = {
        part: PairSplit(**{side: TextSplit.open(folder / f"{part}-{side}", shard) for side, shard in sides.items()})
        for part, sides in found.shards.items()
    }
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    source_tokenizer = Tokenizer.load(folder / "source_tokenizer.json") if found.separate else None
    return Corpus(
        processor=tokenizer,
        source_tokenizer=source_tokenizer,
        train=parts["train"],
        valid=parts.get("valid"),
        test=parts.get("test"),
        fingerprint=digest([tokenizer.fingerprint, name_of(source_tokenizer), text_fingerprint]),
        text_fingerprint=text_fingerprint,
        folder=folder,
        dropped=found.dropped,
    )


def _check_sides(role: str, source: Files, target: Files, pairs: Files) -> None:
    if pairs is not None and (source is not None or target is not None):
        other = "target" if source is None else "source"
        raise ValueError(f"{_option(role, 'pairs')} and {_option(role, other)} were given; give one or the other")
    if pairs is None and (source is None or target is None):
        missing, there = ("source", "target") if source is None else ("target", "source")
        raise ValueError(f"{_option(role, there)} was given without {_option(role, missing)}; a pair needs both")


def _option(role: str, side: str) -> str:
    """The option of the files of one side; those of a test are a setting of the recipe."""
    return {"train": f"--{side}", "valid": f"--valid-{side}"}.get(role, f"data.{role}_{side}")


def _align(source: Files, target: Files, pairs: Files, *, spool: Spool) -> list[Aligned]:
    """Return the files in pairs; each is read as often as it is given."""

    def all_of(files: Files) -> list[Source]:
        items = [files] if isinstance(files, (str, Path)) else files or ()
        found = [text for item in items for text in find([item], spool=spool)]
        if not found:
            raise ValueError("no file was given; give --source and --target, or --pairs (TSV or JSONL)")
        if any(text.path is None for text in found):
            raise ValueError("the built-in corpus has no translations; give your own files")
        return found

    if pairs is not None:
        return [Aligned(text) for text in all_of(pairs)]
    sources, targets = all_of(source), all_of(target)
    if len(sources) != len(targets):
        raise ValueError(
            f"{len(sources)} source files and {len(targets)} target files: each source file needs the target file "
            f"that translates it, in the same order"
        )
    return [Aligned(*both) for both in zip(sources, targets, strict=True)]


def _hash_files(roles: dict[str, list[Aligned]], report: ReportStage) -> dict[str, list[list[str]]]:
    """Return the SHA-256 of each file; warn of pairs that are both in train and in valid or test."""
    checking = Counter("checking", size_of(files_of(roles)), report)
    hashes: dict[str, list[list[str]]] = {}
    for role, aligned in roles.items():
        hashes[role] = [[] for _ in aligned]
        for row, both in zip(hashes[role], aligned, strict=True):
            for path in [text.path for text in both.files if text.path]:
                row.append(digest_file(path))
                checking.add(path.stat().st_size)
    for role, rows in hashes.items():
        for row, both in zip(rows, roles[role], strict=True):
            if role != "train" and row in hashes["train"]:
                warnings.warn(
                    f"{both} are in both the training and the {role} pairs, so scores on them will be too good",
                    TextWarning,
                    3,
                )
    return hashes
