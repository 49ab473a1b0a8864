"""Readers of data sets that only analyses use.

Treebanks in CoNLL-U (de Marneffe et al. 2021), CrowS-Pairs (Nangia et al. 2020), Winogender (Rudinger et al. 2018) and
CoarseWSD-20 (Loureiro et al. 2021).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from lmlab.data.readers.files import check_exists, read_whole
from lmlab.data.readers.labelled.conll import is_conllu, read_sentences
from lmlab.data.readers.labelled.tables import parse_csv, parse_tsv


class Parsed(NamedTuple):
    """A sentence with a tree over it."""

    words: list[str]
    upos: list[str]
    xpos: list[str]
    features: list[dict[str, str]]
    heads: list[int]
    """The position of each word's head, from 0; −1 at the root."""
    relations: list[str]

    def depth(self, position: int) -> int:
        """Return the depth of a word in the tree."""
        depth = 0
        while self.heads[position] >= 0:
            position, depth = self.heads[position], depth + 1
            if depth > len(self.words):
                raise ValueError(f"the heads of {' '.join(self.words)!r} contain a cycle: they must form a tree")
        return depth


def read_treebank(path: str | Path) -> list[Parsed]:
    """The sentences of a CoNLL-U file."""
    text = read_whole(Path(path))
    if not is_conllu(str(path), text):
        raise ValueError(f"{path} is not a CoNLL-U file: it needs ten columns, the first with the number of the word")
    found = []
    for sentence in read_sentences(str(path), text, tabs=True, comments=True):
        rows = sentence.rows
        try:
            heads = [int(row[6]) - 1 for row in rows]
            assert all(-1 <= head < len(rows) for head in heads)
        except (ValueError, AssertionError):
            raise ValueError(
                f"{path}, line {sentence.lines[0]}: a head is not a word of its sentence; correct the column HEAD"
            ) from None
        features = [dict(pair.split("=", 1) for pair in row[5].split("|") if "=" in pair) for row in rows]
        words = ["".join(row[1].split()) or "_" for row in rows]
        relations = [row[7].split(":")[0] for row in rows]
        found.append(Parsed(words, [r[3] for r in rows], [r[4] for r in rows], features, heads, relations))
    return found


class CrowsPair(NamedTuple):
    """Two sentences that differ in a group; the first is about the one that is the butt of a stereotype."""

    more: str
    less: str
    kind: str
    direction: str
    """stereo, or antistereo where the sentence goes against a stereotype."""


class Schema(NamedTuple):
    """A sentence with a pronoun of either gender, about an occupation, and the fraction of women in it (percent)."""

    occupation: str
    female: str
    male: str
    women: float


def read_crows_pairs(path: str | Path) -> list[CrowsPair]:
    """The pairs of `crows_pairs_anonymized.csv`."""
    table = parse_csv(str(path), read_whole(Path(path))).take_header().check_even()
    names = [str(name) for name in table.names or ()]
    needed = ("sent_more", "sent_less", "bias_type", "stereo_antistereo")
    if missing := [name for name in needed if name not in names]:
        raise ValueError(f"{path} has no column {missing[0]}; give crows_pairs_anonymized.csv")
    columns = [names.index(name) for name in needed]
    return [CrowsPair(*(str(row[column]) for column in columns)) for row in table.rows]


def read_winogender(folder: str | Path) -> list[Schema]:
    """The sentences of `all_sentences.tsv`, with the fractions of women in the US of `occupations-stats.tsv`."""
    folder = Path(folder)
    stats = parse_tsv(str(folder), read_whole(folder / "occupations-stats.tsv")).take_header().check_even()
    women = {str(row[0]): float(row[2]) for row in stats.rows}
    sentences = parse_tsv(str(folder), read_whole(folder / "all_sentences.tsv")).take_header().check_even()
    by_schema: dict[str, dict[str, str]] = {}
    for name, text in sentences.rows:
        schema, gender = str(name).removesuffix(".txt").rsplit(".", 1)
        by_schema.setdefault(schema, {})[gender] = str(text)
    found = []
    for schema, texts in by_schema.items():
        occupation = schema.split(".")[0]
        if occupation in women and {"female", "male"} <= set(texts):
            found.append(Schema(occupation, texts["female"], texts["male"], women[occupation]))
    if not found:
        raise ValueError(
            f"{folder}: no sentence has both pronouns and a known occupation; give the folder of Winogender"
        )
    return found


class Occurrence(NamedTuple):
    """A word in its sentence, and its sense where that is known."""

    words: list[str]
    position: int
    sense: str = ""


class SenseSet(NamedTuple):
    """Occurrences of one word to compare with, and others to classify."""

    word: str
    train: list[Occurrence]
    test: list[Occurrence]


def read_senses(folder: str | Path) -> SenseSet:
    """The folder of a word: `train.data.txt` (position, tab, sentence) with `train.gold.txt`, the same of test."""
    folder = Path(folder)
    check_exists(folder)
    names: dict[str, str] = json.loads(read_whole(folder / "classes_map.txt"))
    return SenseSet(folder.name, _read(folder, "train", names), _read(folder, "test", names))


def _read(folder: Path, split: str, names: dict[str, str]) -> list[Occurrence]:
    lines = read_whole(folder / f"{split}.data.txt").splitlines()
    gold = read_whole(folder / f"{split}.gold.txt").split()
    if len(lines) != len(gold):
        raise ValueError(f"{folder}: {len(lines)} sentences and {len(gold)} senses of {split}: one for each is needed")
    found = []
    for number, (line, sense) in enumerate(zip(lines, gold, strict=True), 1):
        position, tab, sentence = line.partition("\t")
        words = sentence.split()
        if not tab or not position.isdigit() or int(position) >= len(words):
            raise ValueError(f"{folder}/{split}.data.txt, line {number}: a position, a tab and a sentence are needed")
        found.append(Occurrence(words, int(position), names.get(sense, sense)))
    return found


def find_occurrences(lines: Iterable[str], word: str) -> list[Occurrence]:
    """Return the occurrences of a word in lines of text, ignoring case and punctuation."""
    found = []
    for line in lines:
        words = line.split()
        found += [
            Occurrence(words, position)
            for position, each in enumerate(words)
            if each.strip(".,;:!?\"'()[]“”‘’").lower() == word.lower()
        ]
    return found
