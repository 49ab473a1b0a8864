"""Words in context: with their senses as in CoarseWSD-20 (Loureiro et al. 2021), or all occurrences in a text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from lmlab.data.readers.strict_text import check_exists, read_whole


class Occurrence(NamedTuple):
    """A word in its sentence, and its sense where that is known."""

    words: list[str]
    place: int
    sense: str = ""


class SenseSet(NamedTuple):
    """Occurrences of one word to compare with, and others to be judged."""

    word: str
    train: list[Occurrence]
    test: list[Occurrence]


def read_senses(folder: str | Path) -> SenseSet:
    """The folder of a word: `train.data.txt` (place, tab, sentence) with `train.gold.txt`, the same of test."""
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
        place, tab, sentence = line.partition("\t")
        words = sentence.split()
        if not tab or not place.isdigit() or int(place) >= len(words):
            raise ValueError(f"{folder}/{split}.data.txt, line {number}: a place, a tab and a sentence are needed")
        found.append(Occurrence(words, int(place), names.get(sense, sense)))
    return found


def find_occurrences(lines: Iterable[str], word: str) -> list[Occurrence]:
    """Where a word stands in lines of text, whatever its case and the punctuation around it."""
    found = []
    for line in lines:
        words = line.split()
        found += [
            Occurrence(words, place)
            for place, each in enumerate(words)
            if each.strip(".,;:!?\"'()[]“”‘’").lower() == word.lower()
        ]
    return found
