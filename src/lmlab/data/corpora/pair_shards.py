"""Make a folder of tokens from aligned files: read, split, train tokenizers, filter, encode."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data.corpora.preparing import SAMPLE, Counter, ReportStage, learns_from_all, size_of, warnings_to_keep
from lmlab.data.corpora.shards import BATCH, Shard, write_shard
from lmlab.data.corpora.store import read_index, write_index
from lmlab.data.readers.documents import Documents
from lmlab.data.readers.pairs import Aligned, Pairs, gather_pairs
from lmlab.data.readers.text import TextWarning
from lmlab.tokenizers import Tokenizer, resolve

SIDES = ("source", "target")


class Choices(NamedTuple):
    """The settings of a corpus of pairs."""

    tokenizer: str | Tokenizer
    source_tokenizer: str | Tokenizer | None
    fractions: dict[str, float]
    languages: Sequence[str] | None
    longest: int | None
    ratio: float | None


class StoredPairs(NamedTuple):
    """The content of a folder of pairs."""

    shards: dict[str, dict[str, Shard]]  # by part and side
    messages: list[tuple[str, str]]
    dropped: dict[str, int]
    separate: bool  # whether the sources have a tokenizer of their own


def read_folder(folder: Path, key: str) -> StoredPairs | None:
    """Return what was prepared before; None if there is nothing, or it is damaged."""
    index = read_index(folder, key)
    try:
        more: dict[str, Any] = json.loads((folder / "pairs.json").read_text(encoding="utf-8"))
        if index is None or (more["separate"] and not (folder / "source_tokenizer.json").is_file()):
            return None
        shards: dict[str, dict[str, Shard]] = {}
        for name, shard in index["splits"].items():
            part, _, side = name.partition("-")
            shards.setdefault(part, {})[side] = Shard(**shard)
        return StoredPairs(shards, [tuple(each) for each in index["warnings"]], more["dropped"], more["separate"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def files_of(roles: dict[str, list[Aligned]]) -> list[Path]:
    """Return all files, ordered by split."""
    return [text.path for given in roles.values() for both in given for text in both.files if text.path]


def build_folder(
    folder: Path, roles: dict[str, list[Aligned]], choices: Choices, *, key: str, report: ReportStage
) -> None:
    """Write the tokens of both sides of each split, the tokenizers, and last the index."""
    size = size_of(files_of(roles))
    reading = Counter("reading", size, report)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gathered = {
            role: gather_pairs(given, folder / role, languages=choices.languages, report=reading.add)
            for role, given in roles.items()
        }
        report("reading", size, size)
        main, hashes, _ = gathered["train"]
        parts = split_pairs(main, hashes, choices.fractions)
        parts |= {role: pairs for role, (pairs, _, _) in gathered.items() if role != "train"}
        report("training the tokenizer", 0, 1)
        tokenizers = _learn(parts["train"], choices)
        report("training the tokenizer", 1, 1)
        dropped = {"empty": sum(empty for _, _, empty in gathered.values())}
        parts["train"], filtered = _filter(parts["train"], tokenizers, choices)
        dropped = {reason: count for reason, count in {**dropped, **filtered}.items() if count}
    for warning in caught:
        warnings.warn(warning.message, warning.category, stacklevel=4)
    tokenizers["target"].save(folder / "tokenizer.json")
    separate = choices.source_tokenizer is not None
    if separate:
        tokenizers["source"].save(folder / "source_tokenizer.json")
    encoding = Counter("encoding", sum(side.size for part in parts.values() for side in part), report)
    shards = {
        f"{name}-{side}": write_shard(
            documents,
            tokenizers[side],
            folder / f"{name}-{side}",
            how="lines",
            keep_text=name != "train",
            report=encoding.add,
        )
        for name, part in parts.items()
        for side, documents in zip(SIDES, part, strict=True)
    }
    for pairs, _, _ in gathered.values():
        for side_path in (pairs.source.path, pairs.target.path):
            side_path.unlink()
    (folder / "pairs.json").write_text(json.dumps({"dropped": dropped, "separate": separate}), encoding="utf-8")
    write_index(folder, key, shards, warnings_to_keep(caught))


def split_pairs(pairs: Pairs, hashes: NDArray[np.uint64], fractions: dict[str, float]) -> dict[str, Pairs]:
    """Return the pairs of each split, close to the fractions in number, always the same for the same texts.

    They are assigned in the order of the hashes of their sources, which is as good as random; equal sources stay
    together, so that no test source is also a training source.
    """
    if len(fractions) == 1:
        return {next(iter(fractions)): pairs}
    unique, group, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    middles = (np.cumsum(counts) - counts / 2) / len(hashes)
    part = np.searchsorted(np.cumsum(list(fractions.values()))[:-1], middles)
    if len(np.unique(part)) < len(fractions):
        wanted = ", ".join(f"{name} {fraction:g}" for name, fraction in fractions.items())
        raise ValueError(
            f"{pairs.number} pairs ({len(unique)} different sources) are too few to split into {wanted}; "
            f"give more pairs, or separate validation and test pairs"
        )
    return {name: pairs.part(part[group] == i) for i, name in enumerate(fractions)}


def _learn(train: Pairs, choices: Choices) -> dict[str, Tokenizer]:
    """Return the tokenizer of each side: one for both, trained on both, unless the source has its own."""
    if choices.source_tokenizer is None:
        shared = resolve(choices.tokenizer, lambda: _sample(choices.tokenizer, train))
        return {"source": shared, "target": shared}
    source, own = choices.source_tokenizer, choices.tokenizer
    return {
        "source": resolve(source, lambda: _sample(source, [train.source])),
        "target": resolve(own, lambda: _sample(own, [train.target])),
    }


def _sample(spec: str | Tokenizer, texts: Sequence[Documents]) -> Iterator[str]:
    for documents in texts:
        yield from documents.sample(documents.size if learns_from_all(spec) else SAMPLE // len(texts))


def _filter(train: Pairs, tokenizers: dict[str, Tokenizer], choices: Choices) -> tuple[Pairs, dict[str, int]]:
    """Return the training pairs without those that are too long or too uneven, and the number of each."""
    if choices.longest is None and choices.ratio is None:
        return train, {}
    source, target = (_count(documents, tokenizers[side]) for side, documents in zip(SIDES, train, strict=True))
    limit = np.inf if choices.longest is None else choices.longest
    long = np.maximum(source, target) > limit
    steepest = np.inf if choices.ratio is None else choices.ratio
    uneven = ~long & (np.maximum(source, target) > steepest * np.maximum(1, np.minimum(source, target)))
    dropped = {"long": int(long.sum()), "ratio": int(uneven.sum())}
    if sum(dropped.values()) == train.number:
        causes = [f"{dropped['long']:,} have more than {limit:g} tokens on one side: raise data.longest"]
        causes += [f"{dropped['ratio']:,} a side more than {steepest:g} times as long as the other: raise data.ratio"]
        reasons = [cause for cause, count in zip(causes, dropped.values(), strict=True) if count]
        raise ValueError(f"all {train.number:,} training pairs would be skipped; {'; '.join(reasons)}")
    fraction = f"of {train.number:,} training pairs were skipped:"
    if dropped["long"]:
        _warn(f"{dropped['long']:,} {fraction} more than {choices.longest} tokens on a side (longest)")
    if dropped["ratio"]:
        _warn(f"{dropped['ratio']:,} {fraction} one side more than {steepest:g} times as long as the other (ratio)")
    return train.part(~(long | uneven)), dropped


def _count(documents: Documents, tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Return the number of tokens of each document."""
    counts = np.zeros(len(documents.starts), np.int64)
    held: list[str] = []
    rows: list[int] = []
    position = size = 0

    def count_held() -> None:
        np.add.at(counts, rows, [len(ids) for ids in tokenizer.encode_batch(held)])
        held.clear()
        rows.clear()

    for last, text in documents.pieces():
        held.append(text)
        rows.append(position)
        position += last
        size += len(text)
        if size >= BATCH:
            count_held()
            size = 0
    count_held()
    return counts


def _warn(message: str) -> None:
    warnings.warn(message, TextWarning, stacklevel=3)
