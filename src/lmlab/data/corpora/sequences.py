"""Sequences of tokens that are not text: items of any kind, encoded once into memory-mapped tokens in the cache.

A kind of data gives an iterator of encoded items; here they are split, written and opened again. The layout is that of
text: `[b, item, b, item, b]`, where b is the boundary of the tokenizer.
"""

from __future__ import annotations

import json
import warnings
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data.corpora.corpus import Corpus, Dataset, TokenDataset, Tokens
from lmlab.data.corpora.preparing import digest, repeat_warnings, warnings_to_keep
from lmlab.data.corpora.splitting import NAMES, deal_items
from lmlab.data.corpora.store import building
from lmlab.data.readers.text import TextWarning
from lmlab.tokenizers.processors import FILE as PROCESSOR
from lmlab.tokenizers.processors.sequences import SequenceTokenizer

FORMAT = 1
INDEX = "index.json"
FEWEST = 2
"""The least number of tokens of a training split."""


class EncodedItem(NamedTuple):
    """An item as tokens."""

    name: str
    ids: NDArray[np.int64]
    split: str | None = None  # "train", "valid" or "test", if the data say so


@dataclass(frozen=True)
class SequenceSplit(Dataset):
    """A split of items that are sequences of tokens."""

    tokens: Tokens
    """`[b, item, b, item, b]`, memory-mapped, where b is the boundary."""
    documents: NDArray[np.int64]
    """The position in `tokens` of each item's first token."""
    names: list[str]
    tokenizer: SequenceTokenizer

    @property
    def size(self) -> int:
        """The number of predicted tokens: all but the first boundary."""
        return len(self.tokens) - 1

    def as_tokens(self) -> TokenDataset:
        return self

    def sizes(self) -> dict[str, int]:
        return {"documents": len(self.documents), "tokens": self.size - len(self.documents)}

    def describe(self) -> str:
        count, tokens = len(self.documents), self.size - len(self.documents)
        return f"{count:,} {self.tokenizer.item}s, {tokens:,} {self.tokenizer.unit}s"


class EncodingSettings(NamedTuple):
    """What the encoded items depend on."""

    tokenizer: SequenceTokenizer
    fractions: Mapping[
        str, float
    ]  # fractions of the items that say no split; none if all say theirs, split after split
    content: str  # a SHA-256 of the data

    @property
    def data_fingerprint(self) -> str:
        return digest([dict(self.fractions), self.content])

    @property
    def key(self) -> str:
        return digest(["sequences", FORMAT, self.tokenizer.fingerprint, self.data_fingerprint])


def open_sequences(home: Path, settings: EncodingSettings, encode: Callable[[], Iterable[EncodedItem]]) -> Corpus:
    """Return the corpus of encoded items, from the cache if it is there; `encode` gives them otherwise."""
    folder = home / settings.key[:32]
    index = _read_index(folder, settings.key)
    if index is None:
        with building(folder, settings.key, read=_read_index) as new:
            _build(new, settings, encode)
        index = _read_index(folder, settings.key)
        assert index is not None, "a corpus that was just written can be read"
    else:
        repeat_warnings(index["warnings"])
    splits = {name: _open_split(folder / name, row, settings.tokenizer) for name, row in index["splits"].items()}
    return Corpus(
        processor=settings.tokenizer,
        train=splits["train"],
        valid=splits.get("valid"),
        test=splits.get("test"),
        fingerprint=digest([settings.tokenizer.fingerprint, settings.data_fingerprint]),
        text_fingerprint=settings.data_fingerprint,
        folder=folder,
    )


def _build(folder: Path, settings: EncodingSettings, encode: Callable[[], Iterable[EncodedItem]]) -> None:
    """Write the tokens of each split, the tokenizer, and last the index."""
    splits: Iterable[tuple[str, Iterable[EncodedItem]]]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if settings.fractions:
            splits = split_items([item for item in encode() if len(item.ids)], settings.fractions).items()
        else:
            splits = groupby(encode(), key=lambda item: item.split or NAMES[0])
    for warning in caught:
        warnings.warn(warning.message, warning.category, stacklevel=5)
    settings.tokenizer.save(folder / PROCESSOR)
    rows = {name: _write_split(folder / name, chosen, settings.tokenizer) for name, chosen in splits}
    index = {"format": FORMAT, "key": settings.key, "splits": rows, "warnings": warnings_to_keep(caught)}
    with (folder / INDEX).open("w", encoding="utf-8") as file:
        json.dump(index, file, ensure_ascii=False)


def split_items(items: list[EncodedItem], fractions: Mapping[str, float]) -> dict[str, list[EncodedItem]]:
    """Return the items by split: the one that they name, else close to the fractions, always in the same way.

    Equal items stay together, so that no test item is also a training item. Too few items for all splits are cut into
    parts by position: first train, then valid, then test.
    """
    free = [item for item in items if item.split is None]
    dealt = _deal_items(free, fractions) if free else {}
    splits = {name: [item for item in items if item.split == name] + dealt.get(name, []) for name in NAMES}
    if sum(len(item.ids) for item in splits["train"]) < FEWEST:
        raise ValueError("there are no training data, or fewer than two tokens of them; give more")
    return {name: chosen for name, chosen in splits.items() if chosen}


def _deal_items(items: list[EncodedItem], fractions: Mapping[str, float]) -> dict[str, list[EncodedItem]]:
    if len(fractions) == 1:
        return {next(iter(fractions)): items}
    hashes = np.array([int.from_bytes(blake2b(item.ids.tobytes(), digest_size=8).digest()) for item in items])
    sizes = np.array([len(item.ids) for item in items], dtype=np.int64)
    dealt = deal_items(sizes, hashes.astype(np.uint64), fractions)
    if dealt is not None:
        return {name: [items[number] for number in own] for name, own in dealt.items()}
    warnings.warn(
        f"{len(items)} item{'s are' if len(items) > 1 else ' is'} too few to hold some out: each is cut into parts for "
        f"{', '.join(fractions)}",
        TextWarning,
        stacklevel=5,
    )
    return _cut_items(items, fractions)


def _cut_items(items: list[EncodedItem], fractions: Mapping[str, float]) -> dict[str, list[EncodedItem]]:
    bounds = [0.0, *np.cumsum(list(fractions.values())).tolist()]
    return {
        name: [item._replace(ids=item.ids[round(low * len(item.ids)) : round(high * len(item.ids))]) for item in items]
        for name, low, high in zip(fractions, bounds, bounds[1:], strict=False)
    }


def _write_split(stem: Path, items: Iterable[EncodedItem], tokenizer: SequenceTokenizer) -> dict[str, Any]:
    """Write the tokens and the positions of the items; return the row of the index."""
    dtype = np.dtype(np.uint16 if tokenizer.vocabulary <= 1 << 16 else np.uint32)
    boundary = np.array([tokenizer.boundary], dtype)
    positions, names, length = array("q"), [], 1
    with stem.with_suffix(".tokens").open("wb") as file:
        boundary.tofile(file)
        for item in items:
            positions.append(length)
            names.append(item.name)
            item.ids.astype(dtype).tofile(file)
            boundary.tofile(file)
            length += len(item.ids) + 1
    np.frombuffer(positions, np.int64).tofile(stem.with_suffix(".documents"))
    return {"tokens": length, "dtype": dtype.name, "names": names}


def _open_split(stem: Path, row: Mapping[str, Any], tokenizer: SequenceTokenizer) -> SequenceSplit:
    return SequenceSplit(
        tokens=np.memmap(stem.with_suffix(".tokens"), row["dtype"], "r"),
        documents=np.fromfile(stem.with_suffix(".documents"), np.int64),
        names=row["names"],
        tokenizer=tokenizer,
    )


def _read_index(folder: Path, key: str) -> dict[str, Any] | None:
    """Return the index of encoded items; None if there is none, or a file is missing or has a wrong size."""
    try:
        index: dict[str, Any] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        if index["format"] != FORMAT or index["key"] != key or not isinstance(index["warnings"], list):
            return None
        for name, row in index["splits"].items():
            sizes = {
                ".tokens": row["tokens"] * np.dtype(row["dtype"]).itemsize,
                ".documents": len(row["names"]) * 8,
            }
            if any((folder / f"{name}{suffix}").stat().st_size != size for suffix, size in sizes.items()):
                return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return index
