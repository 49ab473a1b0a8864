"""Reading parallel text: two files that are aligned line by line, or one file of pairs (TSV or JSONL).

A line that is not a pair is an error, which names the line; a pair with an empty side is left out and counted.
"""

from __future__ import annotations

import itertools
import json
import warnings
from array import array
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lmlab.data.readers.documents import Documents
from lmlab.data.readers.text import Source, TextWarning, read_lines
from lmlab.parsing import load_json

SHOWN = 5
"""The number of bad lines that a message names; reading stops there."""

Report = Callable[[int], None]


class Aligned(NamedTuple):
    """The files of pairs: one file of pairs, or a file of sources with one of targets."""

    first: Source
    second: Source | None = None

    @property
    def files(self) -> list[Source]:
        return [self.first] if self.second is None else [self.first, self.second]

    def __str__(self) -> str:
        return " and ".join(source.name for source in self.files)


class Pairs(NamedTuple):
    """Sources and targets: row i of one belongs to row i of the other."""

    source: Documents
    target: Documents

    @property
    def number(self) -> int:
        """The number of pairs."""
        return len(self.source.starts)

    def part(self, chosen: NDArray[np.bool_]) -> Pairs:
        """Return the chosen pairs."""
        return Pairs(self.source.part(chosen), self.target.part(chosen))


def read_pairs(given: Aligned, *, languages: Sequence[str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield the source and target text of each line, without white space around them; a side may be empty."""
    if given.second is not None:
        yield from _read_two(given.first, given.second)
    elif _is_json(given.first):
        yield from _read_each(given.first, _Record(languages).read)
    else:
        yield from _read_each(given.first, _split_at_tab)


def gather_pairs(
    given: Sequence[Aligned], stem: Path, *, languages: Sequence[str] | None, report: Report
) -> tuple[Pairs, NDArray[np.uint64], int]:
    """Write sources and targets to a file each; return the pairs, a hash of each source, and how many were empty.

    Pairs without a source or without a target are left out, with a `TextWarning` that says which.
    """
    paths = [stem.with_suffix(".sources"), stem.with_suffix(".targets")]
    starts, ends = (array("q"), array("q")), (array("q"), array("q"))
    hashes = array("Q")
    positions, empty = [0, 0], 0
    with paths[0].open("wb") as sources, paths[1].open("wb") as targets:
        for aligned in given:
            left_out: list[int] = []
            for number, pair in enumerate(read_pairs(aligned, languages=languages), 1):
                data = [side.encode() for side in pair]
                report(sum(map(len, data)))
                if not all(data):
                    left_out.append(number)
                    continue
                hashes.append(int.from_bytes(blake2b(data[0], digest_size=8).digest(), "little"))
                for side, file in enumerate((sources, targets)):
                    starts[side].append(positions[side])
                    positions[side] += file.write(data[side])
                    ends[side].append(positions[side])
            if left_out:
                empty += len(left_out)
                _warn(f"{aligned}: {len(left_out):,} pairs with an empty side were left out: {_lines(left_out)}")
    documents = [
        Documents(path, np.frombuffer(first, np.int64), np.frombuffer(last, np.int64), None)
        for path, first, last in zip(paths, starts, ends, strict=True)
    ]
    if not hashes:
        raise ValueError(f"{given[0]}: there is no pair of texts in it; give lines with a source and a target")
    return Pairs(*documents), np.frombuffer(hashes, np.uint64), empty


def _read_two(first: Source, second: Source) -> Iterator[tuple[str, str]]:
    lines = itertools.zip_longest(read_lines(first), read_lines(second))
    for number, (left, right) in enumerate(lines, 1):
        if left is None or right is None:
            rest = [left if right is None else right]
            rest += [a if b is None else b for a, b in lines]
            short, long = (first, second) if left is None else (second, first)
            raise ValueError(_uneven(short.name, long.name, number - 1, [line for line in rest if line is not None]))
        yield left.strip(), right.strip()


def _uneven(short: str, long: str, both: int, rest: list[str]) -> str:
    """Return the error for two files if one ends after `both` lines and the other continues with `rest`."""
    text = next((line.strip() for line in rest if line.strip()), None)
    what = "only blank lines, which can be removed" if text is None else f"for instance {_shorten(text)!r}"
    return (
        f"{short} ends after line {both:,}, but {long} has {both + len(rest):,} lines ({what}): "
        f"line n of one file must be the translation of line n of the other"
    )


def _read_each(source: Source, split: Callable[[str], tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the pair in each line; a ValueError names the first lines without one. A blank line is an empty pair."""
    bad: list[str] = []
    for number, line in enumerate(read_lines(source), 1):
        try:
            pair = split(line) if line.strip() else ("", "")
        except ValueError as error:
            bad.append(f"line {number:,}: {error} ({_shorten(line)!r})")
            if len(bad) == SHOWN:
                break
            continue
        if not bad:
            yield pair[0].strip(), pair[1].strip()
    if bad:
        more = " (perhaps more: reading stopped there)" if len(bad) == SHOWN else ""
        raise ValueError(f"{source.name} is not a file of pairs{more}\n" + "\n".join(bad))


def _split_at_tab(line: str) -> tuple[str, str]:
    sides = line.split("\t")
    if len(sides) != 2:
        tabs = len(sides) - 1
        raise ValueError(f"{tabs or 'no'} tab{'s' * (tabs != 1)} where exactly one is needed, SOURCE<tab>TARGET")
    return sides[0], sides[1]


class _Record:
    """Reads `{"source": …, "target": …}`, or `{"en": …, "de": …}`, which may be under `translation`.

    `languages` says which language is the source; else the first line does, if it has a `translation`.
    """

    def __init__(self, languages: Sequence[str] | None) -> None:
        self.languages = None if languages is None else tuple(languages)

    def read(self, line: str) -> tuple[str, str]:
        try:
            record = load_json(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
        if isinstance(record, dict) and isinstance(record.get("translation"), dict):
            record = record["translation"]
            if self.languages is None and len(record) == 2:
                self.languages = tuple(record)
        if not isinstance(record, dict):
            raise ValueError("not a JSON object")
        keys = self.languages or ("source", "target")
        missing = [key for key in keys if not isinstance(record.get(key), str)]
        if missing:
            names = ", ".join(map(repr, record)) or "nothing"
            how = "; data.languages says which are meant" if self.languages is None and len(record) == 2 else ""
            raise ValueError(f"no text under {' and '.join(map(repr, missing))} (it has {names}{how})")
        try:
            "".join(record[key] for key in keys).encode()
        except UnicodeEncodeError:
            raise ValueError("half a surrogate pair, which is not a character") from None
        return record[keys[0]], record[keys[1]]


def _is_json(source: Source) -> bool:
    """Whether a file of pairs holds JSON, by its name, or else by its first line that is not blank."""
    endings = Path(source.name.removesuffix(".gz")).suffix.lower()
    if endings in (".jsonl", ".ndjson", ".json", ".tsv"):
        return endings != ".tsv"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TextWarning)
        first = next((line for line in read_lines(source) if line.strip()), "")
    try:
        return isinstance(load_json(first), dict)
    except ValueError:
        return False


def _lines(numbers: Sequence[int]) -> str:
    more = ", …" if len(numbers) > SHOWN else ""
    return f"line{'s' * (len(numbers) > 1)} {', '.join(f'{number:,}' for number in numbers[:SHOWN])}{more}"


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"


def _warn(message: str) -> None:
    warnings.warn(message, TextWarning, stacklevel=3)
