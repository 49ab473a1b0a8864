"""Minimal pairs: a correct and an incorrect sentence that differ in one or a few words.

Read are a user's table (columns `good` and `bad`), BLiMP (Warstadt et al. 2020; JSON lines, or its zip), and the
agreement items of Gulordava et al. 2018 and Linzen et al. 2016 (`.text` with `.gold`, or `.tab`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from lmlab.data.readers.files import check_exists, list_folder, open_zip, read_whole, shorten
from lmlab.data.readers.labelled.tables import ParsedTable, parse_csv, parse_json, parse_tsv

Span = tuple[int, int]


class Pair(NamedTuple):
    """Two sentences; the regions are the characters, from and to, whose probability decides in critical scoring."""

    good: str
    bad: str
    phenomenon: str = ""
    paradigm: str = ""
    regions: tuple[Span, Span] | None = None
    """Where a file names the critical words; else they are those that differ."""

    def critical(self) -> tuple[Span, Span]:
        """The critical region of the right sentence and of the wrong one."""
        return self.regions or find_difference(self.good, self.bad)


class PairSet(NamedTuple):
    """Pairs that were read, and the name by which their published results are known."""

    name: str
    pairs: list[Pair]

    def first(self, limit: int) -> PairSet:
        """Return the first `limit` pairs of each paradigm."""
        seen: Counter[tuple[str, str]] = Counter()
        kept = []
        for pair in self.pairs:
            seen[pair.phenomenon, pair.paradigm] += 1
            kept += [pair] * (seen[pair.phenomenon, pair.paradigm] <= limit)
        return self._replace(pairs=kept)


class ScoredPairs(NamedTuple):
    """Pairs with the log-probabilities that somebody's model gave their critical words."""

    pairs: list[Pair]
    good: list[float]
    bad: list[float]


def find_difference(good: str, bad: str) -> tuple[Span, Span]:
    """The words in which two sentences differ; where one only lacks some, the next word belongs to both."""
    first, second = _words(good), _words(bad)
    same = 0
    while same < min(len(first), len(second)) and _at(good, first[same]) == _at(bad, second[same]):
        same += 1
    end = 0
    while end < min(len(first), len(second)) - same and _at(good, first[-1 - end]) == _at(bad, second[-1 - end]):
        end += 1
    if min(len(first), len(second)) == same + end:
        end, same = (end - 1, same) if end else (0, max(0, same - 1))
    return _join(good, first[same : len(first) - end]), _join(bad, second[same : len(second) - end])


def _words(text: str) -> list[Span]:
    edges = [0, *(i for i in range(1, len(text)) if text[i - 1].isspace() != text[i].isspace())]
    return [(a, b) for a, b in pairwise([*edges, len(text)]) if text[a:b].strip()]


def _at(text: str, span: Span) -> str:
    return text[span[0] : span[1]]


def _join(text: str, words: Sequence[Span]) -> Span:
    return (words[0][0], words[-1][1]) if words else (0, len(text))


def read_pairs(path: str | Path) -> PairSet:
    """The pairs of a file or a folder, whichever of the known forms it has."""
    path = Path(path)
    check_exists(path)
    if path.is_dir():
        return _read_folder(path)
    if path.suffix == ".zip":
        return PairSet("BLiMP", list(_read_zip(path)))
    if path.suffix in (".text", ".gold"):
        return _read_gold(path)
    if path.suffix == ".tab":
        scored = read_scored(path)
        return PairSet("Gulordava", scored.pairs)
    text = read_whole(path)
    if path.suffix in (".jsonl", ".json"):
        table = parse_json(str(path), text)
    else:
        table = (parse_csv if path.suffix == ".csv" else parse_tsv)(str(path), text).take_header().check_even()
    pairs = [_pair_of(row, line, path) for row, line in zip(_records(table), table.lines, strict=True)]
    known = bool(pairs) and all("sentence_good" in row for row in _records(table))
    return PairSet("BLiMP" if known else "", pairs)


def _records(table: ParsedTable) -> list[dict[str, Any]]:
    names = [str(name).strip() for name in table.names or ()]
    return [dict(zip(names, row, strict=True)) for row in table.rows]


def _pair_of(row: Mapping[str, Any], line: int, path: Path) -> Pair:
    """A row of a table of ours, or of BLiMP."""
    good, bad = (row.get(name) or row.get(f"sentence_{name}") for name in ("good", "bad"))
    if not good or not bad:
        raise ValueError(
            f"{path}, line {line}: a pair needs the columns good and bad, with a sentence in each "
            f"(there are: {', '.join(row) or 'none'})"
        )
    good, bad = str(good), str(bad)
    if good == bad and "good" in row:  # BLiMP has a few such pairs, and its published figures count them
        raise ValueError(f"{path}, line {line}: both sentences are {shorten(good)}; they must differ")
    phenomenon = str(row.get("phenomenon") or row.get("linguistics_term") or "")
    if "UID" in row and phenomenon == "s-selection":
        phenomenon = "argument_structure"  # as BLiMP's authors count it in their results
    paradigm = str(row.get("set") or row.get("paradigm") or row.get("UID") or "")
    return Pair(good, bad, phenomenon, paradigm, _prefixed(row, good, bad))


def _prefixed(row: Mapping[str, Any], good: str, bad: str) -> tuple[Span, Span] | None:
    """The critical words after a prefix, as BLiMP names them: other words after one prefix, or one word after two."""
    before = row.get("one_prefix_prefix")
    prefixes = (before, before) if before else (row.get("two_prefix_prefix_good"), row.get("two_prefix_prefix_bad"))
    after = row.get("two_prefix_word")
    words = (after, after) if after else (row.get("one_prefix_word_good"), row.get("one_prefix_word_bad"))
    spans: list[Span] = []
    for text, prefix, word in zip((good, bad), prefixes, words, strict=True):
        if not prefix or not word or not text.startswith(f"{prefix} {word}"):
            return None
        spans.append((len(prefix) + 1, len(prefix) + 1 + len(word)))
    return spans[0], spans[1]


def _read_folder(folder: Path) -> PairSet:
    """A folder of BLiMP, packed or not, or of agreement items, or of tables."""
    files = list_folder(folder)
    packed = [file for file in files if file.name == "BLiMP.zip"]
    if packed:
        return read_pairs(packed[0])
    for suffix in (".gold", ".jsonl", ".tsv", ".csv"):
        found = [read_pairs(file) for file in files if file.suffix == suffix]
        if found:
            return PairSet(found[0].name, [pair for each in found for pair in each.pairs])
    raise ValueError(f"{folder} has no pairs in it: BLiMP.zip, .jsonl, .tsv, .csv, or .text with .gold")


def _read_zip(path: Path) -> Iterator[Pair]:
    empty = True
    with open_zip(path) as files:
        for name, file in files:
            if not name.endswith(".jsonl") or "__MACOSX" in name:
                continue
            empty = False
            table = parse_json(f"{path}/{name}", file.read().decode().replace("\r\n", "\n"))
            for row, line in zip(_records(table), table.lines, strict=True):
                yield _pair_of(row, line, path / name)
    if empty:
        raise ValueError(f"{path} has no .jsonl file in it")


def _read_gold(path: Path) -> PairSet:
    """Sentences (`.text`) and, line by line, the position of a verb, its right form and its wrong one (`.gold`)."""
    gold, text = path.with_suffix(".gold"), path.with_suffix(".text")
    sentences, rows = read_whole(text).splitlines(), [row.split("\t") for row in read_whole(gold).splitlines()]
    if len(sentences) != len(rows):
        raise ValueError(f"{text} has {len(sentences)} sentences and {gold} {len(rows)} lines: one for each is needed")
    pairs = []
    for number, (sentence, row) in enumerate(zip(sentences, rows, strict=True), 1):
        try:
            if len(row) >= 10:  # Gulordava's; item 0 of a construction is the sentence that it was made from
                position, right, wrong, attractors = int(row[3]), row[6], row[7], row[9]
                phenomenon = "original" if row[2] == "0" else "nonsense"
            else:
                position, right, wrong, attractors = int(row[0]), row[1], row[2], row[3]
                phenomenon = f"{attractors} attractor{'s' * (attractors != '1')}"
            pairs.append(_agreement(sentence, position, right, wrong, phenomenon, row[0] if len(row) >= 10 else ""))
        except (ValueError, IndexError) as error:
            raise ValueError(f"{gold}, line {number}: {shorten(' '.join(row))} is not an item ({error})") from None
    return PairSet("Gulordava" if len(rows[0]) >= 10 else "Linzen", pairs)


def _agreement(sentence: str, position: int, right: str, wrong: str, phenomenon: str, paradigm: str) -> Pair:
    """The sentence with either form at a position; `<eos>` is no word of it."""
    words = [word for word in sentence.split() if word != "<eos>"]
    if not 0 <= position < len(words):
        raise ValueError(f"the sentence has no word {position}")
    before = len(" ".join(words[:position])) + bool(position)
    good, bad = (" ".join([*words[:position], form, *words[position + 1 :]]) for form in (right, wrong))
    return Pair(good, bad, phenomenon, paradigm, ((before, before + len(right)), (before, before + len(wrong))))


def read_scored(path: str | Path) -> ScoredPairs:
    """Agreement items of a `.tab` file with the log-probabilities in its last column, 0 where it has none.

    The files of results that Gulordava et al. 2018 published have two rows for each item: its right form and its wrong.
    """
    table = parse_csv(str(path), read_whole(Path(path))).take_header().check_even()
    last = str((table.names or ("",))[-1])
    items: dict[tuple[str, str, str, str], dict[str, Mapping[str, Any]]] = {}
    for row in _records(table):
        missing = {"pattern", "constr_id", "sent_id", "form", "class", "type", "sent", "len_prefix"} - set(row)
        if missing:
            raise ValueError(f"{path} has no column {min(missing)}; give a .tab file of agreement items")
        key = (row["pattern"], row["constr_id"], row["sent_id"], row["sent"])
        items.setdefault(key, {})[row["class"]] = row
    found = ScoredPairs([], [], [])
    for key, item in items.items():
        if set(item) != {"correct", "wrong"}:
            raise ValueError(f"{path}: the item {' '.join(key[:3])} has no correct or no wrong form")
        right, wrong = item["correct"], item["wrong"]
        phenomenon = "original" if right["type"] == "original" else "nonsense"
        position = int(right["len_prefix"])
        found.pairs.append(
            _agreement(right["sent"], position, right["form"], wrong["form"], phenomenon, right["pattern"])
        )
        scored = last not in ("sent", "full_id")
        found.good.append(float(right[last]) if scored else 0.0)
        found.bad.append(float(wrong[last]) if scored else 0.0)
    return found
