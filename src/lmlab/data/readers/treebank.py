"""Parsed sentences of CoNLL-U files: words, parts of speech, features, heads, relations (de Marneffe et al. 2021)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from lmlab.data.readers.strict_text import read_whole
from lmlab.data.readers.tagged import is_conllu, read_sentences


class Parsed(NamedTuple):
    """A sentence with a tree over it."""

    words: list[str]
    upos: list[str]
    xpos: list[str]
    features: list[dict[str, str]]
    heads: list[int]
    """The place of each word's head, from 0; −1 at the root."""
    relations: list[str]

    def depth(self, place: int) -> int:
        """How many words stand above a word in the tree."""
        depth = 0
        while self.heads[place] >= 0:
            place, depth = self.heads[place], depth + 1
            if depth > len(self.words):
                raise ValueError(f"the heads of {' '.join(self.words)!r} go round in a circle: it is no tree")
        return depth


def read_treebank(path: str | Path) -> list[Parsed]:
    """The sentences of a CoNLL-U file."""
    text = read_whole(Path(path))
    if not is_conllu(str(path), text):
        raise ValueError(f"{path} is no CoNLL-U file: ten columns, the first of which numbers the words")
    found = []
    for sentence in read_sentences(str(path), text, tabs=True, comments=True):
        rows = sentence.rows
        try:
            heads = [int(row[6]) - 1 for row in rows]
            assert all(-1 <= head < len(rows) for head in heads)
        except (ValueError, AssertionError):
            raise ValueError(
                f"{path}, line {sentence.lines[0]}: a head is no word of its sentence; correct the column HEAD"
            ) from None
        features = [dict(pair.split("=", 1) for pair in row[5].split("|") if "=" in pair) for row in rows]
        words = ["".join(row[1].split()) or "_" for row in rows]
        relations = [row[7].split(":")[0] for row in rows]
        found.append(Parsed(words, [r[3] for r in rows], [r[4] for r in rows], features, heads, relations))
    return found
