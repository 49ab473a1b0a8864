"""The pieces of a text and its words: which piece belongs to which word, for tagging and word vectors."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from lmlab.tokenizers.tokenizer import Tokenizer


class SplitText(NamedTuple):
    """The pieces of a text, each with its characters and its word."""

    pieces: list[int]
    offsets: list[tuple[int, int]]  # the characters of the text that are the piece, from and to
    words: list[int | None]  # the number of the word; None for white space itself

    def first_pieces(self) -> dict[int, int]:
        """Return the index of the first piece of each word, at which it is tagged (Devlin et al. 2019, section 5.3)."""
        firsts: dict[int, int] = {}
        for piece, word in enumerate(self.words):
            if word is not None:
                firsts.setdefault(word, piece)
        return firsts


def find_words(text: str, offsets: Sequence[tuple[int, int]]) -> list[int | None]:
    """Return for each token the index of the word of `text.split()` that has its first letter."""
    starts = [found.start() for found in re.finditer(r"\S+", text)]
    result: list[int | None] = []
    for first, end in offsets:
        piece = text[first:end]
        letter = first + len(piece) - len(piece.lstrip())
        result.append(bisect_right(starts, letter) - 1 if letter < end else None)
    return result


def read_text(text: str, tokenizer: Tokenizer) -> SplitText:
    """Return the pieces of a text with their characters and words."""
    pieces, offsets = tokenizer.encode_with_offsets(text)
    return SplitText(pieces, offsets, find_words(text, offsets))


def read_words(words: Sequence[str], tokenizer: Tokenizer) -> SplitText:
    """Return the pieces of words joined by single spaces; a word without a piece gets the unknown token.

    A normalizer may remove a whole word, which still needs a piece for its tag.
    """
    if wrong := [word for word in words if not word or word.split() != [word]]:
        raise ValueError(f"{wrong[0]!r} is not a word: it is empty, or has white space in it")
    text = " ".join(words)
    pieces, offsets, numbers = read_text(text, tokenizer)
    missing = set(range(len(words))) - set(numbers)
    if not missing:
        return SplitText(pieces, offsets, numbers)
    if tokenizer.unknown is None:
        raise ValueError(f"the tokenizer has no piece for {words[min(missing)]!r}, and no unknown token: leave it out")
    begins = [0]
    for word in words:
        begins.append(begins[-1] + len(word) + 1)
    for number in sorted(missing):
        position = sum(first < begins[number] for first, _ in offsets)
        pieces.insert(position, tokenizer.unknown)
        offsets.insert(position, (begins[number], begins[number + 1] - 1))
        numbers.insert(position, number)
    return SplitText(pieces, offsets, numbers)
