"""Parallel text: sources and their targets as memory-mapped tokens, and kept in the cache as corpora are.

Each side is stored as the lines of a corpus, `[b, line, b, line, b]`, where b is the boundary of its tokenizer. So a
target with the boundary that begins it and the one that ends it is one slice.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmlab.data.corpora.cache import cache_folder
from lmlab.data.corpora.corpus import Split
from lmlab.data.corpora.pair_shards import Choices, Found, build_folder, files_of, read_folder
from lmlab.data.corpora.preparing import (
    Counter,
    Progress,
    Spool,
    check_unchanged,
    digest,
    digest_file,
    name_of,
    settle,
    size_of,
    spooling,
    stamps_of,
    tell_again,
)
from lmlab.data.corpora.splitting import main_shares
from lmlab.data.corpora.store import FORMAT, building, open_home
from lmlab.data.reading.pairs import Aligned
from lmlab.data.reading.text import Source, TextWarning, find
from lmlab.tokenizers import Tokenizer

Files = str | Path | Sequence[str | Path] | None


@dataclass(frozen=True)
class PairSplit:
    """One part of a parallel corpus: row i of `source` belongs to row i of `target`."""

    source: Split
    target: Split

    @property
    def tokens(self) -> NDArray[np.uint16] | NDArray[np.uint32]:
        """The tokens that are predicted: those of the targets, each ended by its boundary."""
        return self.target.tokens

    @property
    def bytes(self) -> int:
        """Bytes of the targets in UTF-8, a newline after each."""
        return self.target.bytes

    @property
    def words(self) -> int:
        """Words of the targets, split at white space."""
        return self.target.words

    @property
    def size(self) -> int:
        return len(self.tokens) - 1

    @property
    def scored(self) -> int:
        return len(self.tokens) - 1

    def parts(self) -> dict[str, Any]:
        return {}

    def loader(self, make: Any, *, seed: int) -> Any:
        return make(self)

    def __len__(self) -> int:
        return len(self.target.documents)

    @cached_property
    def lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many tokens each source and each target has, the boundary that ends it included."""
        return tuple(_row_lengths(side) for side in (self.source, self.target))  # type: ignore[return-value]

    def row(self, index: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """A source `[x1 .. xn, b]` and its target `[b, y1 .. ym, b]`."""
        lengths = self.lengths
        first, begin = int(self.source.documents[index]), int(self.target.documents[index])
        source = self.source.tokens[first : first + int(lengths[0][index])]
        return source, self.target.tokens[begin - 1 : begin + int(lengths[1][index])]

    def texts(self) -> Iterator[tuple[str, str]]:
        """The source and the target text of each pair, for valid and test."""
        return zip(self.source.texts(), self.target.texts(), strict=True)


def _row_lengths(split: Split) -> NDArray[np.int64]:
    return np.diff(split.documents, append=len(split.tokens))


@dataclass(frozen=True)
class PairCorpus:
    """Pairs of texts as tokens, ready to train a translator on."""

    tokenizer: Tokenizer
    """Of the targets; of both sides where they share a vocabulary."""
    source_tokenizer: Tokenizer | None
    """Of the sources, where they have a vocabulary of their own."""
    train: PairSplit
    valid: PairSplit | None
    test: PairSplit | None
    fingerprint: str
    """A SHA-256 of the texts, the tokenizers and the options: equal for equal corpora."""
    text_fingerprint: str
    """The same without the tokenizers."""
    folder: Path
    dropped: dict[str, int]
    """How many pairs were left out, by reason: `empty`, `long`, `ratio`."""


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
    progress: Progress | None = None,
) -> PairCorpus:
    """Read, split and encode parallel text; a second call with the same texts finds it in the cache.

    The texts are `source` and `target`, files whose lines translate each other, or `pairs`: TSV (source, tab, target)
    or JSONL (`{"source": …, "target": …}` or `{"translation": {"en": …, "de": …}}`, where `languages` says which is
    the source; by default the one that comes first). Without texts of their own, valid and test are split off by
    `split`, as in `prepare`; pairs with the same source stay together.

    `tokenizer` learns one vocabulary from both sides, or from the targets alone where there is a `source_tokenizer`.
    Of the training pairs, those with more than `longest` tokens on a side, or with one side more than `ratio` times as
    long as the other, are left out (Moses' `clean-corpus-n` does the same). What was left out is counted in `dropped`
    and told by a `TextWarning`, also when it comes from the cache.
    """
    if longest is not None and longest < 1:
        raise ValueError(f"longest = {longest} is not allowed; give a number of tokens from 1 on, or None for no limit")
    if ratio is not None and ratio < 1:
        raise ValueError(f"ratio = {ratio:g} is not allowed; give a number from 1 on, or None for no limit")
    if languages is not None and len(languages) != 2:
        raise ValueError(f"languages = {list(languages)} is not allowed; give two keys, source first: ['en', 'de']")
    given = {
        "train": (source, target, pairs),
        "valid": (valid_source, valid_target, valid_pairs),
        "test": (test_source, test_target, test_pairs),
    }
    named = {role: files for role, files in given.items() if any(side is not None for side in files)}
    for role, files in named.items():
        _check_sides(role, *files)
    if "train" not in named:
        raise ValueError("no pairs were given; give source and target files, or pairs (TSV or JSONL)")
    choices = Choices(
        settle(tokenizer),
        None if source_tokenizer is None else settle(source_tokenizer),
        main_shares(split, named),
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
            tell_again(found.messages)
        return _open(folder, found, text_fingerprint)


def _open(folder: Path, found: Found, text_fingerprint: str) -> PairCorpus:
    parts = {
        part: PairSplit(**{side: Split.open(folder / f"{part}-{side}", shard) for side, shard in sides.items()})
        for part, sides in found.shards.items()
    }
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    source_tokenizer = Tokenizer.load(folder / "source_tokenizer.json") if found.separate else None
    return PairCorpus(
        tokenizer=tokenizer,
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
    prefix = "" if role == "train" else f"{role}_"
    if pairs is not None and (source is not None or target is not None):
        raise ValueError(f"{prefix}pairs and {prefix}source or {prefix}target were given; give one or the other")
    if pairs is None and (source is None or target is None):
        missing, there = ("source", "target") if source is None else ("target", "source")
        raise ValueError(f"{prefix}{there} was given without {prefix}{missing}; a pair needs both")


def _align(source: Files, target: Files, pairs: Files, *, spool: Spool) -> list[Aligned]:
    """The files as they belong together; each is taken as often as it is given."""

    def all_of(files: Files) -> list[Source]:
        items = [files] if isinstance(files, (str, Path)) else files or ()
        found = [text for item in items for text in find([item], spool=spool)]
        if not found:
            raise ValueError("no file was given; give source and target files, or pairs (TSV or JSONL)")
        if any(text.path is None for text in found):
            raise ValueError("the built-in corpus is no parallel text; give files of your own")
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


def _hash_files(roles: dict[str, list[Aligned]], report: Progress) -> dict[str, list[list[str]]]:
    """The SHA-256 of each file; pairs that are both in train and in valid or test are told of."""
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
                warnings.warn(f"{both} are both in train and in {role}: scores on it will flatter", TextWarning, 3)
    return hashes
