"""From the pieces of a text to its words and back: what tagging, and vectors of words, go by."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from lmlab.tokenizers.tokenizer import Tokenizer


class Text(NamedTuple):
    """The pieces of a text, each with its place in the text and the word that it is in."""

    pieces: list[int]
    offsets: list[tuple[int, int]]  # the characters of the text that are the piece, from and to
    words: list[int | None]  # the number of the word; None for white space itself

    def first_pieces(self) -> dict[int, int]:
        """The number of the first piece of each word, at which it is tagged (Devlin et al. 2019, section 5.3)."""
        firsts: dict[int, int] = {}
        for piece, word in enumerate(self.words):
            if word is not None:
                firsts.setdefault(word, piece)
        return firsts


def find_words(text: str, offsets: Sequence[tuple[int, int]]) -> list[int | None]:
    """For each token the number of the word, as `text.split()` has them, in which its first letter is."""
    starts = [found.start() for found in re.finditer(r"\S+", text)]
    result: list[int | None] = []
    for first, end in offsets:
        piece = text[first:end]
        letter = first + len(piece) - len(piece.lstrip())
        result.append(bisect_right(starts, letter) - 1 if letter < end else None)
    return result


def read_text(text: str, tokenizer: Tokenizer) -> Text:
    """The pieces of a text with their places and words."""
    encoding = tokenizer.engine.encode(text, add_special_tokens=False)
    return Text(encoding.ids, encoding.offsets, find_words(text, encoding.offsets))
